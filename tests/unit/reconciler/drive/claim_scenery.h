/* SPDX-License-Identifier: Apache-2.0 */
/* claim_scenery.h - a scratch directory with disks to be claimed: files, and loop devices on them.
 */
#pragma once

#include "reconciler/drive/claim.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <sys/sysmacros.h>

#include "lib/path.h"
#include "observe/observe.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/scratch.h"

struct claim_fixture {
    char directory[SCRATCH_BYTES];
    char shared[SCRATCH_BYTES]; /* on /dev/shm; "" none */
    int root, sysfs;
    int (*read_mounts)(int sysfs, struct observed_mounts **ret_mounts);
    int opened; /* by the last claim; -1 */
    struct loop_volume volume, other;
    struct store_drive_mount_disk disk;
    struct store_drive_mount_disk backing;
    bool is_known; /* a VM has it */
    struct error error;
};

static struct claim_fixture *fixture;

static inline int set_up(void **state)
{
    fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    fixture->opened = fixture->volume.loop = fixture->other.loop = -1;
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    assert_int_equal(path_open_root("/", &fixture->root), 0);
    assert_int_equal(observe_open_sysfs(fixture->root, "/sys", &fixture->sysfs), 0);
    fixture->read_mounts = observe_mounts;
    return 0;
}

static inline bool is_attached(const struct loop_volume *volume)
{
    const char *device = strrchr(volume->device, '/');
    char path[64], image[sizeof(volume->image)] = "";
    cleanup(fd_closep) int fd = -1;

    (void)snprintf(path, sizeof(path), "/sys/block%s/loop/backing_file", device);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, image, sizeof(image) - 1) > 0 &&
           strncmp(image, volume->image, strlen(volume->image)) == 0;
}

/* It stays attached while others have it open, as whoever asks all loop devices does for a moment.
 */
static inline void detach_loop(struct loop_volume *volume)
{
    int off = 0;

    if (volume->loop < 0)
        return;
    (void)ioctl(volume->loop, BLKROSET, &off); /* it would outlive the file */
    (void)ioctl(volume->loop, LOOP_CLR_FD, 0);
    fd_close(take_fd(&volume->loop));
    for (unsigned i = 0; i < 10000 && is_attached(volume); i++)
        (void)usleep(1000);
}

static inline int tear_down(void **state)
{
    int r;

    fd_close(fixture->opened);
    detach_loop(&fixture->other);
    detach_loop(&fixture->volume);
    fd_close(fixture->root);
    fd_close(fixture->sysfs);
    r = scratch_directory_remove(fixture->directory);
    if (fixture->shared[0] && scratch_directory_remove(fixture->shared) < 0)
        r = -1;
    free(fixture);
    return r;
}

static inline int claim(const char *path, const char *prefix, bool writable)
{
    struct drive_claim_request request = {
        .root = fixture->root,
        .sysfs = fixture->sysfs,
        .host_path = path,
        .prefixes = {"/nowhere", prefix},
        .prefix_count = 2,
        .read_mounts = fixture->read_mounts,
        .writable = writable,
        .is_new = !fixture->is_known,
    };

    fixture->error = (struct error){0};
    fd_close(fixture->opened);
    fixture->opened = -1;
    return drive_claim(&request, &fixture->opened, &fixture->disk, &fixture->backing,
                       &fixture->error);
}

static inline void expect_refused(const char *path, bool writable, enum drive_claim_outcome outcome,
                                  const char *why)
{
    assert_int_equal(claim(path, fixture->directory, writable), outcome);
    assert_int_equal(fixture->opened, -1);
    if (!strstr(fixture->error.text, why) || !strstr(fixture->error.text, path))
        fail_msg("\"%s\" does not say \"%s\" about %s", fixture->error.text, why, path);
}

__attribute__((format(printf, 2, 3))) static inline const char *name(char ret_path[static 128],
                                                                     const char *format, ...)
{
    char last[48];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(last, sizeof(last), format, arguments);
    va_end(arguments);
    (void)snprintf(ret_path, 128, "%s/%s", fixture->directory, last);
    return ret_path;
}

/* It belongs to the user of the test. */
static inline void make_own_file(const char *path, off_t size)
{
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    fd_close(fd);
}

static inline void make_file(const char *path, off_t size)
{
    make_own_file(path, size);
    if (geteuid() != 0)
        skip(); /* files must be root's */
}

static inline void make_directory(const char *directory)
{
    char path[128];

    assert_int_equal(mkdir(name(path, "%s", directory), 0755), 0);
}

/* Makes the fixture's directory the root, with a /dev that has one volume group. */
static inline void enter_root_with_dev(void)
{
    fd_close(fixture->root);
    assert_int_equal(path_open_root(fixture->directory, &fixture->root), 0);
    make_directory("dev");
    make_directory("dev/vg");
}

/* A loop device on an image in the fixture's directory, and a node for it there. */
static inline void attach_loop(char ret_node[static 128])
{
    struct loop_volume *volume = &fixture->volume;
    struct stat status;

    (void)name(ret_node, "disk.img");
    make_file(ret_node, 1 << 20);
    (void)snprintf(volume->image, sizeof(volume->image), "%s", ret_node);
    loop_volume_attach(volume);
    if (volume->loop < 0)
        skip(); /* this machine has no loop devices */
    assert_int_equal(fstat(volume->loop, &status), 0);
    assert_int_equal(mknod(name(ret_node, "node"), S_IFBLK | 0600, status.st_rdev), 0);
}

#define CLAIM(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
