/* SPDX-License-Identifier: Apache-2.0 */
/* drive_options_test.c - what may be mounted how. */
#include "tests/unit/test.h"

#include <linux/mount.h>
#include <string.h>

#include "guest-agent/guest_drive.h"
#include "lib/cleanup.h"

static struct drive_options options;
static struct error error;
static bool enforces_labels;

static enum status_code take(const char *type, bool read_only, const char *const *list,
                             size_t count)
{
    struct drive_mount_request request = {.read_only = read_only, .option_count = count};

    strcpy(request.filesystem_type, type);
    for (size_t i = 0; i < count; i++)
        strcpy(request.options[i], list[i]);
    error.text[0] = '\0';
    return drive_options_take(&request, enforces_labels, &options, &error);
}

static enum status_code take_one(const char *type, bool read_only, const char *option)
{
    return take(type, read_only, &option, 1);
}

static void a_drive_is_always_nodev_and_nosuid(void **state)
{
    assert_int_equal(take("ext4", false, NULL, 0), STATUS_OK);
    assert_int_equal(options.attributes, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    assert_int_equal(options.count, 0);
    assert_int_equal(take("xfs", true, NULL, 0), STATUS_OK);
    assert_int_equal(options.attributes, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY);
    assert_int_equal(take_one("ext4", false, "dev"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take_one("ext4", false, "suid"), STATUS_INVALID_ARGUMENT);
}

static void mount_attributes_are_separated_from_parameters(void **state)
{
    static const char *const list[] = {"noatime", "data=journal", "noexec", "rw", "discard"};

    assert_int_equal(take("ext4", false, list, array_length(list)), STATUS_OK);
    assert_int_equal(options.attributes,
                     MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOATIME | MOUNT_ATTR_NOEXEC);
    assert_int_equal(options.count, 2);
    assert_string_equal(options.parameters[0].name, "data");
    assert_string_equal(options.parameters[0].value, "journal");
    assert_string_equal(options.parameters[1].name, "discard");
    assert_string_equal(options.parameters[1].value, "");
}

static void contradictions_are_refused(void **state)
{
    static const char *const both[] = {"noatime", "relatime"};

    assert_int_equal(take_one("ext4", false, "ro"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take_one("ext4", true, "rw"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take_one("ext4", true, "ro"), STATUS_OK);
    assert_int_equal(take("ext4", false, both, 2), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "options[1]"));
}

static void a_label_is_for_guests_that_enforce_it(void **state)
{
    static const char *const wrong[] = {"context",       "context=",         "context=\"\"",
                                        "context=\"a:b", "context=a b",      "context=a\"",
                                        "fscontext=a:b", "rootcontext=a:b:c"};

    enforces_labels = false;
    assert_int_equal(take_one("ext4", false, "context=u:o:t:s0"), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "does not enforce SELinux"));
    enforces_labels = true;
    assert_int_equal(take_one("xfs", false, "context=u:o:t:s0"), STATUS_OK);
    assert_string_equal(options.parameters[0].name, "context");
    assert_string_equal(options.parameters[0].value, "u:o:t:s0");
    assert_int_equal(take_one("ext4", true, "context=\"u:o:t:s0:c1,c2\""), STATUS_OK);
    assert_string_equal(options.parameters[0].value, "u:o:t:s0:c1,c2");
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_int_equal(take_one("ext4", false, wrong[i]), STATUS_INVALID_ARGUMENT);
    enforces_labels = false;
}

static void a_journal_is_skipped_on_read_only_drives_alone(void **state)
{
    assert_int_equal(take_one("ext4", false, "noload"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take_one("ext4", true, "noload"), STATUS_OK);
    assert_int_equal(take_one("xfs", false, "norecovery"), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take_one("xfs", true, "norecovery"), STATUS_OK);
}

static void other_options_are_refused_without_their_text(void **state)
{
    static const struct {
        const char *type, *option;
    } bad[] = {
        {"ext4", "journal_path=/dev/sdq"},
        {"xfs", "logdev=/dev/sdq"},
        {"btrfs", "device=/dev/sdq"},
        {"ext4", "password=sdq"},
        {"ext4", "sdq"},
        {"ext4", "data=sdq"},
        {"ext4", "data="},
        {"ext4", "data"},
        {"ext4", "data=order"},
        {"ext4", "data=ordered journal"},
        {"ext4", "commit=-1"},
        {"ext4", "commit=12345678901"},
        {"ext4", "discard=sdq"},
        {"ext4", "nouuid"},
        {"xfs", "data=ordered"},
        {"btrfs", "subvol=a/../sdq"},
        {"btrfs", "subvol=a,device=/dev/sdq"},
        {"ext4", "errors=panic"},
        {"ext4", "=sdq"},
        {"ext4", "noatime=1"},
        {"ext4", "discard,sdq"},
    };

    for (size_t i = 0; i < array_length(bad); i++) {
        assert_int_equal(take_one(bad[i].type, false, bad[i].option), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "options[0]"));
        assert_null(strstr(error.text, "sdq"));
    }
}

static void other_file_systems_are_refused(void **state)
{
    static const char *const others[] = {"", "ext3", "nfs", "tmpfs", "overlay", "ext4 ", "fuse"};

    for (size_t i = 0; i < array_length(others); i++)
        assert_int_equal(take(others[i], false, NULL, 0), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take("btrfs", false, NULL, 0), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_label_is_for_guests_that_enforce_it),
        cmocka_unit_test(a_drive_is_always_nodev_and_nosuid),
        cmocka_unit_test(mount_attributes_are_separated_from_parameters),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(a_journal_is_skipped_on_read_only_drives_alone),
        cmocka_unit_test(other_options_are_refused_without_their_text),
        cmocka_unit_test(other_file_systems_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
