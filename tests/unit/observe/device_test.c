/* SPDX-License-Identifier: Apache-2.0 */
/* device_test.c - devices in a fixture of sysfs, and what stands on them. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/unit/observe/sysfs_fixture.h"
#include "tests/unit/own_processes.h"

static void reads_a_partition(void **state)
{
    struct observed_device device;

    make_disk("loop3/loop3p1", "259:1", "1024\n", NULL,
              "DEVNAME=loop3p1\nDEVTYPE=partition\nPARTN=1\n");
    assert_int_equal(observe_device_number(sysfs, 259, 1, &device), OBSERVED);
    assert_int_equal(device.size_bytes, 1024 * 512);
    assert_int_equal(device.diskseq, 15); /* its disk's */
}

static void reads_an_old_kernels_disk(void **state)
{
    struct observed_device device;

    make_disk("vdb", "254:16", "8\n", NULL, "");
    assert_int_equal(observe_device_number(sysfs, 254, 16, &device), OBSERVED);
    assert_int_equal(device.diskseq, 0);
    assert_string_equal(device.name, "/dev/block/254:16");
}

static void refuses_a_malformed_size(void **state)
{
    struct observed_device device;

    write_file("sys/devices/block/loop3/size", "-1\n");
    assert_int_equal(observe_device_number(sysfs, 7, 3, &device), -EBADMSG);
    write_file("sys/devices/block/loop3/size", "18446744073709551615\n");
    assert_int_equal(observe_device_number(sysfs, 7, 3, &device), -EBADMSG);
    write_file("sys/devices/block/loop3/size", "18446744073709551616\n");
    assert_int_equal(observe_device_number(sysfs, 7, 3, &device), -EBADMSG);
}

static void knows_files_and_others(void **state)
{
    struct observed_device device;
    struct stat st;

    write_file("disk.img", "12345");
    assert_int_equal(fstatat(root, "disk.img", &st, 0), 0);
    assert_int_equal(observe_device_path(root, sysfs, "/disk.img", &device), OBSERVED);
    assert_int_equal(device.kind, DEVICE_KIND_FILE);
    assert_string_equal(device.name, "/disk.img");
    assert_int_equal(device.size_bytes, 5);
    assert_int_equal(device.inode, st.st_ino);
    assert_int_equal(device.file_device, st.st_dev);
    assert_int_equal(observe_device_path(root, sysfs, "/sys", &device), OBSERVED);
    assert_int_equal(device.kind, DEVICE_KIND_OTHER);
}

/* The device that "/" is on, as the kernel's own table has it. */
static bool find_mounted_device(unsigned *ret_major, unsigned *ret_minor)
{
    FILE *table = fopen("/proc/1/mountinfo", "re");
    char line[4096];
    bool found = false;

    while (table && !found && fgets(line, sizeof(line), table))
        found = sscanf(line, "%*d %*d %u:%u", ret_major, ret_minor) == 2 && *ret_major != 0;
    if (table)
        (void)fclose(table);
    return found;
}

static void link_holder(const char *disk, const char *holder)
{
    char path[256], target[256];

    (void)snprintf(path, sizeof(path), "/sys/devices/block/%s/holders", disk);
    make_directory(path);
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/holders/%s", disk, holder);
    (void)snprintf(target, sizeof(target), "../../%s", holder);
    assert_int_equal(symlinkat(target, root, path), 0);
}

static void finds_what_the_host_uses(void **state)
{
    struct observed_mounts *mounts;
    unsigned major, minor;
    char number[32];

    if (!find_mounted_device(&major, &minor))
        skip();
    (void)snprintf(number, sizeof(number), "%u:%u", major, minor);
    make_disk("used", number, "8\n", "1\n", "");
    make_disk("middle", "4000:2", "8\n", "1\n", "");
    make_disk("disk", "4000:1", "8\n", "1\n", "");
    make_disk("partitioned", "4000:3", "8\n", "1\n", "");
    make_disk("partitioned/partitioned1", "4000:4", "8\n", NULL, "");
    write_file("sys/devices/block/partitioned/partitioned1/partition", "1\n");
    make_disk("partitioned/partitionedx", "4000:5", "8\n", NULL, "");
    link_holder("disk", "middle");
    link_holder("middle", "used");
    assert_int_equal(observe_mounts(sysfs, &mounts), 0);
    assert_non_null(observed_mounts_find(mounts, sysfs, major, minor));
    assert_non_null(observed_mounts_find(mounts, sysfs, 4000, 2));
    assert_non_null(observed_mounts_find(mounts, sysfs, 4000, 1));
    assert_null(observed_mounts_find(mounts, sysfs, 4000, 3));
    assert_null(observed_mounts_find(mounts, sysfs, 4000, 99));
    make_directory("/sys/devices/block/partitioned/partitionedx/holders");
    assert_int_equal(
        symlinkat("../../../disk", root, "sys/devices/block/partitioned/partitionedx/holders/disk"),
        0); /* has a number, but is no partition */
    assert_null(observed_mounts_find(mounts, sysfs, 4000, 3));
    make_directory("/sys/devices/block/partitioned/partitioned1/holders");
    assert_int_equal(
        symlinkat("../../../disk", root, "sys/devices/block/partitioned/partitioned1/holders/disk"),
        0);
    assert_non_null(observed_mounts_find(mounts, sysfs, 4000, 3));
    observed_mounts_free(mounts);
}

/* A source is a device's path where the file system is one on devices; a tmpfs may be given any. */
static void a_source_of_another_file_system_is_not_a_device(void **state)
{
    struct observed_mounts *mounts;
    char device[SCRATCH_BYTES + 16], place[SCRATCH_BYTES + 16];

    if (!first_process_can_be_examined() || geteuid() != 0)
        skip();
    (void)snprintf(device, sizeof(device), "%s/device", scratch);
    (void)snprintf(place, sizeof(place), "%s/place", scratch);
    make_disk("claimed", "4003:1", "8\n", "1\n", "");
    assert_int_equal(mknod(device, S_IFBLK | 0600, makedev(4003, 1)), 0);
    assert_int_equal(mkdir(place, 0700), 0);
    assert_int_equal(mount(device, place, "tmpfs", 0, NULL), 0);
    assert_int_equal(observe_mounts(sysfs, &mounts), 0);
    assert_int_equal(umount(place), 0);
    assert_null(observed_mounts_find(mounts, sysfs, 4003, 1));
    observed_mounts_free(mounts);
}

/* A stack deeper than any real one is not said to be free. */
static void gives_up_safely(void **state)
{
    struct observed_mounts *mounts;
    char name[32], above[32], number[32];

    for (unsigned i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof(name), "layer%u", i);
        (void)snprintf(above, sizeof(above), "layer%u", i + 1);
        (void)snprintf(number, sizeof(number), "4001:%u", i);
        make_disk(name, number, "8\n", "1\n", "");
        link_holder(name, above);
    }
    assert_int_equal(observe_mounts(sysfs, &mounts), 0);
    assert_non_null(observed_mounts_find(mounts, sysfs, 4001, 0));
    assert_null(observed_mounts_find(mounts, sysfs, 4001, 9));
    observed_mounts_free(mounts);
}

/* The one that is left out may be in use. */
static void device_with_too_many_holders_is_not_reported_unused(void **state)
{
    struct observed_mounts *mounts;
    char holder[32];

    make_disk("held", "4002:1", "8\n", "1\n", "");
    assert_int_equal(observe_mounts(sysfs, &mounts), 0);
    for (unsigned i = 0; i <= 512; i++) {
        if (i == 512)
            assert_null(observed_mounts_find(mounts, sysfs, 4002, 1));
        (void)snprintf(holder, sizeof(holder), "holder%u", i);
        link_holder("held", holder);
    }
    assert_non_null(observed_mounts_find(mounts, sysfs, 4002, 1));
    observed_mounts_free(mounts);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_a_partition, start, stop),
        cmocka_unit_test_setup_teardown(reads_an_old_kernels_disk, start, stop),
        cmocka_unit_test_setup_teardown(refuses_a_malformed_size, start, stop),
        cmocka_unit_test_setup_teardown(knows_files_and_others, start, stop),
        cmocka_unit_test_setup_teardown(finds_what_the_host_uses, start, stop),
        cmocka_unit_test_setup_teardown(a_source_of_another_file_system_is_not_a_device, start,
                                        stop),
        cmocka_unit_test_setup_teardown(gives_up_safely, start, stop),
        cmocka_unit_test_setup_teardown(device_with_too_many_holders_is_not_reported_unused, start,
                                        stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return own_processes_run(all_tests);
}
