/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info_test.c - what drivers write, what they should not, and what never leaves. */
#include "tests/unit/test.h"

#include "lib/cleanup.h"

#include <stdio.h>
#include <string.h>

#include "observe/mount_info.h"

static int parse(const char *text, struct mount_info *info, struct error *error)
{
    error->text[0] = '\0';
    return mount_info_parse(text, strlen(text), info, error);
}

static void reads_what_kata_writes(void **state)
{
    struct mount_info info;
    struct error error;

    (void)state;
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

    (void)state;
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

    (void)state;
    for (size_t i = 0; i < array_length(texts); i++) {
        assert_int_equal(parse(texts[i], &info, &error), FILE_READ);
        mount_info_done(&info);
    }
}

static void redacts_secrets(void **state)
{
    struct mount_info info;
    struct error error;

    (void)state;
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

    (void)state;
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

    (void)state;
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

static enum resize_policy policy_of(const char *value)
{
    struct mount_info info;
    struct error error;
    char text[128];
    enum resize_policy policy;

    (void)snprintf(text, sizeof(text), "{\"device\":\"/d\",\"metadata\":{\"crust.resize\":\"%s\"}}",
                   value);
    assert_int_equal(parse(text, &info, &error), FILE_READ);
    policy = info.policy;
    mount_info_done(&info);
    return policy;
}

static void a_wish_can_only_do_less(void **state)
{
    (void)state;
    assert_int_equal(policy_of("never"), POLICY_NEVER);
    assert_int_equal(policy_of("observe"), POLICY_OBSERVE);
    assert_int_equal(policy_of("grow"), POLICY_GROW);
    assert_int_equal(policy_of("Grow more"), POLICY_OBSERVE);
    assert_int_equal(policy_of(""), POLICY_OBSERVE);
}

static void drivers_keys_may_differ_in_letter_case_only(void **state)
{
    struct mount_info info;
    struct error error;

    (void)state;
    assert_int_equal(parse("{\"device\":\"/d\",\"id\":1,\"ID\":2,\"metadata\":{\"Zone\":\"a\","
                           "\"zone\":\"b\",\"Crust.Resize\":\"never\"}}",
                           &info, &error),
                     FILE_READ);
    assert_string_equal(info.metadata,
                        "{\"Zone\":\"a\",\"zone\":\"b\",\"Crust.Resize\":\"never\"}");
    assert_int_equal(info.policy, POLICY_NEVER);
    mount_info_done(&info);
}

static void error_names_the_problem_and_its_place(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "not an object"},
        {"{}", "device: missing or empty"},
        {"{\"device\":\"\"}", "device: missing or empty"},
        {"{\"device\":null}", "device: missing or empty"},
        {"{\"device\":7}", "device: not a string"},
        {"{\"device\":\"dev/loop0\"}", "device: not an absolute path"},
        {"{\"device\":\"/d\",\"fstype\":{}}", "fstype: not a string"},
        {"{\"device\":\"/d\",\"volume-type\":1}", "volume-type: not a string"},
        {"{\"device\":\"/d\",\"options\":\"rw\"}", "options: not an array"},
        {"{\"device\":\"/d\",\"options\":[\"rw\",1]}", "options[1]: not a string"},
        {"{\"device\":\"/d\",\"metadata\":[]}", "metadata: not an object"},
        {"{\"device\":\"/d\",\"metadata\":{\"foo\":1}}", "metadata.foo: not a string"},
        {"{\"device\":\"/d\",\"Device\":\"/e\"}", "key a second time at byte 15"},
        {"{\"device\":\"/d\",\"metadata\":{\"crust.resize\":\"never\",\"Crust.Resize\":\"grow\"}}",
         "metadata.crust.resize: key a second time"},
        {"{\"device\":\"/d\",\"metadata\":{\"a\":\"1\",\"b\":\"2\",\"\\u0061\":\"1\"}}",
         "metadata.a: key a second time"},
        {"{\"device\":\"/d\\u0000e\"}", ""},
        {"{\"device\":\"/d\"} {}", ""},
        {"{\"device\":\"/d\xff\"}", ""},
        {"{\"device\":\"/d\",\"a\":[[[[1]]]]}", ""},
    };
    struct mount_info info;
    struct error error;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].text, &info, &error), FILE_WRONG);
        assert_true(error.text[0]);
        assert_non_null(strstr(error.text, cases[i].says));
    }
}

static void refuses_a_device_that_is_not_a_path(void **state)
{
    static char text[8192];
    struct mount_info info;
    struct error error;

    (void)state;
    memset(text, 'x', sizeof(text));
    memcpy(text, "{\"device\":\"/", strlen("{\"device\":\"/"));
    (void)snprintf(text + 5000, 16, "\"}");
    assert_int_equal(parse(text, &info, &error), FILE_WRONG);
    assert_non_null(strstr(error.text, "longer than a path"));
}

static void every_prefix_is_cut(void **state)
{
    static const char text[] =
        "{\"device\":\"/d\\\"\",\"metadata\":{\"a\":\"}\"},\"options\":[\"]\"]}";
    struct mount_info info;
    struct error error;

    (void)state;
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
        cmocka_unit_test(a_wish_can_only_do_less),
        cmocka_unit_test(drivers_keys_may_differ_in_letter_case_only),
        cmocka_unit_test(error_names_the_problem_and_its_place),
        cmocka_unit_test(refuses_a_device_that_is_not_a_path),
        cmocka_unit_test(every_prefix_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
