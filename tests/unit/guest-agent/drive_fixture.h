/* SPDX-License-Identifier: Apache-2.0 */
/* drive_fixture.h - a drive's disk: a loop device here, with a serial in a made-up sysfs. Mounts
 * are in a namespace of this process alone. */
#pragma once

#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/tree.h"

#include <linux/fs.h>
#include <sched.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "lib/clock.h"

#define SERIAL "crust-abcdefghijklmn"

static struct loop_volume volume = {.loop = -1};
static bool has_mounts;

static inline int private_mounts(void **state)
{
    has_mounts = geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
                 mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return 0;
}

static inline void write_attribute(const char *disk, const char *name, const char *text)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "/sys/block/%s", disk);
    tree_make(path);
    (void)snprintf(path, sizeof(path), "/sys/block/%s/%s", disk, name);
    tree_write(path, text);
}

/* The disk as the guest's kernel would show it. */
static inline void show_disk(const char *serial, bool read_only)
{
    const char *name = volume.device + strlen("/dev/");
    uint64_t bytes = 0;
    struct stat status;
    char text[64];

    assert_int_equal(ioctl(volume.loop, BLKGETSIZE64, &bytes), 0);
    assert_int_equal(fstat(volume.loop, &status), 0);
    (void)snprintf(text, sizeof(text), "%u:%u\n", major(status.st_rdev), minor(status.st_rdev));
    write_attribute(name, "dev", text);
    (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes / 512);
    write_attribute(name, "size", text);
    write_attribute(name, "ro", read_only ? "1\n" : "0\n");
    write_attribute(name, "serial", serial);
}

/* A disk with such a file system ("": nothing is on it) is attached to the guest. Skips the test
 * where this machine cannot. */
static inline void attach_disk(const char *file_system)
{
    if (!has_mounts)
        skip();
    (void)snprintf(volume.image, sizeof(volume.image), "%s/disk.img", scratch);
    assert_true(run_command("truncate -s %dM '%s'", SMALL, volume.image));
    if (*file_system && !run_command("mkfs.%s -q '%s' >/dev/null 2>&1", file_system, volume.image))
        skip();
    loop_volume_attach(&volume);
    if (volume.loop < 0)
        skip();
    tree_make("/sys/block");
    show_disk(SERIAL, false);
}

static inline const char *target(void)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/vm/data", scratch);
    return path;
}

/* Whether the path is where something is mounted. */
static inline bool is_mounted(const char *path)
{
    struct statx status;

    return statx(AT_FDCWD, path, 0, STATX_TYPE, &status) == 0 &&
           (status.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static inline int disk_stop(void **state)
{
    while (umount2(target(), MNT_DETACH) == 0)
        ;
    if (volume.loop >= 0) {
        (void)ioctl(volume.loop, LOOP_CLR_FD, 0);
        fd_close(volume.loop);
        volume.loop = -1;
    }
    return tree_stop(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_start, disk_stop)
#define TEST_WITH(name, argument)                                                                  \
    cmocka_unit_test_prestate_setup_teardown(name, tree_start, disk_stop,                          \
                                             (void *)(uintptr_t)(argument))
