/* SPDX-License-Identifier: Apache-2.0 */
/* bindings_test.c - a volume's stay in a sandbox, and what was learned during it. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

static void open_again(struct store *store, const struct bound *bound, const char *source)
{
    struct store_binding binding = {.volume_id = bound->volume_id,
                                    .sandbox_ref = bound->sandbox_ref,
                                    .device_id = bound->device_id,
                                    .source = source};

    assert_int_equal(store_open_binding(store, &binding), 0);
}

static void a_binding_is_described_and_replaced(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_volume volume;
    int before;

    assert_int_equal(store_describe_binding(store, bound.volume_id, NULL, "/run/kata/x", "persist"),
                     0);
    before = written(store);
    assert_int_equal(store_describe_binding(store, bound.volume_id, "drive-1", NULL, "persist"), 0);
    assert_int_equal(store_note_size(store, bound.volume_id, GIB), 0);
    assert_int_equal(written(store), before);
    assert_int_equal(store_note_size(store, bound.volume_id, 3 * GIB), 0);
    volume = get_volume(store, bound.volume_id);
    assert_string_equal(volume.drive_id, "drive-1");
    assert_string_equal(volume.guest_path, "/run/kata/x");
    assert_string_equal(volume.binding_source, "persist");
    assert_int_equal(volume.first_bytes, GIB);
    assert_int_equal(volume.largest_bytes, 3 * GIB);
    assert_int_equal(volume.binding_device_id, bound.device_id);
    assert_int_equal(volume.binding_sandbox_ref, bound.sandbox_ref);

    open_again(store, &bound, "api");
    assert_int_not_equal(get_volume(store, bound.volume_id).binding_id, volume.binding_id);
    assert_int_equal(get_volume(store, bound.volume_id).hypervisor_bytes, 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_mappings"), 2);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_mappings WHERE until IS NULL"),
                     1);
    assert_int_equal(store_close_binding(store, bound.volume_id), 0);
    before = written(store);
    assert_int_equal(store_close_binding(store, bound.volume_id), 0);
    assert_int_equal(written(store), before);
}

static void drive_named_by_the_vmm_sets_the_binding_source(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_hypervisor_result result = {.volume_id = bound.volume_id, .drive_id = "drive-9"};

    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, bound.volume_id).binding_source, "sandbox-file");
    open_again(store, &bound, "bundle");
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, bound.volume_id).binding_source, "hypervisor");
}

static void equal_states_and_results_write_nothing(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_hypervisor_result hypervisor = {.volume_id = volume_id, .bytes = GIB};
    struct store_guest_result guest = {.volume_id = volume_id, .guest_bytes = 5};
    bool changed = true;
    int before;

    assert_int_equal(row_set_state(store, volume_id, STATE_IN_SYNC, REASON_NONE, NULL), 0);
    assert_int_equal(store_put_hypervisor_result(store, &hypervisor), 0);
    assert_int_equal(store_put_guest_result(store, &guest), 0);
    before = written(store);
    assert_int_equal(row_set_state(store, volume_id, STATE_IN_SYNC, REASON_NONE, &changed), 0);
    assert_false(changed);
    assert_int_equal(store_put_hypervisor_result(store, &hypervisor), 0);
    assert_int_equal(store_put_guest_result(store, &guest), 0);
    assert_int_equal(written(store), before);
}

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

static void guest_path_takes_precedence_over_an_address(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_hypervisor_result result = {.volume_id = bound.volume_id};
    static const char *const addresses[] = {"pci:02/01", "pci:02/02", NULL};
    static const char *const expected[] = {"pci:02/01", "pci:02/02", "pci:02/02"};

    for (size_t i = 0; i < array_length(addresses); i++) {
        result.guest_path = addresses[i];
        assert_int_equal(store_put_hypervisor_result(store, &result), 0);
        assert_string_equal(get_volume(store, bound.volume_id).guest_path, expected[i]);
    }
    assert_int_equal(store_describe_binding(store, bound.volume_id, NULL, "/guest/data", NULL), 0);
    result.guest_path = "pci:02/03";
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, bound.volume_id).guest_path, "/guest/data");
    result.guest_path = "/guest/storage";
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, bound.volume_id).guest_path, "/guest/storage");
    result.guest_path = NULL;
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, bound.volume_id).guest_path, "/guest/storage");
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

static void a_vmm_that_lost_the_drive_has_no_size(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_volume volume;

    put_list(store, bound, 1, STORE_LIST_HAS);
    volume = get_volume(store, bound.volume_id);
    assert_int_equal(volume.list, STORE_LIST_HAS);
    assert_int_equal(volume.hypervisor_bytes, 2 * GIB);
    for (unsigned misses = 1; misses <= 3; misses++) {
        put_list(store, bound, 1, STORE_LIST_LACKS);
        assert_int_equal(get_volume(store, bound.volume_id).list_misses, misses);
    }
    volume = get_volume(store, bound.volume_id);
    assert_int_equal(volume.list, STORE_LIST_LACKS);
    assert_int_equal(volume.hypervisor_bytes, 0);
    assert_int_equal(volume.first_bytes, 2 * GIB); /* what a resize counts from */
    assert_string_equal(volume.drive_id, "drive-2");
    assert_string_equal(volume.list_error, "none of 0 drives");
    put_list(store, bound, 1, STORE_LIST_HAS);
    volume = get_volume(store, bound.volume_id);
    assert_int_equal(volume.list_misses, 0);
    assert_string_equal(volume.list_error, "");
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

static void lists_are_asked_for_in_turn(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    const unsigned turn = (unsigned)bound.volume_id % 120;
    int64_t finished_at = 5000;

    for (unsigned other = 0; other < 120; other++) {
        put_list(store, bound, 1, STORE_LIST_HAS);
        assert_int_equal(store_want_lists_in_turn(store, other, 120, finished_at), 0);
        assert_int_equal(get_volume(store, bound.volume_id).list_again, other == turn);
    }
    /* After a resize, whosever turn it is. */
    put_list(store, bound, 1, STORE_LIST_HAS);
    execute_sql(store,
                "INSERT INTO resizes (volume_id, to_bytes, state, reason, detected_at, finished_at)"
                " SELECT volume_id, 1, 'in_sync', 'none', 1, 5000 FROM volumes");
    assert_int_equal(store_want_lists_in_turn(store, turn + 1, 120, finished_at + 1), 0);
    assert_false(get_volume(store, bound.volume_id).list_again);
    assert_int_equal(store_want_lists_in_turn(store, turn + 1, 120, finished_at), 0);
    assert_true(get_volume(store, bound.volume_id).list_again);
    /* A list that lacks the drive is read again for reasons of its own. */
    put_list(store, bound, 1, STORE_LIST_LACKS);
    assert_int_equal(store_want_lists_in_turn(store, 0, 1, 0), 0);
    assert_int_equal(get_volume(store, bound.volume_id).list, STORE_LIST_LACKS);
}

static void a_size_that_was_set_back_is_counted_until_the_device_grows(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_hypervisor_result result = {
        .volume_id = bound.volume_id, .record = 1, .list = STORE_LIST_HAS, .bytes = 2 * GIB};

    for (unsigned times = 1; times <= 2; times++) {
        result.bytes = 2 * GIB;
        result.undone = false;
        assert_int_equal(store_put_hypervisor_result(store, &result), 0);
        result.bytes = GIB;
        result.undone = true;
        assert_int_equal(store_put_hypervisor_result(store, &result), 0);
        assert_int_equal(get_volume(store, bound.volume_id).undone, times);
        assert_int_equal(get_volume(store, bound.volume_id).hypervisor_bytes, GIB);
    }
    assert_int_equal(store_note_size(store, bound.volume_id, GIB), 0);
    assert_int_equal(get_volume(store, bound.volume_id).undone, 2);
    assert_int_equal(store_note_size(store, bound.volume_id, 3 * GIB), 0);
    assert_int_equal(get_volume(store, bound.volume_id).undone, 0);
    result.bytes = GIB / 2;
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_int_equal(get_volume(store, bound.volume_id).undone, 1);
    assert_int_equal(store_forget_waiting(store), 0); /* an operator asks */
    assert_int_equal(get_volume(store, bound.volume_id).undone, 0);
}

static void a_file_system_that_fills_its_device_is_known_to(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_guest_result guest = {
        .volume_id = bound.volume_id, .reason = REASON_NONE, .synced_bytes = GIB};
    struct store_device device = device_of(1, GIB);

    assert_int_equal(store_put_guest_result(store, &guest), 0);
    assert_int_equal(get_volume(store, bound.volume_id).filled_bytes, 0); /* it did not say so */
    guest.guest_bytes = GIB - 1;
    assert_int_equal(store_put_guest_result(store, &guest), 0);
    open_again(store, &bound, "api");
    assert_int_equal(get_volume(store, bound.volume_id).filled_bytes, GIB);
    assert_int_equal(get_volume(store, bound.volume_id).filled_device_id, bound.device_id);
    device.size_bytes = 2 * GIB;
    (void)put_device(store, &device, true);
    assert_int_equal(get_volume(store, bound.volume_id).filled_bytes, GIB);
    device.size_bytes = GIB;
    (void)put_device(store, &device, true);
    assert_int_equal(get_volume(store, bound.volume_id).filled_bytes, 0); /* it was cut */
    assert_int_equal(get_volume(store, bound.volume_id).guest_synced_bytes, 0);
}

static void a_failure_is_on_record_in_words(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_hypervisor_result result = {
        .volume_id = volume_id, .reason = REASON_HYPERVISOR_VERSION, .error = "needs 52"};

    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, volume_id).hypervisor_error, "needs 52");
    result.error = "needs 53";
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, volume_id).hypervisor_error, "needs 53");
    result.reason = REASON_NONE;
    result.error = "";
    assert_int_equal(store_put_hypervisor_result(store, &result), 0);
    assert_string_equal(get_volume(store, volume_id).hypervisor_error, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_obstacle_is_known_while_the_list_is),
        MODEL(a_vmm_that_lost_the_drive_has_no_size),
        MODEL(a_list_is_of_its_records),
        MODEL(lists_are_asked_for_in_turn),
        MODEL(a_size_that_was_set_back_is_counted_until_the_device_grows),
        MODEL(a_file_system_that_fills_its_device_is_known_to),
        MODEL(a_binding_is_described_and_replaced),
        MODEL(drive_named_by_the_vmm_sets_the_binding_source),
        MODEL(equal_states_and_results_write_nothing),
        MODEL(guest_path_takes_precedence_over_an_address),
        MODEL(a_failure_is_on_record_in_words),
        MODEL(failed_guest_call_keeps_the_last_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
