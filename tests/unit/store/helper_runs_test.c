/* SPDX-License-Identifier: Apache-2.0 */
/* helper_runs_test.c - what a crash may have left in a guest is on record until it is gone. */
#include "tests/unit/store/fixture.h"

#define NAME "crust-0123456789abcdef"

static int take(void *userdata, const struct store_helper_run *run)
{
    *(struct store_helper_run *)userdata = *run;
    return 0;
}

static struct store_helper_run find(struct store *store)
{
    struct store_helper_run run = {0};

    assert_int_equal(store_each_sandbox(store, true, take, &run), 0);
    return run;
}

static void a_run_is_on_record_until_it_is_forgotten(void **state)
{
    struct store *store = store_of(state);
    int64_t ref = put_bound(store).sandbox_ref;
    struct store_helper_run run;

    assert_int_equal(store_put_helper_run(store, ref, NAME, true), 0);
    run = find(store);
    assert_string_equal(run.name, NAME);
    assert_string_equal(run.sandbox_id, "sandbox-1");
    assert_int_equal(run.runtime, RUNTIME_KATA_GO);
    assert_string_equal(run.agent_address, "vsock://3:1024");
    assert_int_equal(run.sandbox_ref, ref);
    assert_int_equal(run.vmm_pid, 100);
    assert_int_equal(run.vmm_start_ns, 40);
    assert_true(run.is_alive);
    assert_int_equal(store_forget_helper_run(store, NAME), 0);
    assert_int_equal(find(store).sandbox_ref, 0);
}

/* A statement that failed ends the transaction: nothing else is done in it, nor is it committed. */
static void a_name_is_never_used_twice(void **state)
{
    struct store *store = store_of(state);
    int64_t ref = put_bound(store).sandbox_ref;

    assert_int_equal(store_put_helper_run(store, ref, NAME, true), 0);
    assert_int_equal(store_put_helper_run(store, ref, NAME, true), STORE_FAULT);
    assert_int_equal(store_forget_helper_run(store, NAME), STORE_FAULT);
    assert_int_equal(store_commit(store), STORE_FAULT);
    store_rollback(store);
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(put_bound(store).sandbox_ref, 1);
}

static void it_outlives_its_sandbox(void **state)
{
    struct store *store = store_of(state);
    int64_t ref = put_bound(store).sandbox_ref;
    struct store_helper_run run = {0};
    bool changed;

    assert_int_equal(store_put_helper_run(store, ref, NAME, true), 0);
    assert_int_equal(store_each_sandbox(store, false, take, &run), 0);
    assert_int_equal(run.sandbox_ref, ref);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
    assert_false(find(store).is_alive);
    assert_int_equal(store_get_helper_sandbox(store, ref, &run), 0);
    assert_false(run.is_alive);
    assert_string_equal(run.sandbox_id, "sandbox-1");
    assert_int_equal(store_get_helper_sandbox(store, ref + 1, &run), 0);
    assert_int_equal(run.sandbox_ref, 0);
    run.sandbox_ref = 0;
    assert_int_equal(store_each_sandbox(store, false, take, &run), 0);
    assert_int_equal(run.sandbox_ref, 0);
}

/* Counting is done every few minutes: it is no history. */
static void only_what_changes_something_is_journaled(void **state)
{
    struct store *store = store_of(state);
    int64_t ref = put_bound(store).sandbox_ref;

    assert_int_equal(store_put_helper_run(store, ref, NAME, false), 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM journal WHERE kind LIKE 'helper%'"), 0);
    assert_int_equal(store_put_helper_run(store, ref, "crust-2", true), 0);
    assert_int_equal(store_note_helper_removed(store, ref, NAME), 0);
    assert_text_of(store,
                   "SELECT group_concat(kind || ' ' || sandbox_id || ' ' || detail) FROM"
                   " (SELECT * FROM journal WHERE kind LIKE 'helper%' ORDER BY seq)",
                   "helper_intended sandbox-1 {\"name\":\"crust-2\"},"
                   "helper_removed sandbox-1 {\"name\":\"" NAME "\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_run_is_on_record_until_it_is_forgotten),
        MODEL(a_name_is_never_used_twice),
        MODEL(it_outlives_its_sandbox),
        MODEL(only_what_changes_something_is_journaled),
    };

    return cmocka_run_group_tests_name("helper_runs", tests, NULL, NULL);
}
