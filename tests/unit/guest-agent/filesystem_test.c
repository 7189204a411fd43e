/* SPDX-License-Identifier: Apache-2.0 */
/* filesystem_test.c - what a file system may say of itself: a kernel that answers as a crafted
 * btrfs would have it. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "guest-agent/filesystem.h"
#include "lib/cleanup.h"

static struct {
    uint64_t max_id;
    uint64_t num_devices;
    uint64_t has; /* the only id that there is */
    char path[300];
    unsigned calls;
} kernel;

int fstatfs(int fd, struct statfs *ret)
{
    (void)fd;
    memset(ret, 0, sizeof(*ret));
    ret->f_type = BTRFS_SUPER_MAGIC;
    return 0;
}

static int tell_device(struct btrfs_ioctl_dev_info_args *device)
{
    if (device->devid != kernel.has) {
        errno = ENODEV;
        return -1;
    }
    device->total_bytes = 1 << 20;
    (void)snprintf((char *)device->path, sizeof(device->path), "%s", kernel.path);
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    void *argument;

    (void)fd;
    va_start(arguments, request);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    if (++kernel.calls > 100000)
        fail_msg("it asks for ever");
    if (request != BTRFS_IOC_FS_INFO)
        return tell_device(argument);
    *(struct btrfs_ioctl_fs_info_args *)argument = (struct btrfs_ioctl_fs_info_args){
        .max_id = kernel.max_id, .num_devices = kernel.num_devices};
    return 0;
}

/* Any block device of this machine. */
static void name_a_device(void)
{
    cleanup(dir_closep) DIR *names = opendir("/sys/class/block");
    const struct dirent *name;

    while (names && (name = readdir(names)))
        if (name->d_name[0] != '.') {
            (void)snprintf(kernel.path, sizeof(kernel.path), "/dev/%s", name->d_name);
            return;
        }
    skip();
}

static int inspect(uint64_t max_id, uint64_t num_devices, uint64_t has,
                   struct filesystem *ret_filesystem)
{
    memset(&kernel, 0, sizeof(kernel));
    kernel.max_id = max_id;
    kernel.num_devices = num_devices;
    kernel.has = has;
    name_a_device();
    return filesystem_inspect(0, FILESYSTEM_BTRFS, 0, ret_filesystem);
}

static void a_device_with_a_gap_before_it_is_found(void **state)
{
    struct filesystem filesystem;

    (void)state;
    assert_int_equal(inspect(7, 1, 7, &filesystem), 0);
    assert_int_equal(filesystem.device_count, 1);
    assert_int_equal(filesystem.devices[0].id, 7);
}

static void nobody_looks_for_more_than_there_are(void **state)
{
    struct filesystem filesystem;

    (void)state;
    assert_int_equal(inspect(UINT64_MAX, 1, 2, &filesystem), 0);
    assert_int_equal(filesystem.device_count, 1);
    assert_int_equal(kernel.calls, 3);
}

static void a_crafted_number_is_refused(void **state)
{
    struct filesystem filesystem;

    (void)state;
    assert_int_equal(inspect(UINT64_MAX, 2, 1, &filesystem), -E2BIG);
    assert_int_equal(inspect(UINT64_MAX, UINT64_MAX, UINT64_MAX, &filesystem), -E2BIG);
    assert_int_equal(inspect(UINT64_MAX, 0, 1, &filesystem), -ENODEV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_with_a_gap_before_it_is_found),
        cmocka_unit_test(nobody_looks_for_more_than_there_are),
        cmocka_unit_test(a_crafted_number_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
