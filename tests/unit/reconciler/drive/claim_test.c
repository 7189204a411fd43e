/* SPDX-License-Identifier: Apache-2.0 */
/* claim_test.c - the host's disk of a drive mount: which one is opened, and which is refused. */
#include "reconciler/drive/claim.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <sys/fsuid.h>
#include <sys/sysmacros.h>

#include "lib/path.h"
#include "observe/observe.h"
#include "tests/unit/guest-agent/loop_volume.h"
#include "tests/unit/scratch.h"

struct claim_fixture {
    char directory[SCRATCH_BYTES];
    char shared[SCRATCH_BYTES]; /* on /dev/shm; "" none */
    int root, sysfs;
    struct observed_mounts *mounts; /* NULL: they could not be read */
    int opened;                     /* by the last claim; -1 */
    struct loop_volume volume;
    struct store_drive_mount_disk disk, backing;
    bool is_known; /* a VM has it */
    struct error error;
};

static int set_up(void **state)
{
    struct claim_fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->opened = fixture->volume.loop = -1;
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    assert_int_equal(path_open_root("/", &fixture->root), 0);
    assert_int_equal(observe_open_sysfs(fixture->root, "/sys", &fixture->sysfs), 0);
    *state = fixture;
    return 0;
}

static void detach_loop(struct claim_fixture *fixture)
{
    int off = 0;

    if (fixture->volume.loop < 0)
        return;
    (void)ioctl(fixture->volume.loop, BLKROSET, &off); /* it would outlive the file */
    (void)ioctl(fixture->volume.loop, LOOP_CLR_FD);
    fd_close(fixture->volume.loop);
    fixture->volume.loop = -1;
}

static int tear_down(void **state)
{
    struct claim_fixture *fixture = *state;
    int r;

    fd_close(fixture->opened);
    detach_loop(fixture);
    fd_close(fixture->root);
    fd_close(fixture->sysfs);
    (void)observed_mounts_free(fixture->mounts);
    r = scratch_directory_remove(fixture->directory);
    if (fixture->shared[0] && scratch_directory_remove(fixture->shared) < 0)
        r = -1;
    free(fixture);
    return r;
}

static int claim(struct claim_fixture *fixture, const char *path, const char *prefix, bool writable)
{
    struct drive_claim_request request = {
        .root = fixture->root,
        .sysfs = fixture->sysfs,
        .host_path = path,
        .prefixes = (const char *const[]){"/nowhere", prefix},
        .prefix_count = 2,
        .mounts = fixture->mounts,
        .writable = writable,
        .is_new = !fixture->is_known,
    };

    fixture->error = (struct error){0};
    fd_close(fixture->opened);
    fixture->opened = -1;
    return drive_claim(&request, &fixture->opened, &fixture->disk, &fixture->backing,
                       &fixture->error);
}

static void expect_refused(struct claim_fixture *fixture, const char *path, bool writable,
                           enum drive_claim_outcome outcome, const char *why)
{
    assert_int_equal(claim(fixture, path, fixture->directory, writable), outcome);
    assert_int_equal(fixture->opened, -1);
    if (!strstr(fixture->error.text, why) || !strstr(fixture->error.text, path))
        fail_msg("\"%s\" does not say \"%s\" about %s", fixture->error.text, why, path);
}

__attribute__((format(printf, 3, 4))) static const char *
name(const struct claim_fixture *fixture, char ret_path[static 128], const char *format, ...)
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
static void make_own_file(const char *path, off_t size)
{
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    fd_close(fd);
}

static void make_file(const char *path, off_t size)
{
    make_own_file(path, size);
    if (geteuid() != 0)
        skip(); /* files must be root's */
}

static void a_file_of_roots_is_opened(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[128];
    struct stat status;

    make_file(name(fixture, path, "disk.img"), 4096);
    assert_int_equal(claim(fixture, path, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fstat(fixture->opened, &status), 0);
    assert_int_equal(fixture->disk.kind, DEVICE_KIND_FILE);
    assert_int_equal(fixture->disk.inode, status.st_ino);
    assert_int_equal(fixture->disk.file_device, status.st_dev);
    assert_int_equal(fixture->disk.size_bytes, 4096);
    assert_int_equal(fcntl(fixture->opened, F_GETFL) & O_ACCMODE, O_RDWR);
    assert_true(fcntl(fixture->opened, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(claim(fixture, path, fixture->directory, false), DRIVE_CLAIM_OPEN);
    assert_int_equal(fcntl(fixture->opened, F_GETFL) & O_ACCMODE, O_RDONLY);
}

static void a_file_that_others_can_change_is_refused(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[128], second[128];

    make_file(name(fixture, path, "disk.img"), 4096);
    assert_int_equal(chmod(path, 0620), 0);
    expect_refused(fixture, path, true, DRIVE_CLAIM_UNSUITABLE, "users other than root");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(link(path, name(fixture, second, "again.img")), 0);
    expect_refused(fixture, path, true, DRIVE_CLAIM_UNSUITABLE, "several hard links");
}

static void a_users_file_is_refused(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[128];

    make_own_file(name(fixture, path, "disk.img"), 4096);
    assert_true(geteuid() != 0 || chown(path, 12345, 0) == 0);
    expect_refused(fixture, path, true, DRIVE_CLAIM_UNSUITABLE, "does not belong to root");
    expect_refused(fixture, path, false, DRIVE_CLAIM_UNSUITABLE, "does not belong to root");
}

static void a_path_that_is_not_a_disk_is_refused(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[128];

    expect_refused(fixture, name(fixture, path, "absent"), true, DRIVE_CLAIM_MISSING,
                   "does not exist");
    assert_int_equal(mkdir(name(fixture, path, "directory"), 0700), 0);
    expect_refused(fixture, path, true, DRIVE_CLAIM_UNSUITABLE, "neither a block device");
    assert_int_equal(mkfifo(name(fixture, path, "fifo"), 0600), 0);
    expect_refused(fixture, path, true, DRIVE_CLAIM_UNSUITABLE, "neither a block device");
    assert_int_equal(claim(fixture, "/dev/null", "/dev", true), DRIVE_CLAIM_UNSUITABLE);
    make_file(name(fixture, path, "empty"), 0);
    expect_refused(fixture, path, true, DRIVE_CLAIM_UNSUITABLE, "is empty");
}

/* By a name, by "..", by a link; a link that stays inside is followed. */
static void nothing_outside_of_the_prefixes_is_opened(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[128], inner[128], link_path[128];

    assert_int_equal(mkdir(name(fixture, inner, "allowed"), 0700), 0);
    make_own_file(name(fixture, path, "disk.img"), 4096);
    assert_int_equal(claim(fixture, path, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, name(fixture, path, "allowed-too/disk.img"), inner, true),
                     DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, inner, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, name(fixture, path, "allowed/../disk.img"), inner, true),
                     DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(symlink("../disk.img", name(fixture, link_path, "allowed/out")), 0);
    assert_int_equal(claim(fixture, link_path, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(symlink("/proc/self/fd/0", name(fixture, link_path, "allowed/magic")), 0);
    assert_int_equal(claim(fixture, link_path, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(fixture->opened, -1);
    make_file(name(fixture, path, "allowed/disk.img"), 4096);
    assert_int_equal(symlink("disk.img", name(fixture, link_path, "allowed/in")), 0);
    assert_int_equal(claim(fixture, link_path, inner, true), DRIVE_CLAIM_OPEN);
}

static void link_to(const struct claim_fixture *fixture, const char *target, const char *link_name)
{
    char path[128];

    assert_int_equal(symlink(target, name(fixture, path, "%s", link_name)), 0);
}

static void make_directory(const struct claim_fixture *fixture, const char *directory)
{
    char path[128];

    assert_int_equal(mkdir(name(fixture, path, "%s", directory), 0755), 0);
}

/* Makes the fixture's directory the root, with a /dev that has one volume group. */
static void enter_root_with_dev(struct claim_fixture *fixture)
{
    fd_close(fixture->root);
    assert_int_equal(path_open_root(fixture->directory, &fixture->root), 0);
    make_directory(fixture, "dev");
    make_directory(fixture, "dev/vg");
}

/* As LVM's /dev/VG/LV, and no other. */
static void a_link_of_devtmpfs_may_lead_to_another_node_of_it(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[128];

    enter_root_with_dev(fixture);
    make_directory(fixture, "images");
    make_own_file(name(fixture, path, "outside"), 4096);
    make_own_file(name(fixture, path, "dev/dm-0"), 4096);
    link_to(fixture, "../../outside", "dev/vg/out");
    link_to(fixture, "../dm-0", "dev/vg/one");
    link_to(fixture, "../dev/dm-0", "images/one");
    assert_int_equal(claim(fixture, "/dev/vg/out", "/dev/vg", true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, "/dev/vg/../dm-0", "/dev/vg", true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, "/images/one", "/images", true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, "/dev/vg/none", "/dev/vg", true), DRIVE_CLAIM_MISSING);
    assert_int_equal(fixture->opened, -1);
    if (geteuid() != 0)
        skip();
    assert_int_equal(claim(fixture, "/dev/vg/one", "/dev/vg", true), DRIVE_CLAIM_OPEN);
}

/* As LVM makes them where it does without udev. */
static void an_absolute_link_of_devtmpfs_stays_below_dev(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[128];

    enter_root_with_dev(fixture);
    make_directory(fixture, "dev/mapper");
    make_own_file(name(fixture, path, "outside"), 4096);
    make_own_file(name(fixture, path, "dev/dm-0"), 4096);
    link_to(fixture, "/dev/mapper/vg-one", "dev/vg/one");
    link_to(fixture, "../dm-0", "dev/mapper/vg-one");
    link_to(fixture, "/outside", "dev/vg/out");
    link_to(fixture, "/dev/mapper/../../outside", "dev/vg/unclean");
    link_to(fixture, "/dev/mapper/out", "dev/vg/twice");
    link_to(fixture, "/outside", "dev/mapper/out");
    link_to(fixture, "/dev/mapper/none", "dev/vg/none");
    link_to(fixture, "/dev/removed/one", "dev/vg/removed");
    assert_int_equal(claim(fixture, "/dev/vg/out", "/dev/vg", true), DRIVE_CLAIM_OUTSIDE);
    assert_non_null(strstr(fixture->error.text, "is a link to /outside, which is not below /dev"));
    assert_int_equal(claim(fixture, "/dev/vg/unclean", "/dev/vg", true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, "/dev/vg/twice", "/dev/vg", true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(fixture, "/dev/vg/none", "/dev/vg", true), DRIVE_CLAIM_MISSING);
    assert_int_equal(claim(fixture, "/dev/vg/removed", "/dev/vg", true), DRIVE_CLAIM_MISSING);
    assert_int_equal(fixture->opened, -1);
    if (geteuid() != 0)
        skip();
    assert_int_equal(claim(fixture, "/dev/vg/one", "/dev/vg", true), DRIVE_CLAIM_OPEN);
    for (unsigned i = 0; i < 2; i++) {
        (void)name(fixture, path, i ? "dev/mapper" : "dev/vg");
        assert_int_equal(chmod(path, 0777), 0);
        assert_int_equal(claim(fixture, "/dev/vg/one", "/dev/vg", true), DRIVE_CLAIM_OUTSIDE);
        assert_non_null(strstr(fixture->error.text, "not only root's"));
        assert_int_equal(chmod(path, 0755), 0);
    }
}

/* Users may write to /dev/shm. */
static void a_link_on_another_mount_below_dev_leads_out(void **state)
{
    struct claim_fixture *fixture = *state;
    char path[SCRATCH_BYTES + 8];
    struct stat devices, shared;

    if (stat("/dev", &devices) < 0 || stat("/dev/shm", &shared) < 0 ||
        devices.st_dev == shared.st_dev)
        skip();
    assert_int_equal(scratch_directory_make_below("/dev/shm", fixture->shared), 0);
    (void)snprintf(path, sizeof(path), "%s/link", fixture->shared);
    assert_int_equal(symlink("../../null", path), 0);
    assert_int_equal(claim(fixture, path, fixture->shared, true), DRIVE_CLAIM_OUTSIDE);
}

/* A loop device on an image in the fixture's directory, and a node for it there. */
static void attach_loop(struct claim_fixture *fixture, char ret_node[static 128])
{
    struct loop_volume *volume = &fixture->volume;
    struct stat status;

    (void)name(fixture, ret_node, "disk.img");
    make_file(ret_node, 1 << 20);
    (void)snprintf(volume->image, sizeof(volume->image), "%s", ret_node);
    loop_volume_attach(volume);
    if (volume->loop < 0)
        skip(); /* this machine has no loop devices */
    assert_int_equal(fstat(volume->loop, &status), 0);
    assert_int_equal(mknod(name(fixture, ret_node, "node"), S_IFBLK | 0600, status.st_rdev), 0);
}

static void a_block_device_is_claimed_for_nobody_else(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];
    struct stat status;
    uint64_t diskseq;
    int other;

    attach_loop(fixture, node);
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fstat(fixture->volume.loop, &status), 0);
    assert_int_equal(fixture->disk.kind, DEVICE_KIND_BLOCK);
    assert_int_equal(makedev(fixture->disk.major, fixture->disk.minor), status.st_rdev);
    assert_int_equal(fixture->disk.size_bytes, 1 << 20);
    assert_int_equal(stat(fixture->volume.image, &status), 0);
    assert_int_equal(fixture->backing.kind, DEVICE_KIND_FILE);
    assert_int_equal(fixture->backing.file_device, status.st_dev);
    assert_int_equal(fixture->backing.inode, status.st_ino);
    assert_int_equal(fstat(fixture->volume.loop, &status), 0);
    diskseq = fixture->disk.diskseq;
    other = open(node, O_RDONLY | O_EXCL | O_CLOEXEC);
    assert_true(other < 0 && errno == EBUSY);
    fd_close(fixture->opened);
    fixture->opened = -1;
    other = open(node, O_RDONLY | O_EXCL | O_CLOEXEC);
    assert_true(other >= 0);
    fixture->disk = (struct store_drive_mount_disk){.kind = DEVICE_KIND_OTHER};
    expect_refused(fixture, node, false, DRIVE_CLAIM_TAKEN, "open exclusively");
    assert_int_equal(fixture->disk.kind, DEVICE_KIND_BLOCK);
    assert_int_equal(makedev(fixture->disk.major, fixture->disk.minor), status.st_rdev);
    assert_int_equal(fixture->disk.diskseq, diskseq);
    fd_close(other);
}

static void a_write_protected_device_is_only_read(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];
    int on = 1;

    attach_loop(fixture, node);
    assert_int_equal(ioctl(fixture->volume.loop, BLKROSET, &on), 0);
    expect_refused(fixture, node, true, DRIVE_CLAIM_READ_ONLY, "read-only");
    assert_int_equal(claim(fixture, node, fixture->directory, false), DRIVE_CLAIM_OPEN);
}

static void a_loop_devices_file_is_in_use(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128], image[128];

    attach_loop(fixture, node);
    expect_refused(fixture, name(fixture, image, "disk.img"), false, DRIVE_CLAIM_IN_USE,
                   fixture->volume.device);
    detach_loop(fixture);
    assert_int_equal(claim(fixture, image, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

/* A loop device takes no claim of a block device that it stands on. */
static void a_block_device_under_a_loop_device_is_in_use(void **state)
{
    struct claim_fixture *fixture = *state;
    struct loop_volume above = {.loop = -1};
    char node[128];

    attach_loop(fixture, node);
    (void)snprintf(above.image, sizeof(above.image), "%s", fixture->volume.device);
    loop_volume_attach(&above);
    expect_refused(fixture, node, true, DRIVE_CLAIM_IN_USE, above.device);
    assert_int_equal(fixture->disk.kind, DEVICE_KIND_BLOCK);
    assert_int_equal(ioctl(above.loop, LOOP_CLR_FD), 0);
    fd_close(above.loop);
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

static void a_loop_device_says_on_which_block_device_it_stands(void **state)
{
    struct claim_fixture *fixture = *state;
    struct loop_volume above = {.loop = -1};
    char node[128];
    struct stat status, below;

    attach_loop(fixture, node);
    assert_int_equal(fstat(fixture->volume.loop, &below), 0);
    (void)snprintf(above.image, sizeof(above.image), "%s", fixture->volume.device);
    loop_volume_attach(&above);
    assert_int_equal(fstat(above.loop, &status), 0);
    assert_int_equal(mknod(name(fixture, node, "above"), S_IFBLK | 0600, status.st_rdev), 0);
    expect_refused(fixture, node, true, DRIVE_CLAIM_IN_USE, "(cannot tell)");
    assert_int_equal(observe_mounts(fixture->sysfs, &fixture->mounts), 0);
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fixture->backing.kind, DEVICE_KIND_BLOCK);
    assert_int_equal(makedev(fixture->backing.major, fixture->backing.minor), below.st_rdev);
    assert_int_equal(ioctl(above.loop, LOOP_CLR_FD), 0);
    fd_close(above.loop);
}

/* Whoever has the disk already keeps it. */
static void a_loop_device_shares_its_file_with_no_other(void **state)
{
    struct claim_fixture *fixture = *state;
    struct loop_volume other = {.loop = -1};
    char node[128];

    attach_loop(fixture, node);
    memcpy(other.image, fixture->volume.image, sizeof(other.image));
    loop_volume_attach(&other);
    expect_refused(fixture, node, true, DRIVE_CLAIM_IN_USE, other.device);
    fixture->is_known = true;
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    fixture->is_known = false;
    assert_int_equal(ioctl(other.loop, LOOP_CLR_FD), 0);
    fd_close(other.loop);
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

/* Without the right to open block devices a file's loop devices cannot be asked. */
static void a_file_is_refused_where_loop_devices_may_not_be_asked(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128], image[128];
    int r;

    attach_loop(fixture, node);
    assert_int_equal(chmod(fixture->directory, 0755), 0);
    assert_int_equal(setfsuid(12345), 0);
    r = claim(fixture, name(fixture, image, "disk.img"), fixture->directory, false);
    (void)setfsuid(0);
    assert_int_equal(r, DRIVE_CLAIM_FORBIDDEN);
    assert_non_null(strstr(fixture->error.text, "may not ask /dev/loop"));
}

static void a_device_without_a_file_is_missing(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];

    if (geteuid() != 0)
        skip();
    /* blkext, with a minor that nobody has */
    assert_int_equal(mknod(name(fixture, node, "node"), S_IFBLK | 0600, makedev(259, 1048575)), 0);
    expect_refused(fixture, node, true, DRIVE_CLAIM_MISSING, "without a device");
}

#define CLAIM(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(a_file_of_roots_is_opened),
        CLAIM(a_file_that_others_can_change_is_refused),
        CLAIM(a_users_file_is_refused),
        CLAIM(a_path_that_is_not_a_disk_is_refused),
        CLAIM(nothing_outside_of_the_prefixes_is_opened),
        CLAIM(a_link_of_devtmpfs_may_lead_to_another_node_of_it),
        CLAIM(an_absolute_link_of_devtmpfs_stays_below_dev),
        CLAIM(a_link_on_another_mount_below_dev_leads_out),
        CLAIM(a_block_device_is_claimed_for_nobody_else),
        CLAIM(a_write_protected_device_is_only_read),
        CLAIM(a_loop_devices_file_is_in_use),
        CLAIM(a_loop_device_says_on_which_block_device_it_stands),
        CLAIM(a_loop_device_shares_its_file_with_no_other),
        CLAIM(a_block_device_under_a_loop_device_is_in_use),
        CLAIM(a_file_is_refused_where_loop_devices_may_not_be_asked),
        CLAIM(a_device_without_a_file_is_missing),
    };

    return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
