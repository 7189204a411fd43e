/* SPDX-License-Identifier: Apache-2.0 */
/* volume_test.c - what volume_guest_path may be, and the answers for what is not there. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/encode.h"

static void check_unknown(const char *path, const char *text)
{
    struct volume volume;
    struct error error = {0};

    assert_int_equal(volume_find(path, &volume, &error), VOLUME_UNKNOWN);
    assert_non_null(strstr(error.text, text));
    /* this phrase means "no such call" to the other side */
    assert_null(strstr(error.text, "does not exist"));
}

static void other_forms_and_missing_objects_are_named(void **state)
{
    static const char *const bad[] = {
        "x",      "proc",     "pci:",      "pci:/",     "pci:2/",    "pci:02//01", "pci:20",
        "pci:1g", "pci:02.8", "pci:02.",   "pci:02.0x", "pci:001",   "pci: 1",     "pci:-1",
        "scsi:",  "scsi:0",   "scsi:0:",   "scsi:0:1x", "scsi:-1:0", "scsi: 0:1",  "scsi:0:1:2",
        "/dev/",  "/dev/a/b", "/dev/../x", "/dev/.",    "PCI:02",    "scsi:a:b",   "pci:1/2/3/4/5",
    };
    static const char *const absent[] = {
        "/no/such/mount",
        "/dev/no-such-disk",
        "pci:1f.7/1f.7",
        "scsi:99999:99999",
    };

    for (size_t i = 0; i < array_length(bad); i++) {
        check_unknown(bad[i], bad[i]);
        check_unknown(bad[i], "is none of");
    }
    for (size_t i = 0; i < array_length(absent); i++)
        check_unknown(absent[i], absent[i]);
}

static void a_disk_is_read_from_the_agents_mount_point(void **state)
{
    static const struct {
        const char *source, *said;
    } cases[] = {
        {"1f.7/1f.7", "no disk is at pci:1f.7/1f.7"},
        {"99999:99999", "no disk is at scsi:99999:99999"},
        {"/dev/no-such-disk", "no disk is at /dev/no-such-disk"},
        {"0.0.0005", "pci:0.0.0005 is none of"}, /* a channel address */
        {"/etc/passwd", "/etc/passwd is none of"},
        {"", "pci: is none of"},
    };
    char path[256] = "/run/kata-containers/sandbox/storage/";
    const size_t prefix = strlen(path);

    for (size_t i = 0; i < array_length(cases); i++) {
        base64url_encode(cases[i].source, strlen(cases[i].source), path + prefix);
        check_unknown(path, cases[i].said);
    }
    strcpy(path + prefix, "not base64");
    check_unknown(path, "not base64");
}

static void a_mount_point_is_taken_to_the_letter(void **state)
{
    struct volume volume;
    struct error error;

    assert_int_equal(volume_find("/proc", &volume, &error), VOLUME_FOUND);
    assert_string_equal(volume.mount_point, "/proc");
    assert_string_equal(volume.file_system, "proc");
    assert_int_equal(volume.kind, FILESYSTEM_OTHER);
    assert_int_equal(volume_find("/proc/", &volume, &error), VOLUME_UNKNOWN);
    assert_int_equal(volume_find("/proc/self", &volume, &error), VOLUME_UNKNOWN);
}

static void file_systems_are_known_by_name(void **state)
{
    assert_int_equal(filesystem_kind_from_name("ext2"), FILESYSTEM_EXT);
    assert_int_equal(filesystem_kind_from_name("ext3"), FILESYSTEM_EXT);
    assert_int_equal(filesystem_kind_from_name("ext4"), FILESYSTEM_EXT);
    assert_int_equal(filesystem_kind_from_name("xfs"), FILESYSTEM_XFS);
    assert_int_equal(filesystem_kind_from_name("btrfs"), FILESYSTEM_BTRFS);
    assert_int_equal(filesystem_kind_from_name("ext"), FILESYSTEM_OTHER);
    assert_int_equal(filesystem_kind_from_name(""), FILESYSTEM_OTHER);
}

static void a_device_that_is_gone_has_a_name_and_no_size(void **state)
{
    dev_t nobody = makedev(4000, 77);
    char name[DEVICE_NAME_BYTES], text[16];
    uint64_t bytes = 1;

    device_name(nobody, name);
    assert_string_equal(name, "4000:77");
    assert_int_equal(device_size(nobody, &bytes), -ENOENT);
    assert_int_equal(bytes, 1);
    assert_int_equal(device_layer(nobody, text, sizeof(text)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_forms_and_missing_objects_are_named),
        cmocka_unit_test(a_disk_is_read_from_the_agents_mount_point),
        cmocka_unit_test(a_mount_point_is_taken_to_the_letter),
        cmocka_unit_test(file_systems_are_known_by_name),
        cmocka_unit_test(a_device_that_is_gone_has_a_name_and_no_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
