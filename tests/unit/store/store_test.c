/* SPDX-License-Identifier: Apache-2.0 */
/* store_test.c - how a transaction ends. */
#include "tests/unit/store/fixture.h"

static int note(struct store *store)
{
    return store_journal(store, "noted", 0, NULL, NULL, "{}");
}

static void a_successful_pass_is_committed(void **state)
{
    struct store *store = store_of(state);

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_end(store, note(store)), 0);
    store_rollback(store);
    assert_int_equal(lines_of(store, "noted"), 1);
}

static void a_failed_pass_is_undone(void **state)
{
    struct store *store = store_of(state);

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(note(store), 0);
    assert_int_equal(store_end(store, STORE_FAULT), STORE_FAULT);
    assert_int_equal(lines_of(store, "noted"), 0);
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_end(store, note(store)), 0);
    assert_int_equal(lines_of(store, "noted"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_successful_pass_is_committed),
        MODEL(a_failed_pass_is_undone),
    };

    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
