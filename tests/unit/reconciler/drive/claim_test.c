/* SPDX-License-Identifier: Apache-2.0 */
/* claim_test.c - the host's disk of a drive mount: which one is opened, and which is refused. */
#include "tests/unit/reconciler/drive/claim_scenery.h"

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
        CLAIM(a_device_without_a_file_is_missing),
    };

    return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
