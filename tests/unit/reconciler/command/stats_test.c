/* SPDX-License-Identifier: Apache-2.0 */
/* stats_test.c - clients that ask what a guest's file system says of itself. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include <inttypes.h>

#include "lib/process.h"
#include "reconciler/command/answers.h"

static struct reconciler_stats stats_answer;

static void on_stats(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                     const struct error *error)
{
    (void)userdata;
    note(code, error);
    if (stats)
        stats_answer = *stats;
}

static enum status_code ask(int64_t volume_id, struct stats_call **ret_call, struct error *error)
{
    const struct reconciler_target target = {.volume_id = volume_id};

    return stats_begin(test.clients, &target, on_stats, NULL, ret_call, error);
}

static void a_guest_counts_for_a_client(void **state)
{
    struct stats_call *call;
    struct error error;

    (void)state;
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_OK);
    assert_false(fake_guest->request.resizes);
    assert_false(fake_guest->request.asks_address);
    assert_int_equal(fake_guest->request.inability[ROUTE_AGENT], REASON_NONE);
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 7},
                                        .age_ns = 3 * NSEC_PER_SEC});
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(stats_answer.total, 7);
    assert_int_equal(stats_answer.age_ms, 3000);
    assert_non_null(strstr(stats_answer.condition, "the guest was read 3 s ago"));
}

/* The VMM is this process, which lives. */
static void run_vmm(void)
{
    struct process process;
    char sql[128];

    assert_int_equal(process_read(getpid(), &process), 0);
    (void)snprintf(sql, sizeof(sql), "UPDATE sandboxes SET vmm_pid = %d, vmm_start_ns = %" PRIu64,
                   (int)getpid(), process.start_ns);
    change(sql);
}

static void a_sandbox_that_ends_meanwhile_is_the_answer(void **state)
{
    struct guest_reply reply = {.reason = REASON_AGENT_UNREACHABLE};
    struct stats_call *call;
    struct error error;

    (void)state;
    (void)error_set(&reply.error, 0, "no answer");
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_OK);
    guest_answers(&reply); /* the VMM that is on record has ended */
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "the volume's sandbox ended while it was asked");
    run_vmm();
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_OK);
    unbind();
    guest_answers(&reply);
    assert_string_equal(test.error, "the volume's sandbox ended while it was asked");
}

static void stats_error_includes_the_reason(void **state)
{
    struct guest_reply reply = {.reason = REASON_AGENT_DENIED};
    struct stats_call *call;
    struct error error;

    (void)state;
    run_vmm();
    (void)error_set(&reply.error, 0, "by policy");
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_OK);
    guest_answers(&reply);
    assert_int_equal(test.code, reason_code(REASON_AGENT_DENIED, STATE_BLOCK_GROWN));
    assert_string_equal(test.error, "agent_denied: by policy");
}

static void an_unknown_volume_has_no_stats(void **state)
{
    struct stats_call *call;
    struct error error;

    (void)state;
    assert_int_equal(ask(4711, &call, &error), STATUS_NOT_FOUND);
    test.node.context.synced = false;
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_UNAVAILABLE);
}

static void calls_of_one_sandbox_have_a_bound(void **state)
{
    struct stats_call *call[9];
    struct error error;

    (void)state;
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(ask(test.node.bound.volume_id, &call[i], &error), STATUS_OK);
    assert_int_equal(ask(test.node.bound.volume_id, &call[8], &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "8 such calls"));
    assert_null(reconciler_stats_cancel(call[0]));
    assert_int_equal(ask(test.node.bound.volume_id, &call[0], &error), STATUS_OK);
    /* Those that are left end with the clients. */
}

static struct stats_call *ask_by_path(enum status_code code)
{
    const struct reconciler_target target = {.target_path = VOLUME_PATH};
    struct stats_call *call = NULL;
    struct error error = {0};

    assert_int_equal(stats_begin(test.clients, &target, on_stats, NULL, &call, &error), code);
    (void)snprintf(test.error, sizeof(test.error), "%s", error.text);
    return call;
}

static void a_volume_is_found_by_its_path_or_its_device(void **state)
{
    static const struct {
        struct reconciler_target target;
        enum status_code code;
    } table[] = {
        {{.target_path = VOLUME_PATH}, STATUS_OK},
        {{.target_path = "/unknown"}, STATUS_NOT_FOUND},
        {{.target_path = "relative"}, STATUS_INVALID_ARGUMENT},
        {{.sandbox_id = "sandbox-1", .device = "/dev/disk"}, STATUS_OK},
        {{.device = "/dev/disk"}, STATUS_OK},
        {{.device = "/dev/other"}, STATUS_NOT_FOUND},
        {{.device = "other"}, STATUS_INVALID_ARGUMENT},
        {{.sandbox_id = "no/sandbox", .device = "/dev/disk"}, STATUS_INVALID_ARGUMENT},
        {{.sandbox_id = "sandbox-2", .device = "/dev/disk"}, STATUS_NOT_FOUND},
    };
    struct stats_call *call;
    struct error error;

    (void)state;
    for (size_t i = 0; i < array_length(table); i++) {
        assert_int_equal(stats_begin(test.clients, &table[i].target, on_stats, NULL, &call, &error),
                         table[i].code);
        if (table[i].code == STATUS_OK)
            (void)reconciler_stats_cancel(call);
    }
}

/* ---- calls that do not reach the guest ---- */

/* Its guest has another directory in the volume's place, and would count that. */
static void bypassed_volume_is_answered_without_its_guest(void **state)
{
    (void)state;
    change("UPDATE volumes SET state = 'blocked', reason = 'bypassed'");
    (void)ask_by_path(STATUS_OK);
    assert_null(fake_guest);
    assert_int_equal(test.answers, 0); /* never from within */
    run_pass();
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_false(stats_answer.has_bytes);
    assert_true(stats_answer.abnormal);
    assert_non_null(strstr(stats_answer.condition, ". (blocked/bypassed)"));
}

static void a_volume_without_a_sandbox_has_nobody_to_count_it(void **state)
{
    (void)state;
    unbind();
    assert_null(ask_by_path(answer_code(ANSWER_NO_SANDBOX)));
    assert_non_null(strstr(test.error, "no sandbox uses the volume yet"));
}

static void a_volume_of_two_sandboxes_has_no_one_guest(void **state)
{
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_sandbox sandbox = sandbox_of("sandbox-2", NULL);

    (void)state;
    entry.sandboxes = 2;
    entry.sandbox[1] = "sandbox-2";
    assert_int_equal(store_begin(the_store()), 0);
    (void)put_sandbox(the_store(), &sandbox, true);
    (void)put_entry(the_store(), &entry, true);
    assert_int_equal(store_commit(the_store()), 0);
    assert_null(ask_by_path(reason_code(REASON_MULTIPLE_SANDBOXES, STATE_BLOCKED)));
    assert_non_null(strstr(test.error, "more than one live sandbox"));
}

static void abnormal_file_system_is_reported(void **state)
{
    (void)state;
    (void)ask_by_path(STATUS_OK);
    guest_answers(&(struct guest_reply){
        .stats = {.has_bytes = true, .total = 7, .abnormal = true, .condition = "errors"}});
    assert_true(stats_answer.abnormal);
    assert_true(stats_answer.guest_abnormal);
    assert_string_equal(stats_answer.guest_condition, "errors");
    assert_string_equal(stats_answer.condition, "the guest says: errors");
}

static void a_helper_counts_where_nobody_in_the_guest_does(void **state)
{
    struct guest_call *guest;
    struct helper_call *helper;

    (void)state;
    (void)ask_by_path(STATUS_OK);
    guest = fake_guest;
    assert_false(guest->request.helper->is_possible(guest->request.owner)); /* it has no path */
    assert_int_equal(guest->request.helper->begin(guest->request.owner, 1, NULL, NULL, &helper), 0);
    assert_null(guest->request.helper->free(helper));
}

/* ---- the runtime's own tool ---- */

#define COUNTED "{\"usage\":[{\"available\":1,\"total\":11,\"used\":10,\"unit\":1}]}"

static void the_runtimes_own_tool_is_asked_before_the_guest(void **state)
{
    (void)state;
    leave_tool(0755);
    (void)ask_by_path(STATUS_OK);
    assert_null(fake_guest);
    assert_string_equal(fake_child_arguments, TOOL " crust stats " VOLUME_PATH " ");
    child_says(COUNTED);
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(stats_answer.total, 11);
    assert_null(fake_guest);
}

static void a_tool_of_no_help_leaves_the_guest(void **state)
{
    (void)state;
    leave_tool(0755);
    (void)ask_by_path(STATUS_OK);
    child_ends(CHILD_EXITED, 3, "");
    assert_int_equal(test.answers, 0);
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 7}});
    assert_int_equal(test.answers, 1);
    assert_int_equal(stats_answer.total, 7);
}

static void a_tool_that_anybody_may_write_is_not_run(void **state)
{
    (void)state;
    leave_tool(0777);
    (void)ask_by_path(STATUS_OK);
    assert_null(fake_child);
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 7}});
    assert_int_equal(stats_answer.total, 7);
}

static void a_tool_is_not_asked_of_what_is_not_the_volume(void **state)
{
    (void)state;
    leave_tool(0755);
    change("UPDATE volumes SET state = 'blocked', reason = 'bypassed'");
    (void)ask_by_path(STATUS_OK);
    assert_null(fake_child);
    run_pass();
    assert_int_equal(test.answers, 1);
}

static void failed_runtime_tool_leaves_the_refusal(void **state)
{
    (void)state;
    leave_tool(0755);
    unbind();
    (void)ask_by_path(STATUS_OK);
    child_ends(CHILD_TIMEOUT, 0, "");
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, answer_code(ANSWER_NO_SANDBOX));
}

/* Each costs a process or a connection. */
static void all_calls_together_have_a_bound(void **state)
{
    struct stats_call *call[64];
    struct child *tool[64];

    (void)state;
    leave_tool(0755);
    unbind();
    for (unsigned i = 0; i < 64; i++) {
        call[i] = ask_by_path(STATUS_OK);
        tool[i] = fake_child;
        assert_non_null(tool[i]);
    }
    assert_null(ask_by_path(STATUS_UNAVAILABLE));
    assert_non_null(strstr(test.error, "64 such calls wait"));
    assert_null(reconciler_stats_cancel(call[0]));
    assert_non_null(ask_by_path(STATUS_OK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENTS(a_guest_counts_for_a_client),
        CLIENTS(stats_error_includes_the_reason),
        CLIENTS(a_sandbox_that_ends_meanwhile_is_the_answer),
        CLIENTS(an_unknown_volume_has_no_stats),
        CLIENTS(calls_of_one_sandbox_have_a_bound),
        CLIENTS(a_volume_is_found_by_its_path_or_its_device),
        CLIENTS(bypassed_volume_is_answered_without_its_guest),
        CLIENTS(a_volume_without_a_sandbox_has_nobody_to_count_it),
        CLIENTS(a_volume_of_two_sandboxes_has_no_one_guest),
        CLIENTS(abnormal_file_system_is_reported),
        CLIENTS(a_helper_counts_where_nobody_in_the_guest_does),
        CLIENTS(the_runtimes_own_tool_is_asked_before_the_guest),
        CLIENTS(a_tool_of_no_help_leaves_the_guest),
        CLIENTS(a_tool_that_anybody_may_write_is_not_run),
        CLIENTS(a_tool_is_not_asked_of_what_is_not_the_volume),
        CLIENTS(failed_runtime_tool_leaves_the_refusal),
        CLIENTS(all_calls_together_have_a_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
