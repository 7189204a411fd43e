/* SPDX-License-Identifier: Apache-2.0 */
/* resizes_test.c - a resize from its opening to its end. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

static void a_resize_follows_its_volume_to_the_end(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    int64_t volume_id = bound.volume_id;
    bool changed = false;

    assert_int_equal(row_open_resize(store, volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(row_set_state(store, volume_id, STATE_HOST_GROWN, REASON_NONE, &changed), 0);
    assert_true(changed);
    assert_int_equal(row_intend(store, volume_id, "resize_hypervisor", 2 * GIB), 0);
    assert_int_equal(store_put_hypervisor_result(
                         store, &(struct store_hypervisor_result){.volume_id = volume_id,
                                                                  .reason = REASON_HYPERVISOR_BUSY,
                                                                  .error = "no greeting"}),
                     0);
    assert_text_of(store, "SELECT error FROM audit_resizes", "no greeting");
    assert_int_equal(get_volume(store, volume_id).hypervisor_reason, REASON_HYPERVISOR_BUSY);
    assert_int_equal(store_set_attempts(store, volume_id, 1, 500, 1000), 0);

    assert_int_equal(row_open_resize(store, volume_id, GIB, 3 * GIB), 0);
    assert_int_equal(get_volume(store, volume_id).attempts, 0);
    assert_int_equal(get_volume(store, volume_id).hypervisor_reason, REASON_NONE);
    assert_int_equal(get_volume(store, volume_id).resize_to_bytes, 3 * GIB);
    assert_int_equal(row_intend(store, volume_id, "resize_hypervisor", 3 * GIB), 0);
    assert_int_equal(
        store_put_hypervisor_result(store, &(struct store_hypervisor_result){.volume_id = volume_id,
                                                                             .drive_id = "drive-9",
                                                                             .bytes = 3 * GIB,
                                                                             .told = true}),
        0);
    assert_int_equal(get_volume(store, volume_id).hypervisor_bytes, 3 * GIB);
    assert_string_equal(get_volume(store, volume_id).drive_id, "drive-9");
    assert_int_equal(row_set_state(store, volume_id, STATE_BLOCK_GROWN, REASON_NONE, NULL), 0);
    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .synced_bytes = 3 * GIB,
                                                                   .guest_bytes = 3 * GIB - 4096}),
        0);
    assert_text_of(store,
                   "SELECT state || attempts || (hypervisor_at IS NOT NULL) ||"
                   " (guest_at IS NOT NULL) || (finished_at IS NULL) FROM audit_resizes",
                   "block_grown2111");
    assert_int_equal(row_set_state(store, volume_id, STATE_IN_SYNC, REASON_UNVERIFIED, NULL), 0);
    assert_int_equal(get_volume(store, volume_id).resize_id, 0);
    assert_text_of(store, "SELECT state || reason || (finished_at IS NOT NULL) FROM audit_resizes",
                   "in_syncunverified1");
    assert_int_equal(lines_of(store, "resize_opened"), 1);
    assert_int_equal(lines_of(store, "resize_raised"), 1);
    assert_int_equal(lines_of(store, "resize_finished"), 1);
    assert_int_equal(lines_of(store, "resize_hypervisor_intended"), 2);
    assert_text_of(store,
                   "SELECT detail FROM journal WHERE kind = 'state_changed' ORDER BY seq DESC",
                   "{\"from\":\"block_grown/none\",\"to\":\"in_sync/unverified\"}");
}

static void an_equal_resize_writes_nothing(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    int before;

    assert_int_equal(row_open_resize(store, volume_id, GIB, 2 * GIB), 0);
    before = written(store);
    assert_int_equal(row_open_resize(store, volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(written(store), before);
}

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
        MODEL(a_resize_follows_its_volume_to_the_end),
        MODEL(an_equal_resize_writes_nothing),
        MODEL(a_debt_is_paid_by_the_next_sandbox),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
