/* SPDX-License-Identifier: Apache-2.0 */
/* shim_codec_test.c - what both of Kata's shims are asked and answer, as their sources have it. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/shim_client.h"
#include "lib/cleanup.h"

#define DEVICE "/dev/disk/by id/50%+\"a\xc3\xbc"

static struct buffer target, request_body;
static const char *method;

static int encode(enum shim_dialect dialect, const char *volume, bool stats)
{
    buffer_done(&target);
    buffer_done(&request_body);
    buffer_init(&target, SHIM_QUERY_BYTES);
    buffer_init(&request_body, SHIM_QUERY_BYTES);
    return shim_encode(dialect, volume, stats, UINT64_MAX, &method, &target, &request_body);
}

static void a_resize_is_json_of_the_dialect(void **state)
{
    static const struct {
        enum shim_dialect dialect;
        const char *body;
    } table[] = {
        {SHIM_GO, "{\"VolumePath\":\"/dev/disk/by id/50%+\\\"a\xc3\xbc\",\"Size\":"
                  "18446744073709551615}"},
        {SHIM_RUST, "{\"volume_guest_path\":\"/dev/disk/by id/50%+\\\"a\xc3\xbc\",\"size\":"
                    "18446744073709551615}"},
    };

    for (size_t i = 0; i < array_length(table); i++) {
        assert_int_equal(encode(table[i].dialect, DEVICE, false), 0);
        assert_string_equal(method, "POST");
        assert_string_equal(buffer_text(&target), "/direct-volume/resize");
        assert_string_equal(buffer_text(&request_body), table[i].body);
    }
}

/* Go decodes twice, Rust once and only within a whole URL. */
static void stats_are_asked_for_around_the_faults(void **state)
{
    static const struct {
        enum shim_dialect dialect;
        const char *method, *target;
    } table[] = {
        {SHIM_GO, "GET",
         "/direct-volume/stats?path=/dev/disk/by%2520id/50%2525%252B%2522a%25C3%25BC"},
        {SHIM_RUST, "POST",
         "http://localhost/direct-volume/stats?path=/dev/disk/by%20id/50%25%2B%22a%C3%BC"},
    };

    for (size_t i = 0; i < array_length(table); i++) {
        assert_int_equal(encode(table[i].dialect, DEVICE, true), 0);
        assert_string_equal(method, table[i].method);
        assert_string_equal(buffer_text(&target), table[i].target);
        assert_int_equal(request_body.length, 0);
    }
}

static void check_refused(const char *volume, int expected)
{
    for (unsigned dialect = SHIM_GO; dialect <= SHIM_RUST; dialect++) {
        assert_int_equal(encode(dialect, volume, false), expected);
        assert_int_equal(encode(dialect, volume, true), expected);
    }
}

static void the_longest_path_goes_and_no_longer_one(void **state)
{
    static char path[AGENT_PATH_BYTES + 1];

    memset(path, '\x01', AGENT_PATH_BYTES - 1); /* the one that needs most */
    check_refused(path, 0);
    path[AGENT_PATH_BYTES - 1] = '/';
    check_refused(path, -EMSGSIZE);
    check_refused("/dev/\xff", -EILSEQ);
}

static void check_outcome(unsigned status, const char *body, enum agent_outcome expected,
                          const char *text)
{
    struct error error = {.text = ""};

    assert_int_equal(shim_outcome(status, body, strlen(body), &error), expected);
    if (expected != AGENT_DONE)
        assert_string_equal(error.text, text);
}

static void the_agents_word_comes_through(void **state)
{
    static const struct {
        const char *body;
        enum agent_outcome outcome;
        const char *text;
    } table[] = {
        {"rpc error: code = Unavailable desc = ", AGENT_FAILED, "by the shim: UNAVAILABLE"},
        {"rpc error: code = DeadlineExceeded desc = the file system is still growing", AGENT_FAILED,
         "by the shim: DEADLINE_EXCEEDED: the file system is still growing"},
    };

    for (size_t i = 0; i < array_length(table); i++)
        check_outcome(500, table[i].body, table[i].outcome, table[i].text);
}

/* Errors of the shim's own, and what only resembles the agent's. */
static void the_shims_word_is_not_the_agents(void **state)
{
    static const char *const bodies[] = {
        "stat /dev/sdx: no such file or directory",
        "mount /dev/sdx not found in sandbox",
        ("Failed to check if grpc server is working: rpc error: code = DeadlineExceeded desc = "
         "timed out connecting to vsock 7:1024"),
        "rpc error: code = OK desc = x",
        "rpc error: code = Code(0) desc = x",
        "rpc error: code = Code(4294967296) desc = x",
        "rpc error: code = Code( desc = x",
        "rpc error: code = Internal",
        "rpc error: code = Unimplementedly desc = x",
        "rpc error: code =",
        "ttrpc: closed",
    };
    char text[256];

    for (size_t i = 0; i < array_length(bodies); i++) {
        (void)snprintf(text, sizeof(text), "the shim answers 500: %s", bodies[i]);
        check_outcome(500, bodies[i], AGENT_UNREACHABLE, text);
    }
    check_outcome(500, "", AGENT_UNREACHABLE, "the shim answers 500");
    check_outcome(503, "rpc error: code = Unimplemented desc = x", AGENT_UNREACHABLE,
                  "the shim answers 503: rpc error: code = Unimplemented desc = x");
    check_outcome(400, "a\x1b[2J\n", AGENT_UNREACHABLE, "the shim answers 400: a\\u001b[2J");
}

static void shim_without_the_call_is_reported_unsupported(void **state)
{
    check_outcome(405, "", AGENT_UNSUPPORTED, "the shim answers 405");
    check_outcome(501, "", AGENT_UNSUPPORTED, "the shim answers 501");
    check_outcome(200, "", AGENT_DONE, NULL);
}

static int parse(enum shim_dialect dialect, const char *body, struct agent_stats *stats)
{
    return shim_parse_stats(dialect, body, strlen(body), stats);
}

#define GO_STATS                                                                                   \
    "{\"usage\":[{\"available\":900,\"total\":1000,\"used\":100,\"unit\":1},{\"available\":9,"     \
    "\"total\":10,\"used\":1,\"unit\":2}],\"volume_condition\":{\"abnormal\":true,\"message\":"    \
    "\"a \\\"b\\\"\"}}"
#define SPECIAL                                                                                    \
    "special_fields: SpecialFields { unknown_fields: UnknownFields { fields: None }, "             \
    "cached_size: CachedSize { size: 0 } }"
#define RUST_STATS                                                                                 \
    "Usage: [VolumeUsage { available: 900, total: 1000, used: 100, unit: BYTES, " SPECIAL " }, "   \
    "VolumeUsage { available: 9, total: 10, used: 1, unit: INODES, " SPECIAL " }] "                \
    "Volume Condition: VolumeCondition { abnormal: true, message: \"a \\\"b\\\"\", " SPECIAL " }"

static void stats_are_read_in_both_dialects(void **state)
{
    static const char *const bodies[] = {[SHIM_GO] = GO_STATS, [SHIM_RUST] = RUST_STATS};

    for (unsigned dialect = SHIM_GO; dialect <= SHIM_RUST; dialect++) {
        struct agent_stats stats;

        assert_int_equal(parse(dialect, bodies[dialect], &stats), 0);
        assert_true(stats.has_bytes && stats.has_inodes && stats.abnormal);
        assert_int_equal(stats.total, 1000);
        assert_int_equal(stats.used, 100);
        assert_int_equal(stats.available, 900);
        assert_int_equal(stats.total_inodes, 10);
        assert_int_equal(stats.used_inodes, 1);
        assert_int_equal(stats.available_inodes, 9);
        assert_string_equal(stats.condition, dialect == SHIM_GO ? "a \"b\"" : "a \\\"b\\\"");
    }
}

/* What is left out, zero, of another unit, or there twice. */
static void odd_stats_are_read(void **state)
{
    static const struct {
        enum shim_dialect dialect;
        const char *body;
        bool has_bytes;
        uint64_t total;
    } table[] = {
        {SHIM_GO, "{\"volume_condition\":{}}", false, 0},
        {SHIM_GO, "{}", false, 0},
        {SHIM_GO, "{\"usage\":[{\"unit\":1}]}", true, 0},
        {SHIM_GO, "{\"usage\":[{\"total\":7,\"unit\":9},{\"total\":5,\"unit\":1},{\"unit\":1}]}",
         true, 5},
        {SHIM_RUST,
         "Usage: [] Volume Condition: VolumeCondition { abnormal: false, message: \"\", x }", false,
         0},
        {SHIM_RUST,
         "Usage: [VolumeUsage { available: 0, total: 7, used: 7, unit: UNKNOWN, x }] Volume "
         "Condition: VolumeCondition { abnormal: false, message: \"\", x }",
         false, 0},
        {SHIM_RUST,
         "Usage: [VolumeUsage { available: 0, total: 7, used: 7, unit: 9, x: [1, 2] }, VolumeUsage "
         "{ available: 0, total: 18446744073709551615, used: 7, unit: BYTES }] Volume Condition: "
         "VolumeCondition { abnormal: false, message: \"VolumeUsage { \", x }",
         true, UINT64_MAX},
    };

    for (size_t i = 0; i < array_length(table); i++) {
        struct agent_stats stats;

        assert_int_equal(parse(table[i].dialect, table[i].body, &stats), 0);
        assert_int_equal(stats.has_bytes, table[i].has_bytes);
        assert_int_equal(stats.total, table[i].total);
        assert_false(stats.abnormal);
    }
}

static void malformed_stats_are_refused(void **state)
{
    static const struct {
        enum shim_dialect dialect;
        const char *body;
    } table[] = {
        {SHIM_GO, ""},
        {SHIM_GO, "<html>"},
        {SHIM_GO, RUST_STATS},
        {SHIM_GO, "{\"usage\":[{\"total\":-1,\"unit\":1}]}"},
        {SHIM_GO, "{\"usage\":[{\"total\":\"1\",\"unit\":1}]}"},
        {SHIM_GO, "{\"usage\":[{\"total\":1,\"TOTAL\":2,\"unit\":1}]}"},
        {SHIM_RUST, ""},
        {SHIM_RUST, GO_STATS},
        {SHIM_RUST, "Usage: []"},
        {SHIM_RUST, "Usage: [VolumeUsage { available: 1, total: 2, used: 3, unit: BYTES"},
        {SHIM_RUST, "Usage: [] Volume Condition: VolumeCondition { abnormal: maybe"},
        {SHIM_RUST, "Usage: [] Volume Condition: VolumeCondition { abnormal: true, message: \"a\\"},
        {SHIM_RUST, "Usage: [VolumeUsage { total: 2 }] Volume Condition: VolumeCondition { "
                    "abnormal: true, message: \"\" }"},
        {SHIM_RUST, "Usage: [VolumeUsage { available: 1, total: 99999999999999999999, used: 3, "
                    "unit: BYTES }] Volume Condition: VolumeCondition { abnormal: true, message: "
                    "\"\" }"},
    };

    for (size_t i = 0; i < array_length(table); i++) {
        struct agent_stats stats = {.total = 4711};

        assert_int_equal(parse(table[i].dialect, table[i].body, &stats), -EBADMSG);
        assert_int_equal(stats.total, 4711);
    }
}

static void a_stat_with_a_nul_is_refused(void **state)
{
    char body[] = RUST_STATS;
    struct agent_stats stats;

    body[sizeof(body) - 4] = '\0';
    assert_int_equal(shim_parse_stats(SHIM_RUST, body, sizeof(body) - 1, &stats), -EBADMSG);
}

static void the_agents_url_is_read(void **state)
{
    static const struct {
        const char *body, *address; /* NULL: refused */
    } table[] = {
        {"vsock://7:1024", "vsock://7:1024"},
        {"vsock://7", "vsock://7:1030"},
        {"hvsock:///run/kata/x/ch-vm.sock\n", "hvsock:///run/kata/x/ch-vm.sock:1030"},
        {"unix:///run/agent.sock\r\n ", "unix:///run/agent.sock"},
        {"", NULL},
        {" \n", NULL},
        {":1024", NULL},
        {"remote:///run/x.sock:1024", NULL},
        {"vsock://2:1024", NULL},
        {"unix:///a/path/that/is/longer/than/there/is/room", NULL},
    };
    char address[40];

    for (size_t i = 0; i < array_length(table); i++) {
        const char *body = table[i].body;
        int r = shim_parse_agent_url(body, strlen(body), 1030, address, sizeof(address));

        assert_int_equal(r, table[i].address ? 0 : -EINVAL);
        if (r == 0)
            assert_string_equal(address, table[i].address);
    }
    assert_int_equal(shim_parse_agent_url("vsock://7\0", 10, 1030, address, sizeof(address)),
                     -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resize_is_json_of_the_dialect),
        cmocka_unit_test(stats_are_asked_for_around_the_faults),
        cmocka_unit_test(the_longest_path_goes_and_no_longer_one),
        cmocka_unit_test(the_agents_word_comes_through),
        cmocka_unit_test(the_shims_word_is_not_the_agents),
        cmocka_unit_test(shim_without_the_call_is_reported_unsupported),
        cmocka_unit_test(stats_are_read_in_both_dialects),
        cmocka_unit_test(odd_stats_are_read),
        cmocka_unit_test(malformed_stats_are_refused),
        cmocka_unit_test(a_stat_with_a_nul_is_refused),
        cmocka_unit_test(the_agents_url_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
