/* SPDX-License-Identifier: Apache-2.0 */
/* agent_messages_test.c - payloads there and back, hostile ones, the shape of the schema, and what
 * errors from a guest look like when a person reads them. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/agent_messages.h"
#include "agent-client/crust_drive.pb-c.h"
#include "lib/proto.h"

static void a_resize_request_comes_back(void **state)
{
    static const char bytes[] = "\x0a\x04/mnt\x10\x80\x80\x80\x80\x08";
    struct buffer payload = BUFFER_INIT(0);
    char path[AGENT_PATH_BYTES];
    uint64_t size = 0;

    assert_int_equal(agent_append_request(&payload, "/mnt", UINT64_C(1) << 31), 0);
    assert_int_equal(payload.length, sizeof(bytes) - 1);
    assert_memory_equal(payload.data, bytes, sizeof(bytes) - 1);
    assert_int_equal(agent_parse_request(payload.data, payload.length, path, &size), 0);
    assert_string_equal(path, "/mnt");
    assert_int_equal(size, UINT64_C(1) << 31);
    buffer_done(&payload);
}

static void bad_paths_are_refused(void **state)
{
    struct buffer payload = BUFFER_INIT(0);
    char path[AGENT_PATH_BYTES], *longest = calloc(1, AGENT_PATH_BYTES + 1);
    uint64_t size;

    assert_non_null(longest);
    assert_int_equal(agent_parse_request("", 0, path, &size), -EINVAL);
    assert_int_equal(agent_parse_request("\x0a\x03/\0a", 5, path, NULL), -EINVAL);
    assert_int_equal(agent_parse_request("\x0a\x09/", 3, path, NULL), -EBADMSG);
    memset(longest, 'a', AGENT_PATH_BYTES);
    assert_int_equal(agent_append_request(&payload, longest, 0), 0);
    assert_int_equal(agent_parse_request(payload.data, payload.length, path, NULL), -EINVAL);
    buffer_clear(&payload);
    longest[AGENT_PATH_BYTES - 1] = '\0';
    assert_int_equal(agent_append_request(&payload, longest, 0), 0);
    assert_int_equal(agent_parse_request(payload.data, payload.length, path, NULL), 0);
    assert_string_equal(path, longest);
    free(longest);
    buffer_done(&payload);
}

static void stats_come_back(void **state)
{
    struct agent_stats sent = {
        .has_bytes = true,
        .total = UINT64_MAX,
        .used = 3,
        .available = 4,
        .has_inodes = true,
        .total_inodes = 5,
        .used_inodes = 6,
        .available_inodes = 7,
        .abnormal = true,
        .condition = "bad\nly",
    };
    struct agent_stats received;
    struct buffer payload = BUFFER_INIT(0);

    assert_int_equal(agent_append_stats(&payload, &sent), 0);
    assert_int_equal(agent_parse_stats(payload.data, payload.length, &received), 0);
    assert_true(received.has_bytes && received.has_inodes && received.abnormal);
    assert_int_equal(received.total, UINT64_MAX);
    assert_int_equal(received.used, 3);
    assert_int_equal(received.available, 4);
    assert_int_equal(received.total_inodes, 5);
    assert_int_equal(received.used_inodes, 6);
    assert_int_equal(received.available_inodes, 7);
    assert_string_equal(received.condition, "bad ly"); /* it is cleaned */
    buffer_done(&payload);
}

static void stats_may_be_sparse_or_repeated(void **state)
{
    struct agent_stats stats;

    assert_int_equal(agent_parse_stats("", 0, &stats), 0);
    assert_false(stats.has_bytes || stats.has_inodes || stats.abnormal);
    assert_string_equal(stats.condition, "");
    /* an unknown unit, BYTES with total 9, BYTES again with total 8 */
    assert_int_equal(agent_parse_stats("\x0a\x02\x20\x07\x0a\x04\x10\x09\x20\x01\x0a\x04\x10\x08"
                                       "\x20\x01",
                                       16, &stats),
                     0);
    assert_true(stats.has_bytes);
    assert_int_equal(stats.total, 9);
    /* INODES with total 0: btrfs, as kata-agent and older agents report it */
    assert_int_equal(agent_parse_stats("\x0a\x02\x20\x02", 4, &stats), 0);
    assert_false(stats.has_inodes);
    assert_int_equal(agent_parse_stats("\x0a\xff", 2, &stats), -EBADMSG);
}

/* 64 KiB of empty sub-messages would take megabytes. */
static void memory_is_bounded(void **state)
{
    enum { PAIRS = 512 * 1024 };
    char *bytes = malloc(2 * PAIRS);
    struct agent_stats stats;

    assert_non_null(bytes);
    for (size_t i = 0; i < PAIRS; i++)
        memcpy(bytes + 2 * i, "\x0a\x00", 2);
    assert_int_equal(agent_parse_stats(bytes, 2 * PAIRS, &stats), -EBADMSG);
    assert_int_equal(agent_parse_stats(bytes, 2 * 64, &stats), 0);
    free(bytes);
}

/* protobuf-c follows nesting without a limit, so nothing may nest in itself: a walk that comes to
 * more levels than there are messages has gone round. */
static void walk(const ProtobufCMessageDescriptor *message, unsigned depth)
{
    assert_true(depth < 4);
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];

        assert_int_not_equal(field->type, PROTOBUF_C_TYPE_STRING);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            walk(field->descriptor, depth + 1);
    }
}

static void no_message_contains_itself(void **state)
{
    walk(&agent__request__descriptor, 0);
    walk(&agent__response__descriptor, 0);
    walk(&agent__resize_volume_request__descriptor, 0);
    walk(&agent__volume_stats_response__descriptor, 0);
    walk(&crust__guest__v1__mount_drive_request__descriptor, 0);
    walk(&crust__guest__v1__mount_drive_response__descriptor, 0);
    walk(&crust__guest__v1__unmount_drive_request__descriptor, 0);
    walk(&crust__guest__v1__unmount_drive_response__descriptor, 0);
    walk(&crust__guest__v1__list_drives_response__descriptor, 0);
}

static void check(const char *text, size_t length, const char *expected)
{
    char *exact = malloc(length + 1), clean[64];

    assert_non_null(exact);
    memcpy(exact, text, length);
    agent_clean_text(exact, length, clean, sizeof(clean));
    assert_string_equal(clean, expected);
    free(exact);
}

#define CHECK(text, expected) check(text, sizeof(text) - 1, expected)

static void quotes_around_the_text_go(void **state)
{
    CHECK("\"resize_volume is not implemented\"", "resize_volume is not implemented");
    CHECK("\"\\\"twice\\\"\"", "twice");
    CHECK(" \n\"x\" \n", "x");
    CHECK("\"a\" and \"b", "\"a\" and \"b");
    CHECK("\"", "\"");
    CHECK("\"\"", "");
    CHECK("", "");
}

static void controls_and_bad_bytes_are_escaped(void **state)
{
    CHECK("a\tb\x1b[31m", "a\\tb\\u001b[31m");
    CHECK("a\0b", "a\\u0000b");
    CHECK("gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f");
    CHECK("\xff", "\xef\xbf\xbd");
    CHECK("\xc2\x85", "\\u0085");
}

static void backtrace_goes_and_lines_are_joined(void **state)
{
    CHECK("the file /x was not found\n\nStack backtrace:\n   0: <unknown>\n",
          "the file /x was not found");
    CHECK("\"no\"\n\nStack backtrace:\n   0: <unknown>", "no");
    CHECK("make it\n\nCaused by:\n    0: one\n    1: two\n\nStack backtrace:\n   0: <unknown>",
          "make it Caused by: 0: one 1: two");
    CHECK("Stack backtrace:", "Stack backtrace:");
    CHECK("a  b \t\n", "a  b");
}

static void long_texts_are_cut_between_characters(void **state)
{
    char clean[8];

    agent_clean_text("abcdefghij", 10, clean, sizeof(clean));
    assert_string_equal(clean, "abcdefg");
    agent_clean_text("abcdef\xc3\xbc", 8, clean, sizeof(clean));
    assert_string_equal(clean, "abcdef");
    agent_clean_text("x", 1, clean, 1);
    assert_string_equal(clean, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resize_request_comes_back),
        cmocka_unit_test(bad_paths_are_refused),
        cmocka_unit_test(stats_come_back),
        cmocka_unit_test(stats_may_be_sparse_or_repeated),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(no_message_contains_itself),
        cmocka_unit_test(quotes_around_the_text_go),
        cmocka_unit_test(controls_and_bad_bytes_are_escaped),
        cmocka_unit_test(backtrace_goes_and_lines_are_joined),
        cmocka_unit_test(long_texts_are_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
