/* SPDX-License-Identifier: Apache-2.0 */
/* drive_asked_test.c - which requests about a drive are refused, and what the refusal says. */
#include "api/drive_asked.h"

#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/command/drive_form.h"
#include "tests/unit/test.h"

static struct drive_asked *whole(void)
{
    struct drive_asked *asked = drive_asked_new(DRIVE_ASKED_ATTACH);

    assert_non_null(asked);
    asked->attach.drive_id = "data-1";
    asked->attach.sandbox_id = "sandbox.1";
    asked->attach.host_path = "/dev/vg/data";
    asked->attach.vm_path = "/mnt/data";
    asked->attach.fs_type = "ext4";
    return asked;
}

static void expect(struct drive_asked *asked, const char *text)
{
    struct error error = {0};
    const enum status_code code = drive_asked_check(asked, &error);

    assert_int_equal(code, text ? STATUS_INVALID_ARGUMENT : STATUS_OK);
    if (text && !strstr(error.text, text))
        fail_msg("\"%s\" has no \"%s\"", error.text, text);
}

/* Sets a member, expects this refusal (NULL: none), and sets it back. */
#define EXPECT(asked, member, value, text)                                                         \
    do {                                                                                           \
        const typeof((asked)->attach.member) before = (asked)->attach.member;                      \
        (asked)->attach.member = (value);                                                          \
        expect((asked), (text));                                                                   \
        (asked)->attach.member = before;                                                           \
    } while (0)

static void names_have_their_letters_and_lengths(void **state)
{
    cleanup(freep) struct drive_asked *asked = whole();
    char longest[DRIVE_FORM_SANDBOX_CHARS + 2] = "";

    (void)state;
    expect(asked, NULL);
    EXPECT(asked, drive_id, "", "drive_id is missing");
    EXPECT(asked, drive_id, "a/b", "drive_id is not");
    EXPECT(asked, drive_id, "a.b", "drive_id is not");
    memset(longest, 'x', DRIVE_ID_CHARS);
    EXPECT(asked, drive_id, longest, NULL);
    longest[DRIVE_ID_CHARS] = 'x';
    EXPECT(asked, drive_id, longest, "drive_id is not");
    EXPECT(asked, sandbox_id, "", "sandbox_id is missing");
    EXPECT(asked, sandbox_id, "../s", "sandbox_id is not");
    EXPECT(asked, fs_type, "", "filesystem_type is missing");
    EXPECT(asked, fs_type, "ext4,xfs", "filesystem_type is not");
    EXPECT(asked, has_fs_group, true, NULL);
    asked->attach.has_fs_group = true;
    EXPECT(asked, fs_group, UINT32_MAX, "fs_group must be less than 4294967295");
}

static void paths_are_absolute_and_have_one_form(void **state)
{
    static const char *const bad[] = {"data", "/",    "//data", "/a//b",
                                      "/a/",  "/./a", "/a/..",  "/.."};
    cleanup(freep) struct drive_asked *asked = whole();

    (void)state;
    for (size_t i = 0; i < array_length(bad); i++) {
        EXPECT(asked, host_path, bad[i], "host_path is not an absolute path");
        EXPECT(asked, vm_path, bad[i], "vm_path is not an absolute path");
    }
    EXPECT(asked, host_path, "", "host_path is missing");
    EXPECT(asked, vm_path, "", "vm_path is missing");
    EXPECT(asked, host_path, "/dev/..data", NULL);
    EXPECT(asked, vm_path, "/container", NULL);
}

static void protected_places_are_refused(void **state)
{
    static const char *const bad[] = {"/proc",
                                      "/proc/1",
                                      "/sys",
                                      "/sys/fs/x",
                                      "/dev",
                                      "/dev/shm",
                                      "/run/kata-containers",
                                      "/var/run/kata-containers/shared/containers/x"};
    cleanup(freep) struct drive_asked *asked = whole();

    (void)state;
    for (size_t i = 0; i < array_length(bad); i++)
        EXPECT(asked, vm_path, bad[i], "vm_path is protected");
    EXPECT(asked, vm_path, "/process", NULL);
    EXPECT(asked, vm_path, "/run/kata-containers-2", NULL);
    EXPECT(asked, vm_path, "/mnt/dev", NULL);
}

static void expect_option(struct drive_asked *asked, const char *option, const char *text)
{
    asked->attach.options = 2;
    asked->option[0] = "noatime";
    asked->option[1] = option;
    expect(asked, text);
}

static void options_agree_with_the_disk_and_carry_no_secret(void **state)
{
    static const char *const secrets[] = {"password=hunter2", "journal_key=hunter2",
                                          "x,token=hunter2", "auth=hunter2", "creds=hunter2"};
    cleanup(freep) struct drive_asked *asked = whole();

    (void)state;
    expect_option(asked, "ro", NULL);
    expect_option(asked, "rw", "options[1] is \"rw\"");
    asked->attach.writable = true;
    expect_option(asked, "rw", NULL);
    expect_option(asked, "ro", "options[1] is \"ro\"");
    expect_option(asked, "", "options[1] is empty");
    expect_option(asked, "noexec,ro", "options[1] is no single option");
    expect_option(asked, "data=a\nb", "options[1] is no single option");
    expect_option(asked, "context=system_u:object_r:t:s0:c1,c2", NULL);
    for (size_t i = 0; i < array_length(secrets); i++) {
        struct error error = {0};

        expect_option(asked, secrets[i], "options[1] carries a secret");
        (void)drive_asked_check(asked, &error);
        assert_null(strstr(error.text, "hunter2"));
    }
}

static void limits_have_size_and_refill(void **state)
{
    cleanup(freep) struct drive_asked *asked = whole();
    const uint64_t large = (uint64_t)INT64_MAX + 1;

    (void)state;
    EXPECT(asked, limits.bandwidth, ((struct drive_bucket){1, 1, 0}), NULL);
    EXPECT(asked, limits.bandwidth, ((struct drive_bucket){1, 0, 0}),
           "bandwidth has a size and no");
    EXPECT(asked, limits.operations, ((struct drive_bucket){0, 1, 0}), "ops has no size");
    EXPECT(asked, limits.operations, ((struct drive_bucket){0, 0, 1}), "ops has no size");
    EXPECT(asked, limits.operations, ((struct drive_bucket){large, 1, 0}), "too large");
    EXPECT(asked, limits.operations, ((struct drive_bucket){1, large, 0}), "too large");
    EXPECT(asked, limits.operations, ((struct drive_bucket){1, 1, large}), "too large");
    asked->call = DRIVE_ASKED_LIMITS;
    EXPECT(asked, host_path, "", NULL);
    EXPECT(asked, limits.operations, ((struct drive_bucket){1, 0, 0}), "ops has a size");
}

static void containers_have_a_place_each(void **state)
{
    cleanup(freep) struct drive_asked *asked = whole();
    struct reconciler_drive_container *one = asked->container;

    (void)state;
    asked->attach.containers = 2;
    one[0] = one[1] = (struct reconciler_drive_container){"c1", "/data", "", false};
    expect(asked, "containers[0] and containers[1] have the same place");
    one[1].path = "/other";
    expect(asked, NULL);
    one[1].container_id = "a/b";
    expect(asked, "containers[1].container_id");
    one[1].container_id = "c.2";
    one[1].path = "data";
    expect(asked, "containers[1].path is missing, or not");
    one[1].path = "/proc/x";
    expect(asked, "containers[1].path lies in");
    one[1].path = "/data";
    one[1].sub_path = "a/b";
    expect(asked, NULL);
    one[1].sub_path = "/a";
    expect(asked, "containers[1].sub_path");
    one[1].sub_path = "a/../../b";
    expect(asked, "containers[1].sub_path");
}

static enum status_code take(struct drive_asked *asked, const void *bytes, size_t length,
                             size_t limit)
{
    struct error error = {0};

    return drive_asked_take(asked, &(struct drive_asked_text){"host_path", bytes, length}, limit,
                            &asked->attach.host_path, &error);
}

static void texts_are_bounded(void **state)
{
    cleanup(freep) struct drive_asked *asked = whole();
    cleanup(freep) char *text = calloc(1, DRIVE_ASKED_BYTES);
    struct error error = {0};
    char name[DRIVE_ASKED_NAME_BYTES];

    (void)state;
    memset(text, 'x', DRIVE_ASKED_BYTES);
    assert_int_equal(take(asked, NULL, 0, 10), STATUS_OK);
    assert_string_equal(asked->attach.host_path, "");
    assert_int_equal(take(asked, text, 10, 10), STATUS_OK);
    assert_string_equal(asked->attach.host_path, "xxxxxxxxxx");
    assert_int_equal(take(asked, text, 11, 10), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take(asked, "a\0b", 3, 10), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take(asked, "\xff", 1, 10), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take(asked, text, DRIVE_ASKED_BYTES, SIZE_MAX), STATUS_INVALID_ARGUMENT);
    for (unsigned i = 0; i < DRIVE_OPTIONS; i++)
        assert_int_equal(drive_asked_add_option(asked, "noatime", 7, &error), STATUS_OK);
    assert_int_equal(drive_asked_add_option(asked, "noatime", 7, &error), STATUS_INVALID_ARGUMENT);
    for (unsigned i = 0; i < DRIVE_CONTAINERS; i++)
        assert_non_null(drive_asked_add_container(asked, name, &error));
    assert_string_equal(name, "containers[15]");
    assert_null(drive_asked_add_container(asked, name, &error));
    assert_non_null(strstr(error.text, "more than 16 containers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_their_letters_and_lengths),
        cmocka_unit_test(paths_are_absolute_and_have_one_form),
        cmocka_unit_test(protected_places_are_refused),
        cmocka_unit_test(options_agree_with_the_disk_and_carry_no_secret),
        cmocka_unit_test(limits_have_size_and_refill),
        cmocka_unit_test(containers_have_a_place_each),
        cmocka_unit_test(texts_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
