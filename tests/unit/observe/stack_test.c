/* SPDX-License-Identifier: Apache-2.0 */
/* stack_test.c - what devices stand on, in a fixture of sysfs. */
#include "tests/unit/observe/sysfs_fixture.h"

static struct observed_layer layer[OBSERVE_LAYERS];

static void put(const char *name, const char *attribute, const char *text)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/%s", name, attribute);
    write_file(path, text);
}

/* A disk 8:MINOR. */
static void make_plain(const char *name, unsigned minor)
{
    char number[16], uevent[64];

    (void)snprintf(number, sizeof(number), "8:%u", minor);
    (void)snprintf(uevent, sizeof(uevent), "DEVNAME=%s\nDEVTYPE=disk\n", name);
    make_disk(name, number, "2048\n", "1\n", uevent);
}

static void make_dm(const char *name, unsigned minor, const char *label, const char *uuid)
{
    char path[256];

    make_plain(name, minor);
    (void)snprintf(path, sizeof(path), "/sys/devices/block/%s/dm", name);
    make_directory(path);
    put(name, "dm/name", label);
    put(name, "dm/uuid", uuid);
}

static void stand(const char *name, const char *slave)
{
    char path[256], target[256];

    (void)snprintf(path, sizeof(path), "/sys/devices/block/%s/slaves", name);
    make_directory(path);
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/slaves/%s", name, slave);
    (void)snprintf(target, sizeof(target), "../../%s", slave);
    assert_int_equal(symlinkat(target, root, path), 0);
}

static unsigned look(unsigned minor)
{
    struct observed_device device;

    assert_int_equal(observe_device_number(sysfs, 8, minor, &device), OBSERVED);
    return observe_stack(sysfs, &device, layer);
}

static void a_partition_stands_on_its_disk(void **state)
{
    make_plain("sda", 0);
    make_plain("sda/sda1", 1);
    put("sda/sda1", "partition", "1\n");
    assert_int_equal(look(1), 2);
    assert_int_equal(layer[0].kind, LAYER_PARTITION);
    assert_int_equal(layer[1].kind, LAYER_DISK);
    assert_int_equal(layer[1].device.minor, 0);
}

static void a_stack_is_seen_to_its_bottom(void **state)
{
    make_plain("sda", 0);
    make_plain("sdb", 1);
    make_dm("dm-0", 10, "mpatha\n", "mpath-3600140\n");
    make_dm("dm-1", 11, "luks-data\n", "CRYPT-LUKS2-0123-luks-data\n");
    make_dm("dm-2", 12, "vg-lv\n", "LVM-abcdef\n");
    stand("dm-2", "dm-1");
    stand("dm-1", "dm-0");
    stand("dm-0", "sda");
    stand("dm-0", "sdb");
    assert_int_equal(look(12), 5);
    assert_int_equal(layer[0].kind, LAYER_LVM);
    assert_int_equal(layer[1].kind, LAYER_CRYPT);
    assert_string_equal(layer[1].label, "luks-data");
    assert_int_equal(layer[2].kind, LAYER_MULTIPATH);
    assert_int_equal(layer[2].above, 1);
    assert_int_equal(layer[3].kind, LAYER_DISK);
    assert_int_equal(layer[3].above, 2);
    assert_int_equal(layer[4].above, 2);
}

static void dm_uuid_determines_the_layer_kind(void **state)
{
    static const struct {
        const char *uuid;
        enum observed_layer_kind kind;
    } cases[] = {
        {"CRYPT-PLAIN-x\n", LAYER_CRYPT},
        {"LVM-x\n", LAYER_LVM},
        {"part2-mpath-x\n", LAYER_PARTITION},
        {"partner\n", LAYER_DM},
        {"", LAYER_DM},
        {"mpath-\n", LAYER_MULTIPATH},
    };

    make_plain("sda", 0);
    make_dm("dm-0", 10, "it\n", "");
    stand("dm-0", "sda");
    for (unsigned i = 0; i < array_length(cases); i++) {
        put("dm-0", "dm/uuid", cases[i].uuid);
        assert_int_equal(look(10), 2);
        assert_int_equal(layer[0].kind, cases[i].kind);
    }
    make_plain("md0", 20);
    stand("md0", "sda");
    assert_int_equal(look(20), 2);
    assert_int_equal(layer[0].kind, LAYER_OTHER);
}

/* A thin volume has its own size, whatever the pool has. */
static void a_pool_is_not_stood_on(void **state)
{
    make_plain("sda", 0);
    make_dm("dm-0", 10, "vg-pool-tpool\n", "LVM-abcdef-tpool\n");
    make_dm("dm-1", 11, "vg-thin\n", "LVM-abcxyz\n");
    stand("dm-0", "sda");
    stand("dm-1", "dm-0");
    assert_int_equal(look(11), 1);
}

static void pass_over(void *userdata, uint32_t major, uint32_t minor)
{
}

static void a_stack_too_deep_or_too_wide_is_cut(void **state)
{
    char name[16], above[16];

    make_dm("dm-0", 0, "wide\n", "");
    for (unsigned i = 1; i < 2 * OBSERVE_LAYERS; i++) {
        (void)snprintf(name, sizeof(name), "sd%u", i);
        make_plain(name, i);
        stand("dm-0", name);
    }
    assert_int_equal(look(0), OBSERVE_LAYERS);
    assert_false(observe_each_lower_device(sysfs, 8, 0, pass_over, NULL));
    for (unsigned i = 1; i < 2 * OBSERVE_LAYERS - 1; i++) {
        (void)snprintf(above, sizeof(above), "sd%u", i);
        (void)snprintf(name, sizeof(name), "sd%u", i + 1);
        stand(above, name);
    }
    assert_int_equal(look(1), OBSERVE_LAYERS);
    stand("sd63", "sd62"); /* a ring, which no kernel makes */
    assert_true(look(62) <= OBSERVE_LAYERS);
}

static void note_number(void *userdata, uint32_t major, uint32_t minor)
{
    assert_int_equal(major, 8);
    *(unsigned *)userdata = *(unsigned *)userdata * 100 + minor;
}

static void the_disk_of_a_scsi_device(void **state)
{
    unsigned seen = 0;

    make_directory("/sys/devices/pci0/host0/0:0:0:0/block/sda");
    write_file("sys/devices/pci0/host0/0:0:0:0/block/sda/dev", "8:16\n");
    observe_scsi_disks(sysfs, "/devices/pci0/host0/0:0:0:0", note_number, &seen);
    assert_int_equal(seen, 16);
    seen = 0;
    observe_scsi_disks(sysfs, "/devices/pci0/host0/0:0:0:1", note_number, &seen);
    observe_scsi_disks(sysfs, "/../../../../../sys", note_number, &seen);
    assert_int_equal(seen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_partition_stands_on_its_disk, start, stop),
        cmocka_unit_test_setup_teardown(a_stack_is_seen_to_its_bottom, start, stop),
        cmocka_unit_test_setup_teardown(dm_uuid_determines_the_layer_kind, start, stop),
        cmocka_unit_test_setup_teardown(a_pool_is_not_stood_on, start, stop),
        cmocka_unit_test_setup_teardown(a_stack_too_deep_or_too_wide_is_cut, start, stop),
        cmocka_unit_test_setup_teardown(the_disk_of_a_scsi_device, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
