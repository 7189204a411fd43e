/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info_test.c - what drivers write, what they should not, and what never leaves. */
#include "tests/unit/test.h"

#include "lib/cleanup.h"

#include <stdio.h>
#include <string.h>

#include "observe/observe.h"

static int parse(const char *text, struct mount_info *info, struct error *error)
{
    error->text[0] = '\0';
    return mount_info_parse(text, strlen(text), info, error);
}

static void reads_what_kata_writes(void **state)
{
    struct mount_info info;
    struct error error;

    assert_int_equal(
        parse("{\"volume-type\":\"directvol\",\"device\":\"/dev/loop0\",\"fstype\":\"ext4\","
              "\"metadata\":{\"fsGroup\":\"1000\"},\"options\":[\"bind\",\"rw\"]}",
              &info, &error),
        FILE_READ);
    assert_string_equal(info.volume_type, "directvol");
    assert_string_equal(info.device, "/dev/loop0");
    assert_string_equal(info.fs_type, "ext4");
    assert_string_equal(info.metadata, "{\"fsGroup\":\"1000\"}");
    assert_string_equal(info.options, "[\"bind\",\"rw\"]");
    assert_int_equal(info.policy, POLICY_GROW);
    mount_info_done(&info);
}

static void needs_the_device_only(void **state)
{
    struct mount_info info;
    struct error error;

    assert_int_equal(parse("{\"DEVICE\":\"/d\",\"options\":null,\"unknown\":[{}]}", &info, &error),
                     FILE_READ);
    assert_string_equal(info.device, "/d");
    assert_null(info.volume_type);
    assert_null(info.fs_type);
    assert_null(info.options);
    assert_null(info.metadata);
    mount_info_done(&info);
}

static void takes_a_device_that_names_something_else(void **state)
{
    static const char *const texts[] = {
        "{\"device\":\"0000:01:00.0\"}",
        "{\"device\":\"spdk:///run/spdk.sock\"}",
        "{\"device\":\"10.0.0.1:/export\"}",
    };
    struct mount_info info;
    struct error error;

    for (size_t i = 0; i < array_length(texts); i++) {
        assert_int_equal(parse(texts[i], &info, &error), FILE_READ);
        mount_info_done(&info);
    }
}

static void redacts_secrets(void **state)
{
    struct mount_info info;
    struct error error;

    assert_int_equal(parse("{\"device\":\"/d\",\"metadata\":{\"encryptionKey\":\"hunter2\","
                           "\"S3-Password\":\"hunter2\",\"size\":\"1\"}}",
                           &info, &error),
                     FILE_READ);
    assert_null(strstr(info.metadata, "hunter2"));
    assert_string_equal(info.metadata, "{\"encryptionKey\":\"[redacted]\","
                                       "\"S3-Password\":\"[redacted]\",\"size\":\"1\"}");
    mount_info_done(&info);
}

static void last_of_ro_and_rw_counts(void **state)
{
    static const struct {
        const char *options;
        bool read_only;
    } cases[] = {
        {"[]", false},
        {"[\"ro\"]", true},
        {"[\"noatime\",\"ro\"]", true},
        {"[\"ro\",\"rw\"]", false},
        {"[\"rw\",\"ro\"]", true},
        {"[\"noatime,ro\"]", true},
        {"[\"ro,rw\"]", false},
        {"[\"errors=remount-ro\"]", false},
        {"[\"ro=1\"]", false},
        {"[\"RO\"]", false},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct mount_info info = {0};
        struct error error = {0};
        char text[128];

        (void)snprintf(text, sizeof(text), "{\"device\":\"/d\",\"options\":%s}", cases[i].options);
        assert_int_equal(parse(text, &info, &error), FILE_READ);
        assert_int_equal(info.read_only, cases[i].read_only);
        mount_info_done(&info);
    }
}

static void redacts_secret_options(void **state)
{
    struct mount_info info;
    struct error error;

    assert_int_equal(parse("{\"device\":\"/d\",\"metadata\":{\"mountOptions\":"
                           "\"ro,pass=hunter2\"},\"options\":[\"rw\",\"credentials=/hunter2\","
                           "\"uid=5,password=hunter2\"]}",
                           &info, &error),
                     FILE_READ);
    assert_string_equal(info.options,
                        "[\"rw\",\"credentials=[redacted]\",\"uid=5,password=[redacted]\"]");
    assert_string_equal(info.metadata, "{\"mountOptions\":\"ro,pass=[redacted]\"}");
    mount_info_done(&info);
}

static void drivers_keys_may_differ_in_letter_case_only(void **state)
{
    struct mount_info info;
    struct error error;

    assert_int_equal(parse("{\"device\":\"/d\",\"id\":1,\"ID\":2,\"metadata\":{\"Zone\":\"a\","
                           "\"zone\":\"b\",\"Crust.Resize\":\"never\"}}",
                           &info, &error),
                     FILE_READ);
    assert_string_equal(info.metadata,
                        "{\"Zone\":\"a\",\"zone\":\"b\",\"Crust.Resize\":\"never\"}");
    assert_int_equal(info.policy, POLICY_NEVER);
    mount_info_done(&info);
}

static void other_types_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"{\"device\":7}", "device: not a string"},
        {"{\"device\":\"\"}", "device: missing or empty"},
        {"{\"device\":\"/d\",\"options\":{}}", "options: not an array"},
        {"{\"device\":\"/d\",\"metadata\":[]}", "metadata: not an object"},
        {"[]", "not an object"},
    };
    struct mount_info info;
    struct error error;

    for (size_t i = 0; i < array_length(cases); i++) {
        assert_int_equal(parse(cases[i][0], &info, &error), FILE_WRONG);
        assert_string_equal(error.text, cases[i][1]);
    }
}

static void every_prefix_is_cut(void **state)
{
    static const char text[] =
        "{\"device\":\"/d\\\"\",\"metadata\":{\"a\":\"}\"},\"options\":[\"]\"]}";
    struct mount_info info;
    struct error error;

    for (size_t length = 0; length < sizeof(text) - 1; length++)
        assert_int_equal(mount_info_parse(text, length, &info, &error), FILE_CUT);
    assert_int_equal(parse(" \n", &info, &error), FILE_CUT);
    assert_int_equal(parse(text, &info, &error), FILE_READ);
    mount_info_done(&info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_kata_writes),
        cmocka_unit_test(needs_the_device_only),
        cmocka_unit_test(takes_a_device_that_names_something_else),
        cmocka_unit_test(redacts_secrets),
        cmocka_unit_test(last_of_ro_and_rw_counts),
        cmocka_unit_test(redacts_secret_options),
        cmocka_unit_test(drivers_keys_may_differ_in_letter_case_only),
        cmocka_unit_test(other_types_are_refused),
        cmocka_unit_test(every_prefix_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
