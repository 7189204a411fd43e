/* SPDX-License-Identifier: Apache-2.0 */
/* expand_test.c - clients that wait for a resize, by crustd's own ways or the runtime's tool. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include "model/reason.h"
#include "tests/unit/missing_database.h"
#include "tests/unit/volume_rows.h"

static struct reconciler_capacity answered_capacity;

static void on_expanded(void *userdata, enum status_code code,
                        const struct reconciler_capacity *capacity, const struct error *error)
{
    note(code, error);
    answered_capacity = *capacity;
}

static void expand(uint64_t required, uint64_t limit)
{
    const struct reconciler_expand asked = {
        .target = {.target_path = VOLUME_PATH},
        .required_bytes = required,
        .limit_bytes = limit,
    };
    struct expansion *expansion = NULL;
    struct error error;

    assert_int_equal(reconciler_expand(&test.core, &asked, on_expanded, NULL, &expansion, &error),
                     STATUS_OK);
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

static void a_pass_that_was_rolled_back_decided_nothing(void **state)
{
    expand(GIB, 0);
    set_state(STATE_IN_SYNC);
    assert_int_equal(expansions_note(&test.core, test.node.bound.volume_id), 0);
    expansions_forget(&test.core);
    expansions_answer(&test.core);
    assert_int_equal(test.answers, 0);
}

static void a_database_that_fails_keeps_nobody_from_the_next_attempt(void **state)
{
    change("UPDATE volumes SET attempts = 3");
    expand(0, 0);
    assert_int_equal(number_of(the_store(), "SELECT attempts FROM volumes"), 0);
    change("UPDATE volumes SET attempts = 3");
    fail_writes(the_store());
    expand(0, 0);
    assert_int_equal(number_of(the_store(), "SELECT attempts FROM volumes"), 3);
    assert_int_equal(queued_volumes(), 1);
}

/* The volume itself was found: ENOENT is about the database's file. Such a pass is not committed.
 */
static void a_missing_database_is_no_removed_volume(void **state)
{
    expand(GIB, 0);
    missing_for = "m.guest_synced_bytes";
    missing_times = 9;
    assert_int_equal(store_begin(the_store()), 0);
    (void)expansions_note(&test.core, test.node.bound.volume_id);
    assert_int_equal(store_commit(the_store()), STORE_MISSING);
    store_rollback(the_store());
    expansions_forget(&test.core);
    expansions_answer(&test.core);
    assert_true(missing_times < 9);
    missing_times = 0;
    assert_int_equal(test.answers, 0);
}

static void volume_removed_while_waiting_is_reported(void **state)
{
    expand(0, 0);
    change("PRAGMA foreign_keys = 0; DELETE FROM volumes");
    pass();
    assert_int_equal(test.code, answer_code(ANSWER_UNKNOWN_VOLUME));
    assert_string_equal(test.error, "the volume was removed");
}

/* ---- debts ---- */

static void outgrow_and_unbind(void)
{
    unbind();
    change("UPDATE devices SET size_bytes = size_bytes * 2");
    set_state(STATE_UNBOUND);
}

static void a_debt_is_not_promised_from_memory(void **state)
{
    outgrow_and_unbind();
    expand(0, 0);
    pass();
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(test.error, "not on disk"));
    assert_false(answered_capacity.is_owed);
}

/* ---- the runtime's own tool ---- */

/* What crustd would not do for this client it has nobody do. */
static void a_tool_is_not_asked_for_what_crustd_may_not_do(void **state)
{
    static const char *const obstacles[] = {
        "UPDATE entries SET policy = 1",
        "UPDATE entries SET policy = 0;"
        " UPDATE volumes SET state = 'blocked', reason = 'device_shared'",
    };

    leave_tool(0755);
    for (size_t i = 0; i < array_length(obstacles); i++) {
        change(obstacles[i]);
        expand(0, 0);
        assert_null(fake_child);
    }
}

/* It may do what would be owed. */
static void no_debt_is_recorded_while_a_tool_runs(void **state)
{
    leave_tool(0755);
    outgrow_and_unbind();
    expand(0, 0);
    assert_non_null(fake_child);
    pass();
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM resizes"), 0);
    assert_int_equal(test.answers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENTS(a_pass_that_was_rolled_back_decided_nothing),
        CLIENTS(a_database_that_fails_keeps_nobody_from_the_next_attempt),
        CLIENTS(a_missing_database_is_no_removed_volume),
        CLIENTS(volume_removed_while_waiting_is_reported),
        cmocka_unit_test_setup_teardown(a_debt_is_not_promised_from_memory, set_up_in_memory,
                                        tear_down),
        CLIENTS(a_tool_is_not_asked_for_what_crustd_may_not_do),
        CLIENTS(no_debt_is_recorded_while_a_tool_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
