/* SPDX-License-Identifier: Apache-2.0 */
/* claim_test.c - the host's disk of a drive mount: which one is opened, and which is refused. */
#include "lib/clock.h"
#include "lib/workers.h"
#include "tests/unit/reconciler/drive/claim_scenery.h"

static void a_file_of_roots_is_opened(void **state)
{
    char path[128];
    struct stat status;

    make_file(name(path, "disk.img"), 4096);
    assert_int_equal(claim(path, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fstat(fixture->opened, &status), 0);
    assert_int_equal(fixture->disk.kind, DEVICE_KIND_FILE);
    assert_int_equal(fixture->disk.inode, status.st_ino);
    assert_int_equal(fixture->disk.file_device, status.st_dev);
    assert_int_equal(fixture->disk.size_bytes, 4096);
    assert_int_equal(fcntl(fixture->opened, F_GETFL) & O_ACCMODE, O_RDWR);
    assert_true(fcntl(fixture->opened, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(claim(path, fixture->directory, false), DRIVE_CLAIM_OPEN);
    assert_int_equal(fcntl(fixture->opened, F_GETFL) & O_ACCMODE, O_RDONLY);
}

static void a_file_that_is_not_roots_alone_is_refused(void **state)
{
    char path[128], second[128];

    make_own_file(name(path, "users.img"), 4096);
    assert_true(geteuid() != 0 || chown(path, 12345, 0) == 0);
    expect_refused(path, true, DRIVE_CLAIM_UNSUITABLE, "does not belong to root");
    expect_refused(path, false, DRIVE_CLAIM_UNSUITABLE, "does not belong to root");
    make_file(name(path, "disk.img"), 4096);
    assert_int_equal(chmod(path, 0620), 0);
    expect_refused(path, true, DRIVE_CLAIM_UNSUITABLE, "users other than root");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(link(path, name(second, "again.img")), 0);
    expect_refused(path, true, DRIVE_CLAIM_UNSUITABLE, "several hard links");
}

/* Nor is a node of a number that nobody has; that of blkext is one. */
static void a_path_that_is_not_a_disk_is_refused(void **state)
{
    char path[128];

    expect_refused(name(path, "absent"), true, DRIVE_CLAIM_MISSING, "does not exist");
    assert_int_equal(mkdir(name(path, "directory"), 0700), 0);
    expect_refused(path, true, DRIVE_CLAIM_UNSUITABLE, "neither a block device");
    assert_int_equal(mkfifo(name(path, "fifo"), 0600), 0);
    expect_refused(path, true, DRIVE_CLAIM_UNSUITABLE, "neither a block device");
    assert_int_equal(claim("/dev/null", "/dev", true), DRIVE_CLAIM_UNSUITABLE);
    make_file(name(path, "empty"), 0);
    expect_refused(path, true, DRIVE_CLAIM_UNSUITABLE, "is empty");
    assert_int_equal(mknod(name(path, "node"), S_IFBLK | 0600, makedev(259, 1048575)), 0);
    expect_refused(path, true, DRIVE_CLAIM_MISSING, "without a device");
}

/* By a name, by "..", by a link; a link that stays inside is followed. */
static void nothing_outside_of_the_prefixes_is_opened(void **state)
{
    char path[128], inner[128], link_path[128];

    assert_int_equal(mkdir(name(inner, "allowed"), 0700), 0);
    make_own_file(name(path, "disk.img"), 4096);
    assert_int_equal(claim(path, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(name(path, "allowed-too/disk.img"), inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(inner, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(claim(name(path, "allowed/../disk.img"), inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(symlink("../disk.img", name(link_path, "allowed/out")), 0);
    assert_int_equal(claim(link_path, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(symlink("/proc/self/fd/0", name(link_path, "allowed/magic")), 0);
    assert_int_equal(claim(link_path, inner, true), DRIVE_CLAIM_OUTSIDE);
    assert_int_equal(fixture->opened, -1);
    make_file(name(path, "allowed/disk.img"), 4096);
    assert_int_equal(symlink("disk.img", name(link_path, "allowed/in")), 0);
    assert_int_equal(claim(link_path, inner, true), DRIVE_CLAIM_OPEN);
}

/* As LVM's /dev/VG/LV, which may lead to another node of devtmpfs, also by an absolute link where
 * LVM does without udev; and no other. */
static void a_link_of_devtmpfs_stays_below_dev(void **state)
{
    static const char *const links[][2] = {
        {"dev/vg/one", "../dm-0"},
        {"dev/vg/absolute", "/dev/mapper/vg-one"},
        {"dev/mapper/vg-one", "../dm-0"},
        {"dev/vg/relative-out", "../../outside"},
        {"images/one", "../dev/dm-0"},
        {"dev/vg/out", "/outside"},
        {"dev/vg/unclean", "/dev/mapper/../../outside"},
        {"dev/vg/twice", "/dev/mapper/out"},
        {"dev/mapper/out", "/outside"},
        {"dev/vg/none-there", "/dev/mapper/none"},
        {"dev/vg/removed", "/dev/removed/one"},
    };
    static const struct {
        const char *path, *prefix;
        enum drive_claim_outcome outcome;
        const char *text;
    } claims[] = {
        {"/dev/vg/relative-out", "/dev/vg", DRIVE_CLAIM_OUTSIDE, ""},
        {"/dev/vg/../dm-0", "/dev/vg", DRIVE_CLAIM_OUTSIDE, ""},
        {"/images/one", "/images", DRIVE_CLAIM_OUTSIDE, ""},
        {"/dev/vg/none", "/dev/vg", DRIVE_CLAIM_MISSING, ""},
        {"/dev/vg/out", "/dev/vg", DRIVE_CLAIM_OUTSIDE,
         "is a link to /outside, which is not below /dev"},
        {"/dev/vg/unclean", "/dev/vg", DRIVE_CLAIM_OUTSIDE, ""},
        {"/dev/vg/twice", "/dev/vg", DRIVE_CLAIM_OUTSIDE, ""},
        {"/dev/vg/none-there", "/dev/vg", DRIVE_CLAIM_MISSING, ""},
        {"/dev/vg/removed", "/dev/vg", DRIVE_CLAIM_MISSING, ""},
    };
    char path[128];

    enter_root_with_dev();
    make_directory("images");
    make_directory("dev/mapper");
    make_own_file(name(path, "outside"), 4096);
    make_own_file(name(path, "dev/dm-0"), 4096);
    for (size_t i = 0; i < array_length(links); i++)
        assert_int_equal(symlink(links[i][1], name(path, "%s", links[i][0])), 0);
    for (size_t i = 0; i < array_length(claims); i++) {
        assert_int_equal(claim(claims[i].path, claims[i].prefix, true), claims[i].outcome);
        assert_non_null(strstr(fixture->error.text, claims[i].text));
        assert_int_equal(fixture->opened, -1);
    }
    if (geteuid() != 0)
        skip();
    assert_int_equal(claim("/dev/vg/one", "/dev/vg", true), DRIVE_CLAIM_OPEN);
    assert_int_equal(claim("/dev/vg/absolute", "/dev/vg", true), DRIVE_CLAIM_OPEN);
    for (unsigned i = 0; i < 2; i++) {
        (void)name(path, i ? "dev/mapper" : "dev/vg");
        assert_int_equal(chmod(path, 0777), 0);
        assert_int_equal(claim("/dev/vg/absolute", "/dev/vg", true), DRIVE_CLAIM_OUTSIDE);
        assert_non_null(strstr(fixture->error.text, "not only root's"));
        assert_int_equal(chmod(path, 0755), 0);
    }
}

/* Users may write to /dev/shm. */
static void a_link_on_another_mount_below_dev_leads_out(void **state)
{
    char path[SCRATCH_BYTES + 8];
    struct stat devices, shared;

    if (stat("/dev", &devices) < 0 || stat("/dev/shm", &shared) < 0 ||
        devices.st_dev == shared.st_dev)
        skip();
    assert_int_equal(scratch_directory_make_below("/dev/shm", fixture->shared), 0);
    (void)snprintf(path, sizeof(path), "%s/link", fixture->shared);
    assert_int_equal(symlink("../../null", path), 0);
    assert_int_equal(claim(path, fixture->shared, true), DRIVE_CLAIM_OUTSIDE);
}

static void a_block_device_is_claimed_for_nobody_else(void **state)
{
    char node[128];
    struct stat status;
    uint64_t diskseq;
    int other;

    attach_loop(node);
    assert_int_equal(claim(node, fixture->directory, true), DRIVE_CLAIM_OPEN);
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
    expect_refused(node, false, DRIVE_CLAIM_TAKEN, "open exclusively");
    assert_int_equal(fixture->disk.kind, DEVICE_KIND_BLOCK);
    assert_int_equal(makedev(fixture->disk.major, fixture->disk.minor), status.st_rdev);
    assert_int_equal(fixture->disk.diskseq, diskseq);
    fd_close(other);
}

static void a_write_protected_device_is_only_read(void **state)
{
    char node[128];
    int on = 1;

    attach_loop(node);
    assert_int_equal(ioctl(fixture->volume.loop, BLKROSET, &on), 0);
    expect_refused(node, true, DRIVE_CLAIM_READ_ONLY, "read-only");
    assert_int_equal(claim(node, fixture->directory, false), DRIVE_CLAIM_OPEN);
}

static struct loop loop;

static int outcome_of_worker;

static void on_claimed(struct drive_claim_call *call, struct drive_claim_reply *reply)
{
    outcome_of_worker = reply->outcome;
    fixture->opened = reply->fd;
    fixture->error = reply->error;
    reply->fd = -1;
    loop_stop(&loop);
}

static void claim_in_worker(const char *path, enum drive_claim_outcome outcome)
{
    const struct drive_claim_request request = {
        .root = fixture->root,
        .sysfs = fixture->sysfs,
        .host_path = path,
        .prefixes = {fixture->directory},
        .prefix_count = 1,
        .writable = true,
        .is_new = true,
        .keep = true,
    };
    struct drive_claim_call call = {0};

    assert_int_equal(drive_claim_start(&call, &request, path, 60 * NSEC_PER_SEC, on_claimed), 0);
    loop_run(&loop);
    assert_int_equal(outcome_of_worker, outcome);
}

/* Which is confined. It keeps no copy of the descriptor. */
static void a_worker_can_claim_a_disk(void **state)
{
    char node[128];
    int fd;

    assert_int_equal(workers_fork_nursery(), 0);
    assert_int_equal(loop_init(&loop), 0);
    workers_start(&loop, NULL, NULL);
    attach_loop(node);
    for (unsigned i = 0; i < 2; i++) {
        claim_in_worker(node, DRIVE_CLAIM_OPEN);
        assert_int_equal(fcntl(fixture->opened, F_GETFL) & O_ACCMODE, O_RDWR);
        fd = take_fd(&fixture->opened);
        claim_in_worker(node, DRIVE_CLAIM_TAKEN);
        assert_non_null(strstr(fixture->error.text, "open exclusively"));
        fd_close(fd);
    }
    workers_stop();
    loop_done(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(a_file_of_roots_is_opened),
        CLAIM(a_file_that_is_not_roots_alone_is_refused),
        CLAIM(a_path_that_is_not_a_disk_is_refused),
        CLAIM(nothing_outside_of_the_prefixes_is_opened),
        CLAIM(a_link_of_devtmpfs_stays_below_dev),
        CLAIM(a_link_on_another_mount_below_dev_leads_out),
        CLAIM(a_block_device_is_claimed_for_nobody_else),
        CLAIM(a_write_protected_device_is_only_read),
        CLAIM(a_worker_can_claim_a_disk),
    };

    return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
