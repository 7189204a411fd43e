/* SPDX-License-Identifier: Apache-2.0 */
/* resizes_test.c - a resize that is asked for before there is a sandbox. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

/* A client that asks before there is a sandbox is promised a resize, which the next one pays. */
static void a_debt_is_paid_by_the_next_sandbox(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_binding next = {.volume_id = bound.volume_id,
                                 .sandbox_ref = bound.sandbox_ref,
                                 .device_id = bound.device_id,
                                 .source = "sandbox-file"};
    uint64_t reached = 0;

    assert_int_equal(
        store_put_guest_result(
            store, &(struct store_guest_result){.volume_id = bound.volume_id, .synced_bytes = GIB}),
        0);
    assert_int_equal(store_close_binding(store, bound.volume_id), 0);
    assert_int_equal(row_set_state(store, bound.volume_id, STATE_UNBOUND, REASON_NONE, NULL), 0);
    assert_int_equal(store_get_reached_size(store, bound.volume_id, &reached), 0);
    assert_int_equal(reached, GIB);

    assert_int_equal(row_open_resize(store, bound.volume_id, reached, 2 * GIB), 0);
    assert_text_of(store,
                   "SELECT state || (sandbox_id IS NULL) || (finished_at IS NULL) || from_bytes"
                   " FROM audit_resizes",
                   "unbound111073741824");
    assert_int_equal(store_open_binding(store, &next), 0);
    assert_text_of(store, "SELECT sandbox_id FROM audit_resizes", "sandbox-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_debt_is_paid_by_the_next_sandbox),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
