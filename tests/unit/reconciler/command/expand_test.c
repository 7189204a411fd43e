/* SPDX-License-Identifier: Apache-2.0 */
/* expand_test.c - clients that wait for a resize, by crustd's own ways or the runtime's tool. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include "model/reason.h"
#include "reconciler/command/answers.h"
#include "tests/unit/missing_database.h"
#include "tests/unit/volume_rows.h"

static struct reconciler_capacity answered_capacity;

static void on_expanded(void *userdata, enum status_code code,
                        const struct reconciler_capacity *capacity, const struct error *error)
{
    (void)userdata;
    note(code, error);
    answered_capacity = *capacity;
}

static struct expansion *expand_by_path(uint64_t required, uint64_t limit)
{
    const struct reconciler_expand asked = {
        .target = {.target_path = VOLUME_PATH},
        .required_bytes = required,
        .limit_bytes = limit,
    };
    struct expansion *expansion = NULL;
    struct error error;

    assert_int_equal(expand_begin(test.clients, &asked, on_expanded, NULL, &expansion, &error),
                     STATUS_OK);
    return expansion;
}

static struct expansion *expand(uint64_t required, uint64_t limit, enum status_code code)
{
    const struct reconciler_expand asked = {
        .target = {.volume_id = test.node.bound.volume_id},
        .required_bytes = required,
        .limit_bytes = limit,
    };
    struct expansion *expansion = NULL;
    struct error error;

    assert_int_equal(expand_begin(test.clients, &asked, on_expanded, NULL, &expansion, &error),
                     code);
    return expansion;
}

static void set_state(enum volume_state volume_state)
{
    bool changed;

    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(
        row_set_state(the_store(), test.node.bound.volume_id, volume_state, REASON_NONE, &changed),
        0);
    assert_int_equal(store_commit(the_store()), 0);
}

static void client_is_answered_once_the_volume_is_in_sync(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    assert_int_equal(queued_volumes(), 1);
    expansions_answer(test.clients);
    assert_int_equal(test.answers, 0); /* nothing was decided since it asked */
    set_state(STATE_HOST_GROWN);
    pass();
    assert_int_equal(test.answers, 0);
    set_state(STATE_IN_SYNC);
    pass();
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(answered_capacity.bytes, GIB);
    assert_false(answered_capacity.is_owed);
}

static void a_range_that_cannot_be_is_refused(void **state)
{
    (void)state;
    assert_null(expand(2, 1, STATUS_INVALID_ARGUMENT));
}

static void a_pass_that_was_rolled_back_decided_nothing(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    set_state(STATE_IN_SYNC);
    assert_int_equal(expansions_note(test.clients, test.node.bound.volume_id), 0);
    expansions_forget(test.clients);
    expansions_answer(test.clients);
    assert_int_equal(test.answers, 0);
}

static void a_client_waits_no_longer_than_crustd(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    test.node.context.stopping = true;
    expansions_answer(test.clients);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "crustd stops");
}

static void another_database_ends_all_that_wait(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    assert_null(reconciler_expand_cancel(expand(GIB, 0, STATUS_OK)));
    expansions_end(test.clients);
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
}

static void a_database_that_fails_keeps_nobody_from_the_next_attempt(void **state)
{
    (void)state;
    change("UPDATE volumes SET attempts = 3");
    (void)expand(0, 0, STATUS_OK);
    assert_int_equal(number_of(the_store(), "SELECT attempts FROM volumes"), 0);
    change("UPDATE volumes SET attempts = 3");
    fail_writes(the_store());
    (void)expand(0, 0, STATUS_OK);
    assert_int_equal(number_of(the_store(), "SELECT attempts FROM volumes"), 3);
    assert_int_equal(queued_volumes(), 1);
}

/* The volume itself was found: ENOENT is about the database's file. */
static void a_missing_database_is_no_removed_volume(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    missing_for = "m.guest_synced_bytes";
    missing_times = 9;
    pass();
    assert_true(missing_times < 9);
    missing_times = 0;
    assert_int_equal(test.answers, 0);
    expansions_end(test.clients); /* which the daemon does when its database fails */
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
}

static void volume_removed_while_waiting_is_reported(void **state)
{
    (void)state;
    (void)expand(0, 0, STATUS_OK);
    change("PRAGMA foreign_keys = 0; DELETE FROM volumes");
    pass();
    assert_int_equal(test.code, answer_code(ANSWER_UNKNOWN_VOLUME));
    assert_string_equal(test.error, "the volume was removed");
}

/* ---- the device ---- */

/* To a driver that made the header itself, those bytes are the volume's. */
static void a_luks_header_counts_towards_the_volumes_size(void **state)
{
    (void)state;
    set_state(STATE_IN_SYNC);
    put_disk(0, "/dev/loop1", 1, GIB);
    put_disk(1, "/dev/sda", 2, GIB + (16 << 20));
    fake_device[0].lower = 2;
    (void)expand(GIB + (16 << 20), 0, STATUS_OK);
    pass();
    assert_int_equal(
        test.code,
        answer_code(ANSWER_DEVICE_TOO_SMALL)); /* it is no LUKS: the host is to grow it */
    assert_non_null(strstr(test.error, "it must grow there first"));
    fake_device[0].is_crypt = true;
    (void)expand(GIB + (16 << 20), 0, STATUS_OK);
    pass();
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(answered_capacity.bytes, GIB);
}

/* ---- debts ---- */

static void outgrow_and_unbind(void)
{
    unbind();
    change("UPDATE devices SET size_bytes = size_bytes * 2");
    set_state(STATE_UNBOUND);
}

static void before_a_sandbox_a_resize_is_owed_on_record(void **state)
{
    (void)state;
    outgrow_and_unbind();
    (void)expand(2 * GIB, 0, STATUS_OK);
    (void)expand(2 * GIB, 0, STATUS_OK);
    pass();
    assert_int_equal(test.answers, 2);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(answered_capacity.bytes, 2 * GIB);
    assert_true(answered_capacity.is_owed);
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM resizes"), 1);
    assert_int_equal(number_of(the_store(), "SELECT from_bytes FROM resizes"), GIB);
    assert_int_equal(number_of(the_store(), "SELECT to_bytes FROM resizes"), 2 * GIB);
}

static void a_debt_is_not_promised_from_memory(void **state)
{
    (void)state;
    outgrow_and_unbind();
    (void)expand(0, 0, STATUS_OK);
    pass();
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(test.error, "not on disk"));
    assert_false(answered_capacity.is_owed);
}

static void an_observe_policy_records_no_debt(void **state)
{
    (void)state;
    outgrow_and_unbind();
    test.node.config.resize.mode = RESIZE_OBSERVE;
    (void)expand(0, 0, STATUS_OK);
    pass();
    assert_int_equal(test.code, reason_code(REASON_POLICY, STATE_HOST_GROWN));
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM resizes"), 0);
}

/* ---- the runtime's own tool ---- */

static void the_runtimes_own_tool_resizes(void **state)
{
    (void)state;
    leave_tool(0755);
    (void)expand_by_path(42, 2 * GIB);
    assert_string_equal(fake_child_arguments, TOOL " crust resize " VOLUME_PATH " 42 2147483648 ");
    assert_int_equal(queued_volumes(), 0); /* crustd's own ways wait */
    set_state(STATE_IN_SYNC);
    pass();
    assert_int_equal(test.answers, 0);
    child_says("{\"capacity_bytes\": 1000000}");
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(answered_capacity.bytes, 1000000);
    assert_int_equal(queued_volumes(), 1); /* what it did is observed */
}

static void a_tool_of_no_help_leaves_crustds_own_ways(void **state)
{
    (void)state;
    leave_tool(0755);
    (void)expand_by_path(0, 0);
    child_ends(CHILD_EXITED, 3, "");
    assert_int_equal(test.answers, 0);
    assert_int_equal(queued_volumes(), 1);
    set_state(STATE_IN_SYNC);
    pass();
    assert_int_equal(test.answers, 1);
    assert_int_equal(answered_capacity.bytes, GIB);
}

/* What crustd would not do for this client it has nobody do. */
static void a_tool_is_not_asked_for_what_crustd_may_not_do(void **state)
{
    (void)state;
    leave_tool(0755);
    (void)expand_by_path(0, GIB - 1);
    assert_null(fake_child);
    change("UPDATE entries SET policy = 1");
    (void)expand_by_path(0, 0);
    assert_null(fake_child);
    change("UPDATE entries SET policy = 0");
    change("UPDATE volumes SET state = 'blocked', reason = 'device_shared'");
    (void)expand_by_path(0, 0);
    assert_null(fake_child);
    change("UPDATE volumes SET state = 'in_sync', reason = 'none'");
    test.node.config.resize.mode = RESIZE_OBSERVE;
    (void)expand_by_path(0, 0);
    assert_null(fake_child);
    test.node.config.resize.mode = RESIZE_GROW;
    (void)expand_by_path(0, 0);
    assert_non_null(fake_child);
}

/* It may do what would be owed. */
static void no_debt_is_recorded_while_a_tool_runs(void **state)
{
    (void)state;
    leave_tool(0755);
    outgrow_and_unbind();
    (void)expand_by_path(0, 0);
    assert_non_null(fake_child);
    pass();
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM resizes"), 0);
    assert_int_equal(test.answers, 0);
}

static void a_tool_that_anybody_may_write_is_passed_over(void **state)
{
    (void)state;
    leave_tool(0777);
    (void)expand_by_path(0, 0);
    assert_null(fake_child);
    assert_int_equal(queued_volumes(), 1);
}

static void a_tool_ends_with_the_client_that_waits_for_it(void **state)
{
    (void)state;
    leave_tool(0755);
    assert_null(reconciler_expand_cancel(expand_by_path(0, 0)));
    assert_null(fake_child);
    assert_null(reconciler_expand_cancel(NULL));
    assert_int_equal(lines_of(the_store(), "runtime_cli_answered"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENTS(client_is_answered_once_the_volume_is_in_sync),
        CLIENTS(a_range_that_cannot_be_is_refused),
        CLIENTS(a_pass_that_was_rolled_back_decided_nothing),
        CLIENTS(a_client_waits_no_longer_than_crustd),
        CLIENTS(another_database_ends_all_that_wait),
        CLIENTS(a_database_that_fails_keeps_nobody_from_the_next_attempt),
        CLIENTS(a_missing_database_is_no_removed_volume),
        CLIENTS(volume_removed_while_waiting_is_reported),
        CLIENTS(a_luks_header_counts_towards_the_volumes_size),
        CLIENTS(before_a_sandbox_a_resize_is_owed_on_record),
        cmocka_unit_test_setup_teardown(a_debt_is_not_promised_from_memory, set_up_in_memory,
                                        tear_down),
        CLIENTS(an_observe_policy_records_no_debt),
        CLIENTS(the_runtimes_own_tool_resizes),
        CLIENTS(a_tool_of_no_help_leaves_crustds_own_ways),
        CLIENTS(a_tool_is_not_asked_for_what_crustd_may_not_do),
        CLIENTS(no_debt_is_recorded_while_a_tool_runs),
        CLIENTS(a_tool_that_anybody_may_write_is_passed_over),
        CLIENTS(a_tool_ends_with_the_client_that_waits_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
