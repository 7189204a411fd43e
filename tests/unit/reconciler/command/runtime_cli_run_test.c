/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli_run_test.c - a runtime's tool run once: how it is called, what is believed of what it
 * said, and what is on record. The tool is one that ends as the test says. */
#include "tests/unit/reconciler/surroundings.h"

#include <errno.h>

#include "lib/cleanup.h"
#include "reconciler/command/runtime_cli.h"
#include "tests/unit/reconciler/fake_child.h"
#include "tests/unit/reconciler/fake_devices.h"

#define TOOL   "/opt/kata/bin/runtime-tool"
#define DETAIL "SELECT detail FROM journal ORDER BY seq DESC LIMIT 1"
#define STATS  "{\"usage\":[{\"available\":1,\"total\":11,\"used\":10,\"unit\":1}]}"

static struct {
    struct surroundings node;
    struct runtime_cli cli;
    struct runtime_cli_run *run;
    unsigned answers;
    bool is_answered;
} test;

static void on_done(const struct runtime_cli_answer *answer, void *userdata)
{
    assert_ptr_equal(userdata, &test);
    test.answers++;
    test.is_answered = answer;
    test.run = runtime_cli_free(test.run);
}

static int ask(bool resizes)
{
    const struct runtime_cli_question question = {
        .cli = &test.cli,
        .volume_id = test.node.bound.volume_id,
        .target_path = VOLUME_PATH,
        .resizes = resizes,
    };

    test.answers = 0;
    return runtime_cli_ask(&test.node.context, &question, on_done, &test, &test.run);
}

static void assert_detail(const char *text)
{
    assert_text_of(test.node.context.store, DETAIL, text);
}

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    clear_devices();
    fake_child_refused = 0;
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    test.cli = (struct runtime_cli){.program = TOOL, .root = -1};
    test.node.config.resize.call_timeout_seconds = 30;
    return 0;
}

static int tear_down(void **state)
{
    assert_null(runtime_cli_free(test.run));
    assert_null(fake_child);
    surroundings_end(&test.node);
    return 0;
}

static void an_exit_without_an_answer_is_on_record(void **state)
{
    static const struct {
        enum child_end end;
        int status;
        const char *output, *detail;
    } table[] = {
        {CHILD_EXITED, 3, STATS, "it ended with exit code 3"},
        {CHILD_KILLED, 9, STATS, "it was ended by signal 9"},
        {CHILD_TIMEOUT, 0, STATS, "it did not end within its time"},
        {CHILD_FLOOD, 0, STATS, "it said more than 65536 bytes"},
        {CHILD_EXITED, 0, "", "what it said is not understood"},
        {CHILD_EXITED, 0, "{}", "what it said is not understood"},
    };

    for (size_t i = 0; i < array_length(table); i++)
        for (int resizes = 0; resizes < 2; resizes++) {
            char detail[256];

            assert_int_equal(ask(resizes), 0);
            child_ends(table[i].end, table[i].status, table[i].output);
            assert_int_equal(test.answers, 1);
            assert_false(test.is_answered);
            (void)snprintf(detail, sizeof(detail), "{\"command\":\"%s\",\"error\":\"%s\"}",
                           resizes ? "resize" : "stats", table[i].detail);
            assert_detail(detail);
        }
}

static void a_volume_that_is_gone_by_then_has_no_answer(void **state)
{
    assert_int_equal(ask(false), 0);
    execute_sql(test.node.context.store, "PRAGMA foreign_keys = 0; DELETE FROM volumes");
    child_says(STATS);
    assert_int_equal(test.answers, 1);
    assert_false(test.is_answered);
}

static void a_tool_that_cannot_be_run_is_on_record(void **state)
{
    fake_child_refused = -ENOEXEC;
    assert_int_equal(ask(false), -ENOEXEC);
    assert_int_equal(test.answers, 0);
    assert_detail("{\"command\":\"stats\",\"error\":\"" TOOL
                  ": it can't be run: Exec format error\"}");
    fake_child_refused = -EPERM;
    test.cli.root = root;
    assert_int_equal(ask(false), -EPERM);
    assert_detail("{\"command\":\"stats\",\"error\":\"" TOOL
                  ": it can't be run: Operation not permitted (below --root that takes "
                  "CAP_SYS_CHROOT)\"}");
}

/* But an answer is passed on that cannot be recorded. */
static void a_tool_that_cannot_be_recorded_is_not_run(void **state)
{
    assert_int_equal(ask(false), 0);
    fail_writes(test.node.context.store);
    child_says(STATS);
    assert_true(test.is_answered);
    assert_int_equal(lines_of(test.node.context.store, "runtime_cli_answered"), 0);
    assert_true(ask(false) < 0);
    assert_null(fake_child);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* ---- what it may say of a volume on a device of 1000 bytes ---- */

enum { DEVICE = 1000 };

static int check_stats(const struct agent_stats *stats, uint64_t device_bytes)
{
    struct error error = {0};
    int r = runtime_cli_check_stats(stats, device_bytes, &error);

    assert_int_equal(r < 0, error.text[0] != '\0');
    return r;
}

static void stats_that_fit(void **state)
{
    struct agent_stats stats = {.has_bytes = true, .total = DEVICE, .used = 900, .available = 50};

    assert_int_equal(check_stats(&stats, DEVICE), 0);
    stats.has_inodes = true; /* all zero: a file system that counts none */
    assert_int_equal(check_stats(&stats, DEVICE), 0);
    stats.has_bytes = false;
    assert_int_equal(check_stats(&stats, 0), 0); /* nothing to be held against a device */
}

static void stats_that_do_not(void **state)
{
    static const struct agent_stats stats[] = {
        {.has_bytes = true, .total = DEVICE + 1},
        {.has_bytes = true, .total = 0},
        {.has_bytes = true, .total = UINT64_MAX},
        {.has_bytes = true, .total = DEVICE, .used = DEVICE + 1},
        {.has_bytes = true, .total = DEVICE, .available = DEVICE + 1},
        {.has_inodes = true, .total_inodes = 5, .used_inodes = 6},
        {.has_inodes = true, .total_inodes = 5, .available_inodes = 6},
    };
    struct agent_stats good = {.has_bytes = true, .total = 1};

    for (size_t i = 0; i < array_length(stats); i++)
        assert_int_equal(check_stats(&stats[i], DEVICE), -ERANGE);
    assert_int_equal(check_stats(&good, 0), -ERANGE);
}

static void capacities(void **state)
{
    static const struct {
        uint64_t bytes, required, limit, device;
        int outcome;
    } cases[] = {
        {DEVICE, 0, 0, DEVICE, 0},      {DEVICE, DEVICE, DEVICE, DEVICE, 0},
        {990, 980, 0, DEVICE, 0},       {DEVICE + 1, 0, 0, DEVICE, -ERANGE},
        {990, 991, 0, DEVICE, -ERANGE}, {990, 0, 989, DEVICE, -ERANGE},
        {0, 0, 0, DEVICE, -ERANGE},     {990, 0, 0, 0, -ERANGE},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct error error = {0};

        assert_int_equal(runtime_cli_check_capacity(cases[i].bytes, cases[i].required,
                                                    cases[i].limit, cases[i].device, &error),
                         cases[i].outcome);
        assert_int_equal(cases[i].outcome < 0, error.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_exit_without_an_answer_is_on_record),
        TEST(a_volume_that_is_gone_by_then_has_no_answer),
        TEST(a_tool_that_cannot_be_run_is_on_record),
        TEST(a_tool_that_cannot_be_recorded_is_not_run),
        cmocka_unit_test(stats_that_fit),
        cmocka_unit_test(stats_that_do_not),
        cmocka_unit_test(capacities),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
