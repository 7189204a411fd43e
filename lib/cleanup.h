/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup.h - ownership that ends with the scope.
 *
 * `cleanup(fd_closep) int fd = -1;` closes on every way out; the last line of a constructor hands
 * over with take_fd(&fd) or take_pointer(&p), which leave nothing behind to clean up.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define cleanup(function) __attribute__((cleanup(function)))

#define container_of(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#define array_length(array) (sizeof(array) / sizeof((array)[0]))

static inline void freep(void *pointer)
{
    free(*(void **)pointer);
}

/* Closes and preserves errno; ignores a negative descriptor. */
static inline void fd_close(int fd)
{
    int saved = errno;

    if (fd >= 0)
        (void)close(fd);
    errno = saved;
}

static inline void fd_closep(int *fd)
{
    fd_close(*fd);
}

static inline void dir_closep(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir);
}

static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

#define take_pointer(pointer)                                                                      \
    __extension__({                                                                                \
        __typeof__(pointer) take_source = (pointer);                                               \
        __typeof__(*take_source) taken = *take_source;                                             \
        *take_source = NULL;                                                                       \
        taken;                                                                                     \
    })
