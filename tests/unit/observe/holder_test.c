/* SPDX-License-Identifier: Apache-2.0 */
/* holder_test.c - who holds a device, in a fixture of sysfs. */
#include "tests/unit/observe/sysfs_fixture.h"

static char holder[192];

static int find(void)
{
    return observe_holder(sysfs, 7, 3, holder, sizeof(holder));
}

/* `who` stands upon `what`, a name below devices/block. */
static void hold(const char *what, const char *who)
{
    char path[256], target[256];

    (void)snprintf(path, sizeof(path), "/sys/devices/block/%s/holders", what);
    make_directory(path);
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/holders/%s", what, who);
    (void)snprintf(target, sizeof(target), "%s../../%s", strchr(what, '/') ? "../" : "", who);
    assert_int_equal(symlinkat(target, root, path), 0);
}

static void make_dm(const char *name, const char *label)
{
    char path[256];

    make_disk(name, strcmp(name, "dm-0") == 0 ? "253:0" : "253:1", "2048\n", "1\n",
              "DEVTYPE=disk\n");
    (void)snprintf(path, sizeof(path), "/sys/devices/block/%s/dm", name);
    make_directory(path);
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/dm/name", name);
    write_file(path, label);
}

static void device_mapper_by_its_name(void **state)
{
    make_dm("dm-0", "vg-data\n");
    hold("loop3", "dm-0");
    assert_int_equal(find(), OBSERVED);
    assert_string_equal(holder, "dm-0 (vg-data)");
}

static void others_by_their_device(void **state)
{
    make_disk("md0", "9:0", "2048\n", "1\n", "DEVTYPE=disk\n");
    hold("loop3", "md0");
    assert_int_equal(find(), OBSERVED);
    assert_string_equal(holder, "md0");
}

static void a_partition_holds_its_disk(void **state)
{
    make_dm("dm-0", "luks-1\n");
    make_directory("/sys/devices/block/loop3/loop3p1");
    write_file("sys/devices/block/loop3/loop3p1/partition", "1\n");
    write_file("sys/devices/block/loop3/loop3p1/dev", "259:0\n");
    assert_int_equal(find(), OBSERVED_ABSENT);
    hold("loop3/loop3p1", "dm-0");
    assert_int_equal(find(), OBSERVED);
    assert_string_equal(holder, "dm-0 (luks-1)");
}

/* A volume that is a mapped device itself stands on others, and nothing stands on it. */
static void lower_devices_do_not_count(void **state)
{
    make_dm("dm-0", "vg-data\n");
    hold("loop3", "dm-0");
    assert_int_equal(observe_holder(sysfs, 253, 0, holder, sizeof(holder)), OBSERVED_ABSENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(device_mapper_by_its_name, start, stop),
        cmocka_unit_test_setup_teardown(others_by_their_device, start, stop),
        cmocka_unit_test_setup_teardown(a_partition_holds_its_disk, start, stop),
        cmocka_unit_test_setup_teardown(lower_devices_do_not_count, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
