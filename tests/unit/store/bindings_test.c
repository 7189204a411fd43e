/* SPDX-License-Identifier: Apache-2.0 */
/* bindings_test.c - a volume's stay in a sandbox, and what was learned during it. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

static void failed_guest_call_keeps_the_last_sizes(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_volume volume;

    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .synced_bytes = 2 * GIB,
                                                                   .guest_bytes = 7}),
        0);
    assert_int_equal(store_put_guest_result(
                         store, &(struct store_guest_result){.volume_id = volume_id,
                                                             .reason = REASON_AGENT_UNREACHABLE,
                                                             .error = "timeout"}),
                     0);
    volume = get_volume(store, volume_id);
    assert_int_equal(volume.guest_reason, REASON_AGENT_UNREACHABLE);
    assert_int_equal(volume.guest_bytes, 7);
    assert_int_equal(volume.guest_synced_bytes, 2 * GIB);
    assert_false(volume.guest_proven);

    assert_int_equal(
        store_put_guest_result(store, &(struct store_guest_result){.volume_id = volume_id,
                                                                   .reason = REASON_UNVERIFIED,
                                                                   .synced_bytes = 3 * GIB}),
        0);
    assert_int_equal(store_forget_waiting(store), 0);
    assert_int_equal(get_volume(store, volume_id).guest_reason, REASON_UNVERIFIED);
    assert_true(get_volume(store, volume_id).guest_proven);
    assert_int_equal(row_open_resize(store, volume_id, 3 * GIB, 4 * GIB), 0);
    assert_true(get_volume(store, volume_id).guest_proven);
}

static void put_list(struct store *store, struct bound bound, uint64_t record, enum store_list list)
{
    const struct store_hypervisor_result result = {
        .volume_id = bound.volume_id,
        .reason = list == STORE_LIST_HAS ? REASON_NONE : REASON_DRIVE_NOT_FOUND,
        .error = "none of 0 drives",
        .bytes = list == STORE_LIST_HAS ? 2 * GIB : 0,
        .record = record,
        .list = list,
        .recorded_drive = "drive-2"};

    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
}

static const char *obstacle_of(struct store *store, int64_t volume_id)
{
    const struct store_volume volume = get_volume(store, volume_id);

    return volume.obstacle_known ? reason_name(volume.obstacle) : "";
}

/* What would keep the VMM from resizing the drive holds for this list and these records. */
static void an_obstacle_is_known_while_the_list_is(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_hypervisor_result result = {
        .volume_id = bound.volume_id,
        .record = 1,
        .list = STORE_LIST_HAS,
        .obstacle_known = true,
        .obstacle = REASON_HYPERVISOR_VERSION,
    };
    int before;

    assert_int_equal(store_renew_record(store, bound.volume_id, 1), 0);
    assert_string_equal(obstacle_of(store, bound.volume_id), "");
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(obstacle_of(store, bound.volume_id), "hypervisor_version");
    result.obstacle_known = false; /* a resize that failed says why in its own words */
    before = written(store);
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_int_equal(written(store), before);
    assert_string_equal(obstacle_of(store, bound.volume_id), "hypervisor_version");
    result.obstacle_known = true;
    result.obstacle = REASON_NONE;
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(obstacle_of(store, bound.volume_id), "none");
    put_list(store, bound, 1, STORE_LIST_LACKS);
    assert_string_equal(obstacle_of(store, bound.volume_id), "");
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_int_equal(store_renew_record(store, bound.volume_id, 2), 0);
    assert_string_equal(obstacle_of(store, bound.volume_id), "");
}

static void a_list_is_of_its_records(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);

    put_list(store, bound, 7, STORE_LIST_LACKS); /* records that were other ones */
    assert_int_equal(get_volume(store, bound.volume_id).list, STORE_LIST_HAS);
    assert_int_equal(get_volume(store, bound.volume_id).hypervisor_bytes, GIB);
    assert_int_equal(store_renew_record(store, bound.volume_id, 7), 0);
    assert_int_equal(get_volume(store, bound.volume_id).list, STORE_LIST_UNREAD);
    assert_int_equal(get_volume(store, bound.volume_id).record, 7);
    put_list(store, bound, 7, STORE_LIST_HAS);
    assert_int_equal(get_volume(store, bound.volume_id).list, STORE_LIST_HAS);
    assert_false(get_volume(store, bound.volume_id).list_again);
    assert_int_equal(store_want_list(store, bound.volume_id), 0);
    assert_int_equal(get_volume(store, bound.volume_id).list, STORE_LIST_HAS);
    assert_true(get_volume(store, bound.volume_id).list_again);
    put_list(store, bound, 7, STORE_LIST_HAS);
    assert_false(get_volume(store, bound.volume_id).list_again);
    assert_int_equal(store_forget_waiting(store), 0); /* an operator asks */
    assert_true(get_volume(store, bound.volume_id).list_again);
    put_list(store, bound, 7, STORE_LIST_LACKS);
    assert_int_equal(store_want_list(store, 0), 0);
    assert_int_equal(get_volume(store, bound.volume_id).list, STORE_LIST_UNREAD);
}

static bool is_asked_for(struct store *store, struct bound bound, unsigned turn, int64_t since_ms)
{
    put_list(store, bound, 1, STORE_LIST_HAS);
    assert_int_equal(store_want_lists_in_turn(store, turn, 120, since_ms), 0);
    return get_volume(store, bound.volume_id).list_again;
}

static void lists_are_asked_for_in_turn_and_after_a_resize(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    const unsigned turn = (unsigned)bound.volume_id % 120;

    assert_true(is_asked_for(store, bound, turn, 0));
    assert_false(is_asked_for(store, bound, turn + 1, 0));
    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_false(is_asked_for(store, bound, turn + 1, 0)); /* it is not finished */
    assert_int_equal(row_set_state(store, bound.volume_id, STATE_IN_SYNC, REASON_NONE, NULL), 0);
    assert_false(is_asked_for(store, bound, turn + 1, store->now_ms + 1));
    assert_true(is_asked_for(store, bound, turn + 1, store->now_ms));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_obstacle_is_known_while_the_list_is),
        MODEL(a_list_is_of_its_records),
        MODEL(lists_are_asked_for_in_turn_and_after_a_resize),
        MODEL(failed_guest_call_keeps_the_last_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
