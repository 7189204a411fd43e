/* SPDX-License-Identifier: Apache-2.0 */
/* drive_options_test.c - the command line of `crustctl drive`, and the JSON that it becomes. */
#include "crustctl/crustctl.h"

#include <errno.h>
#include <string.h>

#include "api/call.h"
#include "lib/cleanup.h"
#include "lib/proto.h"
#include "tests/unit/test.h"

enum { WORDS = 64 };

static struct options parse(const char *const *words, unsigned count)
{
    struct options options = {0};
    struct error error = {0};
    char *argv[WORDS + 2];

    assert_true(count <= WORDS);
    argv[0] = (char[]){"crustctl"};
    for (unsigned i = 0; i < count; i++) {
        const union {
            const char *constant;
            char *text;
        } word = {.constant = words[i]};

        argv[i + 1] = word.text;
    }
    argv[count + 1] = NULL;
    if (options_parse((int)count + 1, argv, &options, &error) != 0)
        fail_msg("%s", error.text);
    return options;
}

#define PARSE(...)                                                                                 \
    parse((const char *const[]){__VA_ARGS__},                                                      \
          sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))
#define LEAST                                                                                      \
    "--sandbox", "s1", "--host-path", "/dev/vg/data", "--vm-path", "/mnt/data", "--type", "ext4"

/* What the daemon makes of the body. */
static ProtobufCMessage *read_attach(const struct options *options, struct crust_attach *ret_attach)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(64 * 1024);
    ProtobufCMessage *message = NULL;
    struct error error = {0};
    struct message_source source;

    assert_int_equal(drive_options_append_attach(&options->drive, "data-1", &json, &error), 0);
    source = (struct message_source){.body = json.data, .body_length = json.length};
    if (message_read_json(&crust__drive__v1__attach_drive_request__descriptor, &source, &message,
                          &error) != STATUS_OK)
        fail_msg("%s: %s", buffer_text(&json), error.text);
    crust_read_attach((const void *)message, ret_attach);
    return message;
}

static void every_option_reaches_the_daemon(void **state)
{
    const struct options options =
        PARSE("drive", "attach", "data-1", LEAST, "--option", "noatime", "--option", "data=ordered",
              "--writable", "--fsck", "--fs-group", "2000", "--fs-group-policy", "OnRootMismatch",
              "--bandwidth", "1Mi/100/4Ki", "--operations", "500/1000", "--container",
              "c1:/data:a/b:ro", "--container", "c2:/data:ro", "--container", "c3:/data");
    struct crust_attach asked;
    ProtobufCMessage *message = read_attach(&options, &asked);
    const struct reconciler_drive_attach *attach = &asked.attach;

    assert_string_equal(attach->drive_id, "data-1");
    assert_string_equal(attach->sandbox_id, "s1");
    assert_string_equal(attach->host_path, "/dev/vg/data");
    assert_string_equal(attach->vm_path, "/mnt/data");
    assert_string_equal(attach->fs_type, "ext4");
    assert_int_equal(attach->options, 2);
    assert_string_equal(attach->option[1], "data=ordered");
    assert_true(attach->writable);
    assert_int_equal(attach->fsck, DRIVE_FSCK_PREEN);
    assert_true(attach->has_fs_group);
    assert_int_equal(attach->fs_group, 2000);
    assert_int_equal(attach->fs_group_policy, DRIVE_GROUP_ON_ROOT_MISMATCH);
    assert_int_equal(attach->limits.bandwidth.size, 1048576);
    assert_int_equal(attach->limits.bandwidth.refill_ms, 100);
    assert_int_equal(attach->limits.bandwidth.one_time_burst, 4096);
    assert_int_equal(attach->limits.operations.size, 500);
    assert_int_equal(attach->limits.operations.one_time_burst, 0);
    assert_int_equal(attach->containers, 3);
    assert_string_equal(attach->container[0].sub_path, "a/b");
    assert_true(attach->container[0].read_only && attach->container[1].read_only);
    assert_string_equal(attach->container[1].sub_path, "");
    assert_false(attach->container[2].read_only);
    (void)proto_free(message);
}

static void least_is_read_only(void **state)
{
    const struct options options = PARSE("drive", "attach", "data-1", LEAST);
    struct crust_attach asked;
    ProtobufCMessage *message = read_attach(&options, &asked);

    assert_false(asked.attach.writable || asked.attach.has_fs_group);
    assert_int_equal(asked.attach.fsck, DRIVE_FSCK_NONE);
    assert_int_equal(asked.attach.limits.bandwidth.size, 0);
    (void)proto_free(message);
}

static void limits_are_replaced_or_removed(void **state)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(4096);
    struct options options = PARSE("drive", "limits", "d", "--bandwidth", "none");
    struct error error = {0};

    assert_int_equal(drive_options_append_limits(&options.drive, &json, &error), 0);
    assert_string_equal(buffer_text(&json), "{\"rate_limiter\":{}}");
    buffer_clear(&json);
    options = PARSE("drive", "limits", "d", "--bandwidth", "1k/1", "--operations", "7/9/11");
    assert_int_equal(drive_options_append_limits(&options.drive, &json, &error), 0);
    assert_string_equal(
        buffer_text(&json),
        "{\"rate_limiter\":{\"bandwidth\":{\"size\":1000,\"refill_time_ms\":1,"
        "\"one_time_burst\":0},\"ops\":{\"size\":7,\"refill_time_ms\":9,\"one_time_burst\":11}}}");
    buffer_clear(&json);
    options = PARSE("drive", "limits", "d");
    assert_int_equal(drive_options_append_limits(&options.drive, &json, &error), -EINVAL);
}

static void repeated_options_are_bounded(void **state)
{
    char *argv[2 * (DRIVE_OPTIONS + 1) + 4] = {(char[]){"crustctl"}, (char[]){"drive"}};
    char option[] = "--option", value[] = "noatime";
    struct options options;
    struct error error = {0};
    int count = 2;

    for (unsigned i = 0; i <= DRIVE_OPTIONS; i++) {
        argv[count++] = option;
        argv[count++] = value;
    }
    assert_int_equal(options_parse(count, argv, &options, &error), -EINVAL);
    assert_string_equal(error.text, "--option is given more than 32 times");
    assert_int_equal(options_parse(count - 2, argv, &options, &error), 0);
    assert_int_equal(options.drive.options, DRIVE_OPTIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_reaches_the_daemon),
        cmocka_unit_test(least_is_read_only),
        cmocka_unit_test(limits_are_replaced_or_removed),
        cmocka_unit_test(repeated_options_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
