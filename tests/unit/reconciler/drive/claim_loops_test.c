/* SPDX-License-Identifier: Apache-2.0 */
/* claim_loops_test.c - a disk that loop devices stand on, and one that is a loop device itself. */
#include "tests/unit/reconciler/drive/claim_scenery.h"

#include <errno.h>

#include <sys/fsuid.h>

static void attach_other(struct claim_fixture *fixture, const char *image)
{
    (void)snprintf(fixture->other.image, sizeof(fixture->other.image), "%s", image);
    loop_volume_attach(&fixture->other);
    assert_true(fixture->other.loop >= 0);
}

/* The other loop device is one, but not for a disk that a VM has already. */
static void expect_obstacle(struct claim_fixture *fixture, const char *node)
{
    expect_refused(fixture, node, true, DRIVE_CLAIM_IN_USE, fixture->other.device);
    fixture->is_known = true;
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    fixture->is_known = false;
}

static void a_loop_devices_file_is_in_use(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128], image[128];

    attach_loop(fixture, node);
    expect_refused(fixture, name(fixture, image, "disk.img"), false, DRIVE_CLAIM_IN_USE,
                   fixture->volume.device);
    detach_loop(&fixture->volume);
    assert_int_equal(claim(fixture, image, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

/* A loop device takes no claim of a block device that it stands on. */
static void a_block_device_under_a_loop_device_is_in_use(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];

    attach_loop(fixture, node);
    attach_other(fixture, fixture->volume.device);
    expect_refused(fixture, node, true, DRIVE_CLAIM_IN_USE, fixture->other.device);
    assert_int_equal(fixture->disk.kind, DEVICE_KIND_BLOCK);
    detach_loop(&fixture->other);
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

static int read_no_mounts(int sysfs, struct observed_mounts **ret_mounts)
{
    (void)sysfs;
    (void)ret_mounts;
    return -EACCES;
}

static void a_loop_device_says_on_which_block_device_it_stands(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];
    struct stat status, below;

    attach_loop(fixture, node);
    assert_int_equal(fstat(fixture->volume.loop, &below), 0);
    attach_other(fixture, fixture->volume.device);
    assert_int_equal(fstat(fixture->other.loop, &status), 0);
    assert_int_equal(mknod(name(fixture, node, "above"), S_IFBLK | 0600, status.st_rdev), 0);
    fixture->read_mounts = read_no_mounts;
    expect_refused(fixture, node, true, DRIVE_CLAIM_IN_USE, "(cannot tell)");
    fixture->read_mounts = observe_mounts;
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fixture->backings.backing[0].kind, DEVICE_KIND_BLOCK);
    assert_int_equal(
        makedev(fixture->backings.backing[0].major, fixture->backings.backing[0].minor),
        below.st_rdev);
}

/* As attach_loop(), with more loop devices on it; the node is the uppermost one's. */
static void attach_chain(struct claim_fixture *fixture, unsigned count, char ret_node[static 128])
{
    const char *lower = fixture->volume.device;
    struct stat status;

    attach_loop(fixture, ret_node);
    while (fixture->above_count < count) {
        struct loop_volume *volume = &fixture->above[fixture->above_count];

        (void)snprintf(volume->image, sizeof(volume->image), "%s", lower);
        volume->loop = -1;
        loop_volume_attach(volume);
        assert_true(volume->loop >= 0);
        fixture->above_count++;
        lower = volume->device;
    }
    assert_int_equal(stat(lower, &status), 0);
    assert_int_equal(mknod(name(fixture, ret_node, "top"), S_IFBLK | 0600, status.st_rdev), 0);
}

static void expect_backing(const struct claim_fixture *fixture, unsigned level, int loop)
{
    const struct store_drive_mount_disk *backing = &fixture->backings.backing[level];
    struct stat status;

    assert_int_equal(fstat(loop, &status), 0);
    assert_int_equal(backing->kind, DEVICE_KIND_BLOCK);
    assert_int_equal(makedev(backing->major, backing->minor), status.st_rdev);
}

static void a_chain_of_loop_devices_is_looked_through(void **state)
{
    struct claim_fixture *fixture = *state;
    struct stat status;
    char node[128];

    attach_chain(fixture, 2, node);
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fixture->backings.count, 3);
    expect_backing(fixture, 0, fixture->above[0].loop);
    expect_backing(fixture, 1, fixture->volume.loop);
    assert_int_equal(stat(fixture->volume.image, &status), 0);
    assert_int_equal(fixture->backings.backing[2].kind, DEVICE_KIND_FILE);
    assert_int_equal(fixture->backings.backing[2].inode, status.st_ino);
}

/* At each level but the uppermost. Whoever has the disk already keeps it. */
static void another_loop_device_in_the_chain_is_a_user(void **state)
{
    struct claim_fixture *fixture = *state;
    const char *below[3];
    char node[128];

    attach_chain(fixture, 2, node);
    below[0] = fixture->above[0].device;
    below[1] = fixture->volume.device;
    below[2] = fixture->volume.image;
    for (size_t i = 0; i < array_length(below); i++) {
        attach_other(fixture, below[i]);
        expect_obstacle(fixture, node);
        detach_loop(&fixture->other);
    }
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

static void a_chain_of_many_loop_devices_is_looked_through(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];

    attach_chain(fixture, DRIVE_BACKINGS - 1, node);
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fixture->backings.count, DRIVE_BACKINGS);
    assert_int_equal(fixture->backings.backing[DRIVE_BACKINGS - 1].kind, DEVICE_KIND_FILE);
}

/* Whoever has the disk already keeps it. */
static void a_chain_of_too_many_loop_devices_is_refused(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];

    attach_chain(fixture, DRIVE_BACKINGS, node);
    expect_refused(fixture, node, true, DRIVE_CLAIM_UNSUITABLE, "more than 8 loop devices");
    fixture->is_known = true;
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fixture->backings.count, DRIVE_BACKINGS);
}

/* In a sysfs of the test's own. */
static void a_partition_on_a_loop_device_is_not_looked_through(void **state)
{
    struct claim_fixture *fixture = *state;
    struct stat status;
    char node[128], path[128];

    attach_chain(fixture, 1, node);
    assert_int_equal(fstat(fixture->volume.loop, &status), 0);
    make_directory(fixture, "block");
    make_directory(fixture, "dev");
    make_directory(fixture, "dev/block");
    (void)name(fixture, path, "dev/block/%u:%u", major(status.st_rdev), minor(status.st_rdev));
    assert_int_equal(mkdir(path, 0755), 0);
    fd_close(fixture->sysfs);
    fixture->sysfs = open(fixture->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(claim(fixture, node, fixture->directory, true) < 0);
    assert_true(run_command("echo 1 >'%s/partition'", path));
    assert_int_equal(claim(fixture, node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fixture->backings.count, 1);
}

static void a_chain_whose_middle_cannot_be_asked_is_refused(void **state)
{
    struct claim_fixture *fixture = *state;
    struct stat status;
    char node[128];

    attach_chain(fixture, 1, node);
    assert_int_equal(stat(node, &status), 0);
    enter_root_with_dev(fixture);
    assert_int_equal(mknod(name(fixture, node, "dev/top"), S_IFBLK | 0600, status.st_rdev), 0);
    assert_true(claim(fixture, "/dev/top", "/dev", true) < 0);
    assert_non_null(strstr(fixture->error.text, fixture->volume.device));
    assert_int_equal(fixture->opened, -1);
    assert_int_equal(fstat(fixture->volume.loop, &status), 0);
    (void)name(fixture, node, "%s", fixture->volume.device + 1);
    assert_int_equal(mknod(node, S_IFBLK | 0600, status.st_rdev), 0);
    assert_int_equal(claim(fixture, "/dev/top", "/dev", true), DRIVE_CLAIM_OPEN);
}

/* Whoever has the disk already keeps it. */
static void a_loop_device_shares_its_file_with_no_other(void **state)
{
    struct claim_fixture *fixture = *state;
    char node[128];

    attach_loop(fixture, node);
    attach_other(fixture, fixture->volume.image);
    expect_obstacle(fixture, node);
    detach_loop(&fixture->other);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(a_loop_devices_file_is_in_use),
        CLAIM(a_block_device_under_a_loop_device_is_in_use),
        CLAIM(a_loop_device_says_on_which_block_device_it_stands),
        CLAIM(a_chain_of_loop_devices_is_looked_through),
        CLAIM(another_loop_device_in_the_chain_is_a_user),
        CLAIM(a_chain_of_many_loop_devices_is_looked_through),
        CLAIM(a_chain_of_too_many_loop_devices_is_refused),
        CLAIM(a_partition_on_a_loop_device_is_not_looked_through),
        CLAIM(a_chain_whose_middle_cannot_be_asked_is_refused),
        CLAIM(a_loop_device_shares_its_file_with_no_other),
        CLAIM(a_file_is_refused_where_loop_devices_may_not_be_asked),
    };

    return cmocka_run_group_tests_name("claim_loops", tests, NULL, NULL);
}
