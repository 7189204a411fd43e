/* SPDX-License-Identifier: Apache-2.0 */
/* http_asked_drive_test.c - JSON about drives: what is understood, and what is refused rather than
 * ignored. */
#include "api/http_asked.h"

#include <stdlib.h>
#include <string.h>

#include "api/drive_asked.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "tests/unit/test.h"

#define NAMES                                                                                      \
    "\"drive_id\":\"data-1\",\"sandbox_id\":\"s1\",\"host_path\":\"/dev/vg/data\","                \
    "\"vm_path\":\"/mnt/data\",\"filesystem_type\":\"ext4\""

static enum status_code read_with(http_asked_read *read, const char *path, const char *body,
                                  struct http_asked *ret_asked, struct error *error)
{
    const struct http_question question = {path, NULL, body, strlen(body)};

    memset(ret_asked, 0, sizeof(*ret_asked));
    *error = (struct error){0};
    return read(&question, ret_asked, error);
}

static void expect_refused(http_asked_read *read, const char *path, const char *body,
                           const char *text)
{
    struct http_asked asked;
    struct error error;

    if (read_with(read, path, body, &asked, &error) != STATUS_INVALID_ARGUMENT ||
        !strstr(error.text, text))
        fail_msg("%s: \"%s\" has no \"%s\"", body, error.text, text);
    assert_non_null(asked.method);
    http_asked_done(&asked);
    assert_null(asked.drive);
}

static void every_member_of_an_attach_is_read(void **state)
{
    static const char body[] =
        "{" NAMES ",\"Options\":[\"noatime\",\"data=ordered\"],\"is_writable\":true,"
        "\"rate_limiter\":{\"bandwidth\":{\"size\":\"1Mi\",\"refill_time_ms\":100,"
        "\"one_time_burst\":4096},\"ops\":{\"size\":50,\"refill_time_ms\":1000}},"
        "\"fsck\":\"preen\",\"fs_group\":2000,\"fs_group_change_policy\":\"OnRootMismatch\","
        "\"containers\":[{\"container_id\":\"c1\",\"path\":\"/data\",\"sub_path\":\"a/b\","
        "\"read_only\":true},{\"container_id\":\"c2\",\"path\":\"/data\",\"sub_path\":null}]}";
    const struct reconciler_drive_attach *attach;
    struct http_asked asked;
    struct error error;

    (void)state;
    assert_int_equal(read_with(http_asked_drive_attach, "/v1/drives", body, &asked, &error),
                     STATUS_OK);
    assert_int_equal(asked.drive->call, DRIVE_ASKED_ATTACH);
    attach = &asked.drive->attach;
    assert_string_equal(attach->drive_id, "data-1");
    assert_string_equal(attach->sandbox_id, "s1");
    assert_string_equal(attach->host_path, "/dev/vg/data");
    assert_string_equal(attach->vm_path, "/mnt/data");
    assert_string_equal(attach->fs_type, "ext4");
    assert_int_equal(attach->options, 2);
    assert_string_equal(attach->option[1], "data=ordered");
    assert_true(attach->writable);
    assert_int_equal(attach->limits.bandwidth.size, 1048576);
    assert_int_equal(attach->limits.bandwidth.refill_ms, 100);
    assert_int_equal(attach->limits.bandwidth.one_time_burst, 4096);
    assert_int_equal(attach->limits.operations.size, 50);
    assert_int_equal(attach->limits.operations.refill_ms, 1000);
    assert_int_equal(attach->fsck, DRIVE_FSCK_PREEN);
    assert_true(attach->has_fs_group);
    assert_int_equal(attach->fs_group, 2000);
    assert_int_equal(attach->fs_group_policy, DRIVE_GROUP_ON_ROOT_MISMATCH);
    assert_int_equal(attach->containers, 2);
    assert_string_equal(attach->container[0].sub_path, "a/b");
    assert_true(attach->container[0].read_only);
    assert_string_equal(attach->container[1].container_id, "c2");
    assert_string_equal(attach->container[1].sub_path, "");
    http_asked_done(&asked);
}

static void absent_members_have_their_defaults(void **state)
{
    static const char *const bodies[] = {
        "{" NAMES "}",
        "{" NAMES ",\"options\":null,\"rate_limiter\":null,\"fs_group\":null,\"fsck\":null,"
        "\"fs_group_change_policy\":null,\"containers\":null,\"is_writable\":null}",
        "{" NAMES ",\"options\":[],\"rate_limiter\":{\"bandwidth\":null,\"ops\":{}},"
        "\"containers\":[]}",
    };

    (void)state;
    for (size_t i = 0; i < array_length(bodies); i++) {
        struct http_asked asked;
        struct error error;

        assert_int_equal(
            read_with(http_asked_drive_attach, "/v1/drives", bodies[i], &asked, &error), STATUS_OK);
        assert_false(asked.drive->attach.writable);
        assert_false(asked.drive->attach.has_fs_group);
        assert_int_equal(asked.drive->attach.fsck, DRIVE_FSCK_NONE);
        assert_int_equal(asked.drive->attach.fs_group_policy, DRIVE_GROUP_ALWAYS);
        assert_int_equal(asked.drive->attach.limits.operations.size, 0);
        http_asked_done(&asked);
    }
}

static void an_attach_that_is_not_understood_is_refused(void **state)
{
    static const struct {
        const char *body, *text;
    } cases[] = {
        {"", "the body: "},
        {"[]", "the body is no JSON object"},
        {"{" NAMES ",\"is_writeable\":true}", "the body has a member that is not known here"},
        {"{" NAMES ",\"DRIVE_ID\":\"x\"}", "the body has a member twice"},
        {"{" NAMES ",\"is_writable\":\"true\"}", "is_writable is neither true nor false"},
        {"{" NAMES ",\"options\":\"ro\"}", "options is no list of texts"},
        {"{" NAMES ",\"options\":[1]}", "options is no list of texts"},
        {"{" NAMES ",\"options\":[\"password=x\"]}", "options[0] carries a secret"},
        {"{" NAMES ",\"options\":[\"ro\"],\"is_writable\":true}", "contradicts is_writable"},
        {"{" NAMES ",\"fsck\":\"force\"}", "fsck is neither"},
        {"{" NAMES ",\"fsck\":1}", "fsck is neither"},
        {"{" NAMES ",\"fs_group\":-1}", "fs_group is no number"},
        {"{" NAMES ",\"fs_group\":\"1000\"}", "fs_group is no number"},
        {"{" NAMES ",\"fs_group\":4294967295}", "fs_group must be less than 4294967295"},
        {"{" NAMES ",\"fs_group\":4294967296}", "fs_group must be less than 4294967295"},
        {"{" NAMES ",\"fs_group_change_policy\":\"Never\"}", "fs_group_change_policy is neither"},
        {"{" NAMES ",\"rate_limiter\":[]}", "rate_limiter is no JSON object"},
        {"{" NAMES ",\"rate_limiter\":{\"iops\":{}}}", "rate_limiter has a member"},
        {"{" NAMES ",\"rate_limiter\":{\"ops\":{\"size\":\"1Ki\",\"refill_time_ms\":1}}}",
         "rate_limiter.ops.size is no number"},
        {"{" NAMES ",\"rate_limiter\":{\"bandwidth\":{\"size\":\"1KB\",\"refill_time_ms\":1}}}",
         "rate_limiter.bandwidth.size is no number of bytes"},
        {"{" NAMES ",\"rate_limiter\":{\"bandwidth\":{\"size\":1}}}", "no refill_time_ms"},
        {"{" NAMES ",\"rate_limiter\":{\"bandwidth\":{\"burst\":1}}}",
         "rate_limiter.bandwidth has a member"},
        {"{" NAMES ",\"containers\":{}}", "containers is no list"},
        {"{" NAMES ",\"containers\":[\"c1\"]}", "containers[0] is no JSON object"},
        {"{" NAMES ",\"containers\":[{\"container_id\":\"c1\",\"path\":5}]}",
         "containers[0].path is no text"},
        {"{" NAMES ",\"containers\":[{\"id\":\"c1\"}]}", "containers[0] has a member"},
        {"{\"drive_id\":7}", "drive_id is no text"},
        {"{\"drive_id\":\"d\"}", "sandbox_id is missing"},
    };

    (void)state;
    for (size_t i = 0; i < array_length(cases); i++)
        expect_refused(http_asked_drive_attach, "/v1/drives", cases[i].body, cases[i].text);
}

static void containers_have_a_bound(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(4096);

    (void)state;
    buffer_append_text(&body, "{" NAMES ",\"containers\":[{}");
    for (unsigned i = 0; i < DRIVE_CONTAINERS; i++)
        buffer_append_text(&body, ",{}");
    assert_int_equal(buffer_append_text(&body, "]}"), 0);
    expect_refused(http_asked_drive_attach, "/v1/drives", buffer_text(&body), "containers");
}

static void a_refusal_shows_nothing_of_an_option(void **state)
{
    static const char body[] = "{" NAMES ",\"options\":[\"token=hunter2\"],\"hunter2\":1}";
    static const char option[] = "{" NAMES ",\"options\":[\"token=hunter2\"]}";
    struct http_asked asked;
    struct error error;

    (void)state;
    assert_int_equal(read_with(http_asked_drive_attach, "/v1/drives", body, &asked, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_null(strstr(error.text, "hunter2"));
    http_asked_done(&asked);
    assert_int_equal(read_with(http_asked_drive_attach, "/v1/drives", option, &asked, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_null(strstr(error.text, "hunter2"));
    http_asked_done(&asked);
}

static void a_detach_names_its_drive_in_the_path(void **state)
{
    static const char *const bodies[] = {"", "{}"};
    struct http_asked asked;
    struct error error;

    (void)state;
    for (size_t i = 0; i < array_length(bodies); i++) {
        assert_int_equal(read_with(http_asked_drive_detach, "/v1/drives/data-1/detach", bodies[i],
                                   &asked, &error),
                         STATUS_OK);
        assert_int_equal(asked.drive->call, DRIVE_ASKED_DETACH);
        assert_string_equal(asked.drive->attach.drive_id, "data-1");
        http_asked_done(&asked);
    }
    expect_refused(http_asked_drive_detach, "/v1/drives/a.b/detach", "", "drive_id is not");
    expect_refused(http_asked_drive_detach, "/v1/drives/d/detach", "{\"force\":true}",
                   "has a member that is not known");
    expect_refused(http_asked_drive_detach, "/v1/drives/d/detach", "null", "no JSON object");
    expect_refused(http_asked_drive_detach,
                   "/v1/drives/0123456789012345678901234567890123456/detach", "",
                   "drive_id is longer than 36 bytes");
}

static void limits_call_requires_a_rate_limiter(void **state)
{
    static const char path[] = "/v1/drives/data-1/limits";
    struct http_asked asked;
    struct error error;

    (void)state;
    expect_refused(http_asked_drive_limits, path, "", "the body: ");
    expect_refused(http_asked_drive_limits, path, "{}", "rate_limiter is missing");
    expect_refused(http_asked_drive_limits, path, "{\"bandwidth\":{}}", "has a member");
    assert_int_equal(
        read_with(http_asked_drive_limits, path, "{\"rate_limiter\":{}}", &asked, &error),
        STATUS_OK);
    assert_int_equal(asked.drive->call, DRIVE_ASKED_LIMITS);
    assert_int_equal(asked.drive->attach.limits.bandwidth.size, 0);
    http_asked_done(&asked);
}

static void a_drive_is_an_object(void **state)
{
    const struct reconciler_drive drive = {.drive_id = "data-1",
                                           .sandbox_id = "s1",
                                           .host_path = "/dev/\"x\"",
                                           .vm_path = "/mnt/data",
                                           .fs_type = "ext4",
                                           .options = "[\"noatime\"]",
                                           .containers = "[{\"container_id\":\"c1\"}]",
                                           .limits = {.operations = {5, 6, 7}},
                                           .serial = "crust-abcdefghijklmn",
                                           .guest_device = "",
                                           .state = DRIVE_REMOVING,
                                           .status = STATUS_UNAVAILABLE,
                                           .message = "the guest is silent"};
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(4096);

    (void)state;
    assert_int_equal(http_append_drive(&json, &drive), 0);
    assert_string_equal(
        buffer_text(&json),
        "{\"drive_id\":\"data-1\",\"sandbox_id\":\"s1\",\"host_path\":\"/dev/\\\"x\\\"\","
        "\"vm_path\":\"/mnt/data\",\"filesystem_type\":\"ext4\",\"options\":[\"noatime\"],"
        "\"containers\":[{\"container_id\":\"c1\"}],"
        "\"is_writable\":false,\"rate_limiter\":{\"bandwidth\":null,\"ops\":{\"size\":5,"
        "\"refill_time_ms\":6,\"one_time_burst\":7}},\"serial\":\"crust-abcdefghijklmn\","
        "\"guest_device\":null,\"size_bytes\":0,\"is_wanted\":false,\"state\":\"removing\","
        "\"status\":\"UNAVAILABLE\",\"message\":\"the guest is silent\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_of_an_attach_is_read),
        cmocka_unit_test(absent_members_have_their_defaults),
        cmocka_unit_test(an_attach_that_is_not_understood_is_refused),
        cmocka_unit_test(containers_have_a_bound),
        cmocka_unit_test(a_refusal_shows_nothing_of_an_option),
        cmocka_unit_test(a_detach_names_its_drive_in_the_path),
        cmocka_unit_test(limits_call_requires_a_rate_limiter),
        cmocka_unit_test(a_drive_is_an_object),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
