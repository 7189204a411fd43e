/* SPDX-License-Identifier: Apache-2.0 */
/* message_test.c - JSON as messages: what is understood, and what is refused rather than ignored;
 * and the bounds of every message. */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/proto/crust_management.pb-c.h"
#include "api/proto/crust_runtime.pb-c.h"
#include "lib/cleanup.h"
#include "lib/proto.h"
#include "tests/unit/test.h"

#define NAMES                                                                                      \
    "\"drive_id\":\"data-1\",\"sandbox_id\":\"s1\",\"host_path\":\"/dev/vg/data\","                \
    "\"vm_path\":\"/mnt/data\",\"filesystem_type\":\"ext4\""

#define ATTACH (&crust__drive__v1__attach_drive_request__descriptor)
#define DETACH (&crust__drive__v1__detach_drive_request__descriptor)
#define LIMITS (&crust__drive__v1__update_drive_limits_request__descriptor)

static enum status_code read_with(const ProtobufCMessageDescriptor *type, const char *id,
                                  const char *body, ProtobufCMessage **ret_message,
                                  struct error *error)
{
    const struct message_source source = {id, id ? strlen(id) : 0, type == DETACH, body,
                                          strlen(body)};

    *ret_message = NULL;
    *error = (struct error){0};
    return message_read_json(type, &source, ret_message, error);
}

static void expect_refused(const ProtobufCMessageDescriptor *type, const char *id, const char *body,
                           const char *text)
{
    ProtobufCMessage *message;
    struct error error;

    if (read_with(type, id, body, &message, &error) != STATUS_INVALID_ARGUMENT ||
        !strstr(error.text, text))
        fail_msg("%s: \"%s\" has no \"%s\"", body, error.text, text);
    assert_null(message);
}

static ProtobufCMessage *read_attach(const char *body, struct crust_attach *ret_attach)
{
    ProtobufCMessage *message;
    struct error error;

    if (read_with(ATTACH, NULL, body, &message, &error) != STATUS_OK)
        fail_msg("%s: %s", body, error.text);
    crust_read_attach((const void *)message, ret_attach);
    return message;
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
    struct crust_attach asked;
    ProtobufCMessage *message = read_attach(body, &asked);

    attach = &asked.attach;
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
    (void)proto_free(message);
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

    for (size_t i = 0; i < array_length(bodies); i++) {
        struct crust_attach asked;
        ProtobufCMessage *message = read_attach(bodies[i], &asked);

        assert_false(asked.attach.writable);
        assert_false(asked.attach.has_fs_group);
        assert_int_equal(asked.attach.fsck, DRIVE_FSCK_NONE);
        assert_int_equal(asked.attach.fs_group_policy, DRIVE_GROUP_ALWAYS);
        assert_int_equal(asked.attach.limits.operations.size, 0);
        (void)proto_free(message);
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
        {"{" NAMES ",\"options\":\"ro\"}", "options is no list"},
        {"{" NAMES ",\"options\":[1]}", "options[0] is no text"},
        {"{" NAMES ",\"fsck\":\"force\"}", "fsck is neither"},
        {"{" NAMES ",\"fsck\":1}", "fsck is neither"},
        {"{" NAMES ",\"fs_group\":-1}", "fs_group is no number"},
        {"{" NAMES ",\"fs_group\":\"1000\"}", "fs_group is no number"},
        {"{" NAMES ",\"fs_group\":4294967296}", "fs_group must be less than 4294967295"},
        {"{" NAMES ",\"fs_group_change_policy\":\"Never\"}", "fs_group_change_policy is neither"},
        {"{" NAMES ",\"rate_limiter\":[]}", "rate_limiter is no JSON object"},
        {"{" NAMES ",\"rate_limiter\":{\"iops\":{}}}", "rate_limiter has a member"},
        {"{" NAMES ",\"rate_limiter\":{\"ops\":{\"size\":\"1Ki\",\"refill_time_ms\":1}}}",
         "rate_limiter.ops.size is no number"},
        {"{" NAMES ",\"rate_limiter\":{\"bandwidth\":{\"size\":\"1KB\",\"refill_time_ms\":1}}}",
         "rate_limiter.bandwidth.size is no number of bytes"},
        {"{" NAMES ",\"rate_limiter\":{\"bandwidth\":{\"burst\":1}}}",
         "rate_limiter.bandwidth has a member"},
        {"{" NAMES ",\"containers\":{}}", "containers is no list"},
        {"{" NAMES ",\"containers\":[\"c1\"]}", "containers[0] is no JSON object"},
        {"{" NAMES ",\"containers\":[{\"container_id\":\"c1\",\"path\":5}]}",
         "containers[0].path is no text"},
        {"{" NAMES ",\"containers\":[{\"id\":\"c1\"}]}", "containers[0] has a member"},
        {"{\"drive_id\":7}", "drive_id is no text"},
        {"{\"drive_id\":\"0123456789012345678901234567890123456\"}", "drive_id is too long"},
    };

    for (size_t i = 0; i < array_length(cases); i++)
        expect_refused(ATTACH, NULL, cases[i].body, cases[i].text);
}

static void containers_have_a_bound(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(4096);

    buffer_append_text(&body, "{" NAMES ",\"containers\":[{}");
    for (unsigned i = 0; i < DRIVE_CONTAINERS; i++)
        buffer_append_text(&body, ",{}");
    assert_int_equal(buffer_append_text(&body, "]}"), 0);
    expect_refused(ATTACH, NULL, buffer_text(&body), "containers");
}

static void a_refusal_shows_nothing_of_an_option(void **state)
{
    static const char body[] = "{" NAMES ",\"options\":[\"token=hunter2\"],\"hunter2\":1}";
    ProtobufCMessage *message;
    struct error error;

    assert_int_equal(read_with(ATTACH, NULL, body, &message, &error), STATUS_INVALID_ARGUMENT);
    assert_null(strstr(error.text, "hunter2"));
}

static void a_detach_names_its_drive_in_the_path(void **state)
{
    static const char *const bodies[] = {"", "{}"};
    ProtobufCMessage *message;
    struct error error;

    for (size_t i = 0; i < array_length(bodies); i++) {
        const Crust__Drive__V1__DetachDriveRequest *request;

        assert_int_equal(read_with(DETACH, "data-1", bodies[i], &message, &error), STATUS_OK);
        request = (const void *)message;
        assert_string_equal(message_text(&request->drive_id), "data-1");
        (void)proto_free(message);
    }
    expect_refused(DETACH, "d", "{\"force\":true}", "has a member that is not known");
    expect_refused(DETACH, "d", "{\"drive_id\":\"d\"}", "has a member that is not known");
    expect_refused(DETACH, "d", "null", "no JSON object");
    expect_refused(DETACH, "0123456789012345678901234567890123456", "", "drive_id is too long");
    expect_refused(DETACH, "\xff", "", "drive_id is not UTF-8");
}

static void limits_tell_none_from_empty(void **state)
{
    const Crust__Drive__V1__UpdateDriveLimitsRequest *request;
    ProtobufCMessage *message;
    struct error error;

    expect_refused(LIMITS, "d", "", "the body: ");
    expect_refused(LIMITS, "d", "{\"bandwidth\":{}}", "has a member");
    assert_int_equal(read_with(LIMITS, "d", "{}", &message, &error), STATUS_OK);
    request = (const void *)message;
    assert_null(request->rate_limiter);
    (void)proto_free(message);
    assert_int_equal(read_with(LIMITS, "d", "{\"rate_limiter\":{}}", &message, &error), STATUS_OK);
    request = (const void *)message;
    assert_non_null(request->rate_limiter);
    (void)proto_free(message);
}

/* By their descriptors: each field of each request has its bound and its kind of failure. */
static void texts_are_bounded(void **state)
{
    static const struct {
        const ProtobufCMessageDescriptor *type;
        size_t offset; /* of a text */
        size_t limit;
    } texts[] = {
#define TEXT(package, name, field, limit)                                                          \
    {&package##__##name##_request__descriptor, offsetof(STRUCT_##name, field), limit}
#define STRUCT_runtime_stage_volume   Crust__V1__RuntimeStageVolumeRequest
#define STRUCT_runtime_publish_volume Crust__Management__V1__RuntimePublishVolumeRequest
#define STRUCT_attach_drive           Crust__Drive__V1__AttachDriveRequest
        TEXT(crust__v1, runtime_stage_volume, volume_target_path, 4095),
        TEXT(crust__v1, runtime_stage_volume, volume_backing_path, 4095),
        TEXT(crust__v1, runtime_stage_volume, fs_type, 127),
        TEXT(crust__v1, runtime_stage_volume, volume_supplemental_group, 127),
        TEXT(crust__management__v1, runtime_publish_volume, sandbox_id, 128),
        TEXT(crust__management__v1, runtime_publish_volume, host_volume_id, 4095),
        TEXT(crust__management__v1, runtime_publish_volume, host_target_path, 4095),
        TEXT(crust__management__v1, runtime_publish_volume, file_system, 127),
        TEXT(crust__management__v1, runtime_publish_volume, fsgroup_policy, 127),
        TEXT(crust__drive__v1, attach_drive, drive_id, 36),
        TEXT(crust__drive__v1, attach_drive, sandbox_id, 128),
        TEXT(crust__drive__v1, attach_drive, host_path, 1023),
        TEXT(crust__drive__v1, attach_drive, vm_path, 1023),
        TEXT(crust__drive__v1, attach_drive, filesystem_type, 31),
    };
    static char x[8192];

    memset(x, 'x', sizeof(x));
    for (size_t i = 0; i < array_length(texts); i++) {
        const struct {
            ProtobufCBinaryData text;
            const char *refusal;
        } cases[] = {
            {{0, NULL}, NULL},
            {{texts[i].limit, (uint8_t *)x}, NULL},
            {{texts[i].limit + 1, (uint8_t *)x}, " is too long"},
            {{3, (uint8_t[]){'a', 0, 'b'}}, " is not UTF-8, or has a NUL"},
            {{1, (uint8_t[]){0xff}}, " is not UTF-8, or has a NUL"},
        };

        for (size_t j = 0; j < array_length(cases); j++) {
            cleanup(freep) ProtobufCMessage *message = calloc(1, texts[i].type->sizeof_message);
            struct error error = {0};

            protobuf_c_message_init(texts[i].type, message);
            memcpy((char *)message + texts[i].offset, &cases[j].text, sizeof(cases[j].text));
            assert_int_equal(message_check(message, &error),
                             cases[j].refusal ? STATUS_INVALID_ARGUMENT : STATUS_OK);
            if (cases[j].refusal)
                assert_non_null(strstr(error.text, cases[j].refusal));
        }
    }
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
        cmocka_unit_test(limits_tell_none_from_empty),
        cmocka_unit_test(texts_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
