/* SPDX-License-Identifier: Apache-2.0 */
/* drive_list_test.c - drives' disks in a made-up sysfs, and where they are mounted. */
#include "tests/unit/tree.h"

#include <sys/sysmacros.h>

#include "guest-agent/guest_drive.h"

#define SERIAL_A "crust-abcdefghijklmn"
#define SERIAL_B "crust-bbbbbbbbbbbbbb"

static void write_attribute(const char *disk, const char *name, const void *bytes, size_t length)
{
    char path[256];
    cleanup(fd_closep) int fd = -1;

    (void)snprintf(path, sizeof(path), "/block/%s/device", disk);
    tree_make(path);
    (void)snprintf(path, sizeof(path), "/block/%s/%s", disk, name);
    fd = open(tree_path(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), length);
}

static void write_text(const char *disk, const char *name, const char *text)
{
    write_attribute(disk, name, text, strlen(text));
}

/* serial: of virtio-blk; NULL: none. */
static void make_disk(const char *disk, const char *device, const char *sectors, const char *ro,
                      const char *serial)
{
    write_text(disk, "dev", device);
    write_text(disk, "size", sectors);
    write_text(disk, "ro", ro);
    if (serial)
        write_text(disk, "serial", serial);
}

/* VPD page 0x80; `length` is what its header says. */
static void write_page(const char *disk, const char *text, size_t length)
{
    char page[128] = {0, (char)0x80, (char)(length >> 8), (char)length};

    memcpy(page + 4, text, strlen(text));
    write_attribute(disk, "device/vpd_pg80", page, 4 + strlen(text));
}

static void read_disks(struct drive_disks *disks)
{
    assert_int_equal(drive_disks_read(scratch, disks), 0);
}

static void both_kinds_of_disks_are_found_by_serial(void **state)
{
    struct drive_disk disk;
    struct drive_disks disks;

    make_disk("vda", "253:0\n", "2048\n", "0\n", SERIAL_A); /* virtio-blk writes no newline */
    make_disk("sdb", "8:16\n", "4096\n", "1\n", NULL);
    write_page("sdb", SERIAL_B "  ", strlen(SERIAL_B) + 2);
    read_disks(&disks);
    assert_int_equal(disks.count, 2);
    assert_int_equal(drive_disks_find(&disks, SERIAL_A, &disk, NULL), STATUS_OK);
    assert_string_equal(disk.name, "vda");
    assert_int_equal(disk.device, makedev(253, 0));
    assert_int_equal(disk.bytes, 2048 * 512);
    assert_false(disk.read_only);
    assert_int_equal(drive_disks_find(&disks, SERIAL_B, &disk, NULL), STATUS_OK);
    assert_string_equal(disk.name, "sdb");
    assert_int_equal(disk.device, makedev(8, 16));
    assert_true(disk.read_only);
    assert_int_equal(drive_disks_find(&disks, "crust-cccccccccccccc", &disk, NULL),
                     STATUS_UNAVAILABLE);
    drive_disks_done(&disks);
}

static void other_disks_are_not_drives(void **state)
{
    static const char *const serials[] = {
        "",
        "crust-",
        "QEMU",
        "crust-ABCDEFGHIJKLMN",
        SERIAL_A "a",
        SERIAL_A " b",
        "Crust-abcdefghijklmn",
        "0123456789012345678901234567890123456789012345678901234567890123456789",
    };
    struct drive_disks disks;
    char name[16];

    for (size_t i = 0; i < array_length(serials); i++) {
        (void)snprintf(name, sizeof(name), "vd%zu", i);
        make_disk(name, "253:0\n", "2048\n", "0\n", serials[i]);
        (void)snprintf(name, sizeof(name), "sd%zu", i);
        make_disk(name, "8:0\n", "2048\n", "0\n", NULL);
        write_page(name, serials[i], strlen(serials[i]));
    }
    make_disk("sdx", "8:0\n", "2048\n", "0\n",
              NULL); /* its page says that it is longer than it is */
    write_page("sdx", SERIAL_A, strlen(SERIAL_A) + 1);
    make_disk("sdy", "8:0\n", "2048\n", "0\n", NULL); /* another page */
    write_attribute("sdy", "device/vpd_pg80", "\0\x83\0\x14" SERIAL_A, 24);
    make_disk("sdz", "8:0\n", "2048\n", "0\n", NULL); /* a header alone */
    write_attribute("sdz", "device/vpd_pg80", "\0\x80\0", 3);
    read_disks(&disks);
    assert_int_equal(disks.count, 0);
    assert_false(disks.incomplete);
    drive_disks_done(&disks);
}

static void a_drive_without_numbers_cannot_be_read(void **state)
{
    struct drive_disk disk;
    struct drive_disks disks;

    make_disk("vda", "253:0\n", "-1\n", "0\n", SERIAL_A);
    make_disk("vdb", "253:16\n", "99999999999999999999\n", "0\n", SERIAL_A);
    make_disk("vdc", "253\n", "2048\n", "0\n", SERIAL_A);
    make_disk("vdd", "253:48\n", "36028797018963968\n", "0\n", SERIAL_A); /* 2^64 bytes */
    write_text("vde", "serial", SERIAL_A);
    read_disks(&disks);
    assert_int_equal(disks.count, 0);
    assert_int_equal(drive_disks_find(&disks, SERIAL_A, &disk, NULL), STATUS_INTERNAL);
    drive_disks_done(&disks);
}

/* As of a disk whose host answers with an error. A directory cannot be read either. */
static void make_unreadable(const char *disk, const char *attribute)
{
    char path[256];

    make_disk(disk, "253:0\n", "2048\n", "0\n", NULL);
    (void)snprintf(path, sizeof(path), "/block/%s/%s", disk, attribute);
    tree_make(path);
}

static void a_disk_without_a_readable_serial_may_be_any(void **state)
{
    static const char *const attributes[] = {"serial", "device/vpd_pg80"};
    struct drive_guest_list list;
    struct drive_disk disk;
    struct drive_disks disks;
    char nothing[] = "";

    make_disk("sdb", "8:16\n", "4096\n", "1\n", NULL);
    write_page("sdb", SERIAL_B, strlen(SERIAL_B));
    for (size_t i = 0; i < array_length(attributes); i++) {
        make_unreadable("vda", attributes[i]);
        read_disks(&disks);
        assert_string_equal(disks.unreadable, "vda");
        assert_int_equal(drive_disks_find(&disks, SERIAL_A, &disk, NULL), STATUS_INTERNAL);
        assert_int_equal(drive_disks_find(&disks, SERIAL_B, &disk, NULL), STATUS_OK);
        assert_int_equal(drive_list_make(&disks, nothing, &list), 0);
        assert_true(list.incomplete);
        free(list.entries);
        drive_disks_done(&disks);
        assert_int_equal(rmdir(tree_path(i ? "/block/vda/device/vpd_pg80" : "/block/vda/serial")),
                         0);
    }
    read_disks(&disks); /* a disk of somebody else */
    assert_int_equal(drive_disks_find(&disks, SERIAL_A, &disk, NULL), STATUS_UNAVAILABLE);
    drive_disks_done(&disks);
}

static void more_disks_than_fit_are_incomplete(void **state)
{
    struct drive_disk disk;
    struct drive_disks disks;
    char name[16], serial[32];

    for (unsigned i = 0; i < DRIVE_LIST + 1; i++) {
        (void)snprintf(name, sizeof(name), "vd%03u", i);
        (void)snprintf(serial, sizeof(serial), "crust-aaaaaaaaaaa%c%c%c", 'a' + (char)(i / 100),
                       'a' + (char)(i / 10 % 10), 'a' + (char)(i % 10));
        make_disk(name, "253:0\n", "2048\n", "0\n", serial);
    }
    read_disks(&disks);
    assert_int_equal(disks.count, DRIVE_LIST);
    assert_true(disks.incomplete);
    assert_int_equal(drive_disks_find(&disks, "crust-aaaaaaaaaaaaaa", &disk, NULL),
                     STATUS_FAILED_PRECONDITION);
    drive_disks_done(&disks);
}

static void without_sysfs_nothing_is_listed(void **state)
{
    struct drive_disks disks;

    assert_int_equal(drive_disks_read(tree_path("/none"), &disks), -ENOENT);
}

/* ---- the list */

static struct drive_guest_list list_with(const char *mountinfo)
{
    static struct drive_disk both[] = {
        {"sda", SERIAL_A, 0, 4096, true},
        {"vdb", SERIAL_B, 0, 8192, false},
    };
    const struct drive_disks disks = {.count = array_length(both), .disks = both};
    struct drive_guest_list list;
    char text[8192];

    both[0].device = makedev(8, 0);
    both[1].device = makedev(253, 16);
    assert_true(strlen(mountinfo) < sizeof(text));
    strcpy(text, mountinfo);
    assert_int_equal(drive_list_make(&disks, text, &list), 0);
    assert_int_equal(list.count, 2);
    assert_false(list.incomplete);
    return list;
}

static void list_includes_mount_points(void **state)
{
    struct drive_guest_list list =
        list_with("22 1 254:0 / / rw - ext4 /dev/vda rw\n"
                  "30 22 253:16 / /data\\040of rw,nosuid,nodev - xfs /dev/vdb rw\n"
                  "31 22 8:1 / /partition rw - ext4 /dev/sda1 rw\n");

    assert_string_equal(list.entries[0].serial, SERIAL_A);
    assert_string_equal(list.entries[0].device, "sda");
    assert_int_equal(list.entries[0].state, DRIVE_GUEST_PRESENT);
    assert_int_equal(list.entries[0].bytes, 4096);
    assert_true(list.entries[0].read_only);
    assert_string_equal(list.entries[0].vm_path, "");
    assert_int_equal(list.entries[1].state, DRIVE_GUEST_MOUNTED);
    assert_string_equal(list.entries[1].vm_path, "/data of");
    assert_string_equal(list.entries[1].filesystem_type, "xfs");
    assert_false(list.entries[1].read_only);
    drive_guest_list_done(&list);
}

static void the_first_mount_of_the_whole_file_system_counts(void **state)
{
    struct drive_guest_list list = list_with("30 22 8:0 /sub /bind rw - ext4 /dev/sda rw\n"
                                             "31 22 8:0 / /whole rw - ext4 /dev/sda rw\n"
                                             "32 22 8:0 / /again rw - ext4 /dev/sda rw\n"
                                             "33 22 253:16 /sub /one rw - ext4 /dev/vdb rw\n"
                                             "34 22 253:16 /sub /two rw - ext4 /dev/vdb rw\n");

    assert_string_equal(list.entries[0].vm_path, "/whole");
    assert_string_equal(list.entries[1].vm_path, "/one");
    assert_int_equal(list.entries[1].state, DRIVE_GUEST_MOUNTED);
    drive_guest_list_done(&list);
}

/* The host refuses a list with a text that is not UTF-8. */
static void a_strange_mount_point_does_not_spoil_the_list(void **state)
{
    struct drive_guest_list list = list_with("30 22 8:0 / /\xff rw - ext4 /dev/sda rw\n"), parsed;
    struct buffer payload = BUFFER_INIT(0);

    assert_int_equal(drive_append_list(&payload, &list), 0);
    assert_int_equal(drive_parse_list(payload.data, payload.length, &parsed), 0);
    assert_int_equal(parsed.count, 2);
    assert_int_equal(parsed.entries[0].state, DRIVE_GUEST_MOUNTED);
    assert_string_equal(parsed.entries[0].vm_path, list.entries[0].vm_path);
    drive_guest_list_done(&parsed);
    drive_guest_list_done(&list);
    buffer_done(&payload);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_start, tree_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(both_kinds_of_disks_are_found_by_serial),
        TEST(other_disks_are_not_drives),
        TEST(a_drive_without_numbers_cannot_be_read),
        TEST(a_disk_without_a_readable_serial_may_be_any),
        TEST(more_disks_than_fit_are_incomplete),
        TEST(without_sysfs_nothing_is_listed),
        cmocka_unit_test(list_includes_mount_points),
        cmocka_unit_test(the_first_mount_of_the_whole_file_system_counts),
        cmocka_unit_test(a_strange_mount_point_does_not_spoil_the_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
