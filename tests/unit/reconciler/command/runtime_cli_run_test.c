/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli_run_test.c - a runtime's tool run once: how it is called, what is believed of what it
 * said, and what is on record. The tool is one that ends as the test says. */
#include "tests/unit/reconciler/surroundings.h"

#include "reconciler/command/runtime_cli.h"
#include "tests/unit/reconciler/fake_child.h"
#include "tests/unit/reconciler/fake_devices.h"

#define TOOL   "/opt/kata/bin/runtime-tool"
#define DETAIL "SELECT detail FROM journal ORDER BY seq DESC LIMIT 1"
#define STATS                                                                                      \
    "{\"usage\":[{\"available\":1,\"total\":11,\"used\":10,\"unit\":1},"                           \
    "{\"available\":2,\"total\":22,\"used\":20,\"unit\":2}],"                                      \
    "\"volume_condition\":{\"abnormal\":true,\"message\":\"half full\"}}"

static struct {
    struct surroundings node;
    struct runtime_cli cli;
    int64_t intended; /* lines, when it was started */
    struct runtime_cli_run *run;
    unsigned answers;
    bool is_answered;
    struct runtime_cli_answer answer;
} test;

static void count_intents(void)
{
    test.intended = lines_of(test.node.context.store, "runtime_cli_intended");
}

static void on_done(const struct runtime_cli_answer *answer, void *userdata)
{
    assert_ptr_equal(userdata, &test);
    test.answers++;
    test.is_answered = answer;
    if (answer)
        test.answer = *answer;
    test.run = runtime_cli_free(test.run);
}

static int ask(bool resizes, uint64_t required_bytes, uint64_t limit_bytes)
{
    const struct runtime_cli_question question = {
        .cli = &test.cli,
        .volume_id = test.node.bound.volume_id,
        .target_path = VOLUME_PATH,
        .resizes = resizes,
        .required_bytes = required_bytes,
        .limit_bytes = limit_bytes,
    };

    test.answers = 0;
    return runtime_cli_ask(&test.node.context, &question, on_done, &test, &test.run);
}

static void assert_detail(const char *text)
{
    assert_text_of(test.node.context.store, DETAIL, text);
}

static int64_t answered(void)
{
    return lines_of(test.node.context.store, "runtime_cli_answered");
}

static int set_up(void **state)
{
    (void)state;
    memset(&test, 0, sizeof(test));
    clear_devices();
    fake_child_refused = 0;
    fake_child_arguments[0] = '\0';
    fake_child_is_to_run = count_intents;
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    test.cli = (struct runtime_cli){.program = TOOL, .root = -1};
    test.node.config.resize.call_timeout_seconds = 30;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(runtime_cli_free(test.run));
    assert_null(fake_child);
    surroundings_end(&test.node);
    return 0;
}

/* ---- stats ---- */

static void a_tool_that_knows_crust_counts(void **state)
{
    (void)state;
    assert_int_equal(ask(false, 0, 0), 0);
    assert_string_equal(fake_child_arguments, TOOL " crust stats " VOLUME_PATH " ");
    assert_int_equal(fake_child_request.output_limit, RUNTIME_CLI_OUTPUT_BYTES);
    assert_int_equal(fake_child_request.root, -1);
    assert_int_equal(fake_child_request.deadline_ns,
                     15 * NSEC_PER_SEC); /* the half is crustd's own */
    assert_int_equal(test.intended, 1);  /* before it ran */
    assert_detail("{\"command\":\"stats\",\"program\":\"" TOOL "\"}");
    assert_int_equal(test.answers, 0);
    child_says(STATS);
    assert_int_equal(test.answers, 1);
    assert_true(test.is_answered);
    assert_int_equal(test.answer.stats.total, 11);
    assert_int_equal(test.answer.stats.used_inodes, 20);
    assert_true(test.answer.stats.abnormal);
    assert_detail("{\"command\":\"stats\",\"total_bytes\":11,\"used_bytes\":10}");
}

static void katas_own_tool_is_asked_in_its_words(void **state)
{
    (void)state;
    test.cli.is_kata = true;
    assert_int_equal(ask(false, 0, 0), 0);
    assert_string_equal(fake_child_arguments,
                        TOOL " direct-volume stats --volume-path " VOLUME_PATH " ");
    child_says(STATS);
    assert_true(test.is_answered);
}

/* It would tell the guest alone. */
static void katas_own_tool_is_not_asked_for_a_resize(void **state)
{
    (void)state;
    test.cli.is_kata = true;
    assert_int_equal(ask(true, 0, 0), -ENOSYS);
    assert_int_equal(lines_of(test.node.context.store, "runtime_cli_intended"), 0);
}

/* ---- resizes ---- */

static void a_resize_is_asked_for_with_its_range(void **state)
{
    (void)state;
    assert_int_equal(ask(true, 42, 2 * GIB), 0);
    assert_string_equal(fake_child_arguments, TOOL " crust resize " VOLUME_PATH " 42 2147483648 ");
    assert_detail("{\"command\":\"resize\",\"program\":\"" TOOL "\",\"required_bytes\":42,"
                  "\"limit_bytes\":2147483648}");
    child_says("{\"capacity_bytes\": 1073741824}");
    assert_true(test.is_answered);
    assert_int_equal(test.answer.capacity_bytes, GIB);
    assert_detail("{\"command\":\"resize\",\"capacity_bytes\":1073741824}");
}

/* A driver grows the device and asks at once. */
static void an_answer_is_held_against_the_device_as_it_is_now(void **state)
{
    (void)state;
    assert_int_equal(ask(true, 0, 0), 0);
    child_says("{\"capacity_bytes\": 2147483648}");
    assert_false(test.is_answered);
    put_disk(0, "/dev/loop1", 1, 2 * GIB);
    assert_int_equal(ask(true, 0, 0), 0);
    child_says("{\"capacity_bytes\": 2147483648}");
    assert_true(test.is_answered);
    put_disk(0, "/dev/loop1", 1,
             GIB / 2); /* a device that shrank was as large as it is on record */
    assert_int_equal(ask(true, 0, 0), 0);
    child_says("{\"capacity_bytes\": 1073741824}");
    assert_true(test.is_answered);
}

/* ---- a tool that is of no help ---- */

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

    (void)state;
    for (size_t i = 0; i < array_length(table); i++)
        for (int resizes = 0; resizes < 2; resizes++) {
            char detail[256];

            assert_int_equal(ask(resizes, 0, 0), 0);
            child_ends(table[i].end, table[i].status, table[i].output);
            assert_int_equal(test.answers, 1);
            assert_false(test.is_answered);
            (void)snprintf(detail, sizeof(detail), "{\"command\":\"%s\",\"error\":\"%s\"}",
                           resizes ? "resize" : "stats", table[i].detail);
            assert_detail(detail);
        }
}

static void an_impossible_answer_is_refused(void **state)
{
    (void)state;
    assert_int_equal(ask(true, GIB, 0), 0);
    child_says("{\"capacity_bytes\": 1000}");
    assert_false(test.is_answered);
    assert_detail("{\"command\":\"resize\",\"error\":\"it says 1000 bytes where 1073741824 are "
                  "required\"}");
    assert_int_equal(ask(false, 0, 0), 0);
    child_says("{\"usage\":[{\"available\":0,\"total\":99999999999,\"used\":1,\"unit\":1}]}");
    assert_false(test.is_answered);
}

static void a_volume_that_is_gone_by_then_has_no_answer(void **state)
{
    struct store *store = test.node.context.store;

    (void)state;
    assert_int_equal(ask(false, 0, 0), 0);
    assert_int_equal(sqlite3_exec(store->connection.db,
                                  "PRAGMA foreign_keys = 0; DELETE FROM volumes", NULL, NULL, NULL),
                     SQLITE_OK);
    child_says(STATS);
    assert_int_equal(test.answers, 1);
    assert_false(test.is_answered);
}

static void a_tool_that_cannot_be_run_is_on_record(void **state)
{
    (void)state;
    fake_child_refused = -ENOEXEC;
    assert_int_equal(ask(false, 0, 0), -ENOEXEC);
    assert_int_equal(test.answers, 0);
    assert_detail("{\"command\":\"stats\",\"error\":\"" TOOL
                  ": it can't be run: Exec format error\"}");
    fake_child_refused = -EPERM;
    test.cli.root = root;
    assert_int_equal(ask(false, 0, 0), -EPERM);
    assert_detail("{\"command\":\"stats\",\"error\":\"" TOOL
                  ": it can't be run: Operation not permitted (below --root that takes "
                  "CAP_SYS_CHROOT)\"}");
}

static void a_tool_that_cannot_be_recorded_is_not_run(void **state)
{
    (void)state;
    fail_writes(test.node.context.store);
    assert_true(ask(false, 0, 0) < 0);
    assert_null(fake_child);
    assert_string_equal(fake_child_arguments, "");
}

static void answer_is_returned_although_recording_it_failed(void **state)
{
    (void)state;
    assert_int_equal(ask(false, 0, 0), 0);
    fail_writes(test.node.context.store);
    child_says(STATS);
    assert_true(test.is_answered);
    assert_int_equal(answered(), 0);
}

static void a_tool_that_nobody_waits_for_is_killed_on_record(void **state)
{
    (void)state;
    assert_int_equal(ask(true, 0, 0), 0);
    test.run = runtime_cli_free(test.run);
    assert_null(fake_child);
    assert_int_equal(test.answers, 0);
    assert_detail("{\"command\":\"resize\",\"error\":\"nobody waited for it any more\"}");
    assert_int_equal(answered(), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_tool_that_knows_crust_counts),
        TEST(katas_own_tool_is_asked_in_its_words),
        TEST(katas_own_tool_is_not_asked_for_a_resize),
        TEST(a_resize_is_asked_for_with_its_range),
        TEST(an_answer_is_held_against_the_device_as_it_is_now),
        TEST(an_exit_without_an_answer_is_on_record),
        TEST(an_impossible_answer_is_refused),
        TEST(a_volume_that_is_gone_by_then_has_no_answer),
        TEST(a_tool_that_cannot_be_run_is_on_record),
        TEST(a_tool_that_cannot_be_recorded_is_not_run),
        TEST(answer_is_returned_although_recording_it_failed),
        TEST(a_tool_that_nobody_waits_for_is_killed_on_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
