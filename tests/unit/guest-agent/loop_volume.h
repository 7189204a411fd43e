/* SPDX-License-Identifier: Apache-2.0 */
/* loop_volume.h - a file system on a loop device, mounted, whose device can grow. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define MIB UINT64_C(1048576)

enum { SMALL = 320, LARGE = 640 }; /* MiB: xfs refuses less than 300 */

struct loop_volume {
    int loop;        /* -1: none */
    char device[32]; /* "/dev/loop3" */
    char image[96];
    char mount_point[96];
};

__attribute__((format(printf, 1, 2))) static inline bool run_command(const char *format, ...)
{
    char command[512];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

static inline void loop_volume_attach(struct loop_volume *volume)
{
    cleanup(fd_closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    cleanup(fd_closep) int backing = open(volume->image, O_RDWR | O_CLOEXEC);

    for (int attempt = 0; control >= 0 && backing >= 0 && attempt < 32; attempt++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE), fd;

        (void)snprintf(volume->device, sizeof(volume->device), "/dev/loop%d", number);
        fd = open(volume->device, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && ioctl(fd, LOOP_SET_FD, backing) == 0) {
            volume->loop = fd;
            return;
        }
        fd_close(fd); /* another process was faster */
    }
}

/* Attaches the image and mounts it; false where this machine cannot. */
static inline bool loop_volume_mount(struct loop_volume *volume, const char *file_system,
                                     unsigned long flags)
{
    loop_volume_attach(volume);
    return volume->loop >= 0 &&
           mount(volume->device, volume->mount_point, file_system, flags, NULL) == 0;
}

/* Makes NAME.img and the directory NAME below `directory`, and mounts the one on the other. Skips
 * the test where this machine cannot. */
static inline void loop_volume_make(struct loop_volume *volume, const char *directory,
                                    const char *name, const char *file_system)
{
    (void)snprintf(volume->image, sizeof(volume->image), "%s/%s.img", directory, name);
    (void)snprintf(volume->mount_point, sizeof(volume->mount_point), "%s/%s", directory, name);
    if (mkdir(volume->mount_point, 0700) < 0 && errno != EEXIST)
        fail();
    if (geteuid() != 0 ||
        !run_command("truncate -s %dM '%s' && mkfs.%s -q '%s' >/dev/null 2>&1", SMALL,
                     volume->image, file_system, volume->image) ||
        !loop_volume_mount(volume, file_system, 0))
        skip();
}

static inline void loop_volume_resize(struct loop_volume *volume, int mebibytes)
{
    assert_true(run_command("truncate -s %dM '%s'", mebibytes, volume->image));
    assert_int_equal(ioctl(volume->loop, LOOP_SET_CAPACITY, 0), 0);
}

#define XFS_IOC_GOINGDOWN _IOR('X', 125, uint32_t)

/* An error that the kernel answers by shutting the file system down. What is asked of ext4 comes
 * about a moment later; skips the test where its kernel cannot be asked. */
static inline void loop_volume_shut_down(const struct loop_volume *volume, const char *file_system)
{
    const char *name = volume->device + strlen("/dev/");

    if (strcmp(file_system, "xfs") == 0) {
        cleanup(fd_closep) int fd = open(volume->mount_point, O_RDONLY | O_CLOEXEC);
        uint32_t without_log = 2;

        assert_int_equal(ioctl(fd, XFS_IOC_GOINGDOWN, &without_log), 0);
    } else {
        assert_int_equal(mount(NULL, volume->mount_point, NULL, MS_REMOUNT, "errors=remount-ro"),
                         0);
        if (!run_command("echo 1 >/sys/fs/ext4/%s/trigger_fs_error", name))
            skip();
        assert_true(run_command("for i in $(seq 1000); do grep -q '^[1-9]' "
                                "/sys/fs/ext4/%s/errors_count && exit 0; sleep 0.01; done; exit 1",
                                name));
    }
}

static inline void loop_volume_remove(struct loop_volume *volume)
{
    if (volume->loop < 0)
        return;
    (void)umount2(volume->mount_point, MNT_DETACH);
    (void)ioctl(volume->loop, LOOP_CLR_FD, 0);
    fd_close(volume->loop);
    volume->loop = -1;
}
