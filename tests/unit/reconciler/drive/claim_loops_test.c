/* SPDX-License-Identifier: Apache-2.0 */
/* claim_loops_test.c - a disk that loop devices stand on, and one that is a loop device itself. */
#include "tests/unit/reconciler/drive/claim_scenery.h"

#include <errno.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>

static dev_t backing; /* what each loop device says that it stands on; 0: the truth */

/* A machine of tests may have no block devices but loop devices. */
int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    void *argument;
    int r;

    va_start(arguments, request);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    r = (int)syscall(SYS_ioctl, fd, request, argument);
    if (r == 0 && request == LOOP_GET_STATUS64 && backing)
        ((struct loop_info64 *)argument)->lo_rdevice = backing;
    return r;
}

static void attach_other(const char *image)
{
    assert_true(snprintf(fixture->other.image, sizeof(fixture->other.image), "%s", image) <
                (int)sizeof(fixture->other.image));
    loop_volume_attach(&fixture->other);
    assert_true(fixture->other.loop >= 0);
}

static void a_loop_devices_file_is_in_use(void **state)
{
    char node[128], image[128];

    attach_loop(node);
    expect_refused(name(image, "disk.img"), false, DRIVE_CLAIM_IN_USE, fixture->volume.device);
    detach_loop(&fixture->volume);
    assert_int_equal(claim(image, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

static int read_no_mounts(int sysfs, struct observed_mounts **ret_mounts)
{
    return -EACCES;
}

/* A sysfs of the test's own. */
static void enter_sysfs(void)
{
    assert_true(
        run_command("mkdir -p '%s/block' '%s/dev/block'", fixture->directory, fixture->directory));
    fd_close(fixture->sysfs);
    fixture->sysfs = open(fixture->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void add_block(dev_t device, const char *block)
{
    char directory[32];

    (void)snprintf(directory, sizeof(directory), "dev/block/%u:%u", major(device), minor(device));
    make_directory(directory);
    assert_true(run_command("cd '%s/%s' && echo 2048 >size && echo DEVNAME=%s >uevent",
                            fixture->directory, directory, block));
}

/* relation: "slaves" or "holders". */
static void add_neighbour(dev_t device, const char *relation, dev_t neighbour)
{
    assert_true(run_command("cd '%s/dev/block/%u:%u' && rm -rf %s && mkdir -p %s/neighbour && "
                            "echo %u:%u >%s/neighbour/dev",
                            fixture->directory, major(device), minor(device), relation, relation,
                            major(neighbour), minor(neighbour), relation));
}

static dev_t number_of(const struct loop_volume *volume)
{
    struct stat status;

    assert_int_equal(fstat(volume->loop, &status), 0);
    return status.st_rdev;
}

static void a_loop_device_says_on_which_block_device_it_stands(void **state)
{
    char node[128];

    attach_loop(node);
    enter_sysfs();
    backing = makedev(8, 16);
    assert_true(claim(node, fixture->directory, true) < 0);
    assert_non_null(strstr(fixture->error.text, "cannot tell what block device 8:16"));
    add_block(backing, "sdb");
    assert_int_equal(claim(node, fixture->directory, true), DRIVE_CLAIM_OPEN);
    assert_int_equal(fixture->backing.kind, DEVICE_KIND_BLOCK);
    assert_int_equal(makedev(fixture->backing.major, fixture->backing.minor), backing);
}

/* The device above it is a loop device only here, because that is what can be mounted. */
static void the_host_mounts_what_a_loop_device_stands_on(void **state)
{
    char node[128], image[128];
    int r;

    attach_loop(node);
    make_file(name(image, "other.img"), 4 << 20);
    make_directory("mounted");
    assert_true(run_command("mkfs.ext4 -q '%s'", image));
    attach_other(image);
    enter_sysfs();
    backing = makedev(8, 16);
    add_block(backing, "sdb");
    add_neighbour(backing, "holders", number_of(&fixture->other));
    expect_refused(node, true, DRIVE_CLAIM_IN_USE,
                   "stands on /dev/sdb, which the host uses: neighbour");
    fixture->read_mounts = read_no_mounts;
    expect_refused(node, true, DRIVE_CLAIM_IN_USE,
                   "stands on /dev/sdb, which the host uses: (cannot tell)");
    fixture->read_mounts = observe_mounts;
    if (!run_command("mount '%s' '%s/mounted'", fixture->other.device, fixture->directory))
        skip();
    r = claim(node, fixture->directory, true);
    assert_true(run_command("umount '%s/mounted'", fixture->directory));
    assert_int_equal(r, DRIVE_CLAIM_IN_USE);
    assert_non_null(strstr(fixture->error.text, "stands on /dev/sdb, which the host uses: "));
    assert_non_null(strstr(fixture->error.text, "/mounted"));
    fixture->is_known = true;
    assert_int_equal(claim(node, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

static void a_loop_device_shares_its_block_device_with_no_other(void **state)
{
    char node[128], image[128];

    attach_loop(node);
    make_file(name(image, "other.img"), 1 << 20);
    attach_other(image);
    enter_sysfs();
    backing = makedev(8, 16);
    add_block(backing, "sdb");
    assert_true(run_command("mkdir -p '%1$s/block/%2$s/loop' && "
                            "echo /dev/sdb >'%1$s/block/%2$s/loop/backing_file'",
                            fixture->directory, fixture->other.device + strlen("/dev/")));
    expect_refused(node, true, DRIVE_CLAIM_IN_USE, fixture->other.device);
    fixture->is_known = true; /* whoever has the disk already keeps it */
    assert_int_equal(claim(node, fixture->directory, true), DRIVE_CLAIM_OPEN);
}

/* As through LVM or dm-crypt, or a partition. */
static void a_loop_device_on_a_loop_device_is_refused_through_another_device(void **state)
{
    char node[128];

    attach_loop(node);
    enter_sysfs();
    backing = makedev(253, 9);
    add_block(backing, "dm-9");
    add_block(makedev(7, 4001), "loop4001");
    add_neighbour(backing, "slaves", makedev(7, 4001));
    expect_refused(node, true, DRIVE_CLAIM_UNSUITABLE, "attach the device itself");
}

/* Nothing has the number of the disk, so that one that is accepted cannot be opened. */
static void what_stands_on_a_loop_device_on_a_loop_device_is_refused(void **state)
{
    const dev_t disk = makedev(259, 1048575);
    char node[128];

    attach_loop(node);
    attach_other(fixture->volume.device);
    enter_sysfs();
    assert_int_equal(mknod(name(node, "above"), S_IFBLK | 0600, disk), 0);
    add_block(disk, "dm-9");
    add_block(number_of(&fixture->volume), fixture->volume.device + strlen("/dev/"));
    add_block(number_of(&fixture->other), fixture->other.device + strlen("/dev/"));
    add_neighbour(disk, "slaves", number_of(&fixture->volume));
    expect_refused(node, true, DRIVE_CLAIM_MISSING, "without a device");
    add_neighbour(disk, "slaves", number_of(&fixture->other));
    expect_refused(node, true, DRIVE_CLAIM_UNSUITABLE, "attach the device itself");
    fixture->is_known = true;
    expect_refused(node, true, DRIVE_CLAIM_MISSING, "without a device");
}

static void a_lower_loop_device_that_cannot_be_asked_is_a_refusal(void **state)
{
    const dev_t disk = makedev(259, 1048575);
    char node[128];

    if (geteuid() != 0)
        skip();
    enter_root_with_dev();
    enter_sysfs();
    assert_int_equal(mknod(name(node, "dev/above"), S_IFBLK | 0600, disk), 0);
    add_block(disk, "dm-9");
    add_block(makedev(7, 4001), "loop4001");
    add_neighbour(disk, "slaves", makedev(7, 4001));
    assert_true(claim("/dev/above", "/dev", true) < 0);
    assert_non_null(strstr(fixture->error.text, "cannot ask /dev/loop4001"));
    assert_int_equal(fixture->opened, -1);
}

/* Without the right to open block devices a file's loop devices cannot be asked. */
static void a_file_is_refused_where_loop_devices_may_not_be_asked(void **state)
{
    char node[128], image[128];
    int r;

    attach_loop(node);
    assert_int_equal(chmod(fixture->directory, 0755), 0);
    assert_int_equal(setfsuid(12345), 0);
    r = claim(name(image, "disk.img"), fixture->directory, false);
    (void)setfsuid(0);
    assert_int_equal(r, DRIVE_CLAIM_FORBIDDEN);
    assert_non_null(strstr(fixture->error.text, "may not ask /dev/loop"));
}

static int tell_the_truth(void **state)
{
    backing = 0;
    return tear_down(state);
}

#define LOOPS(test) cmocka_unit_test_setup_teardown(test, set_up, tell_the_truth)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOPS(a_loop_devices_file_is_in_use),
        LOOPS(a_loop_device_says_on_which_block_device_it_stands),
        LOOPS(the_host_mounts_what_a_loop_device_stands_on),
        LOOPS(a_loop_device_shares_its_block_device_with_no_other),
        LOOPS(a_loop_device_on_a_loop_device_is_refused_through_another_device),
        LOOPS(what_stands_on_a_loop_device_on_a_loop_device_is_refused),
        LOOPS(a_lower_loop_device_that_cannot_be_asked_is_a_refusal),
        LOOPS(a_file_is_refused_where_loop_devices_may_not_be_asked),
    };

    return cmocka_run_group_tests_name("claim_loops", tests, NULL, NULL);
}
