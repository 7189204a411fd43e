/* SPDX-License-Identifier: Apache-2.0 */
/* slow_disk.c - preloaded into crustd, makes every flush of a disk take 30 ms longer.
 *
 * SQLite flushes by fdatasync(2), the daemon itself by fsync(2).
 */
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

static const struct timespec flush_delay = {.tv_nsec = 30 * 1000 * 1000};

static int delayed(const char *name, int fd)
{
    int (*real)(int) = NULL;

    *(void **)&real = dlsym(RTLD_NEXT, name);
    (void)nanosleep(&flush_delay, NULL);
    return real(fd);
}

int fsync(int fd)
{
    return delayed("fsync", fd);
}

int fdatasync(int fd)
{
    return delayed("fdatasync", fd);
}
