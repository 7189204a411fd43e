/* SPDX-License-Identifier: Apache-2.0 */
/* event_rows_test.c - which rows of the journal are told, about which objects, and how often. */
#include "tests/unit/store/fixture.h"

#include "store/journal.h"
#include "tests/unit/volume_rows.h"

enum { ROWS = 16, TEXT = 64 };

struct seen {
    unsigned count;
    struct {
        char kind[TEXT], to[TEXT], pv[TEXT], claim[TEXT], claim_namespace[TEXT], pod[TEXT],
            pod_namespace[TEXT], pod_uid[TEXT], message[TEXT];
        bool is_current, is_stalled, is_repeated;
        int64_t from_bytes, to_bytes;
    } row[ROWS];
};

static void on_row(void *userdata, const struct store_event_row *row)
{
    struct seen *seen = userdata;
    typeof(seen->row[0]) *one = &seen->row[seen->count++];

    assert_true(seen->count <= ROWS);
#define COPY(member, from) (void)snprintf(one->member, TEXT, "%s", row->from)
    COPY(kind, kind);
    COPY(to, to);
    COPY(pv, pv);
    COPY(claim, claim_name);
    COPY(claim_namespace, claim_namespace);
    COPY(pod, pod_name);
    COPY(pod_namespace, pod_namespace);
    COPY(pod_uid, pod_uid);
    COPY(message, message);
    one->is_current = row->is_current;
    one->is_stalled = row->is_stalled;
    one->is_repeated = row->is_repeated;
    one->from_bytes = row->from_bytes;
    one->to_bytes = row->to_bytes;
}

/* What is committed, after the row seq. */
static struct seen read_after(struct store *store, int64_t *seq)
{
    struct seen seen = {0};
    int64_t newest = 0;

    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_newest_journal_row(store, &newest), 0);
    assert_int_equal(store_each_event_row(store, seq, newest, 1000, on_row, &seen), 0);
    assert_int_equal(*seq, newest);
    assert_int_equal(store_begin(store), 0);
    return seen;
}

static struct bound put_with_metadata(struct store *store, const char *metadata)
{
    struct bound bound = put_bound(store);
    static const char set[] = "UPDATE entries SET metadata = ?1";

    assert_true(STORE_CHANGE(store, set, metadata) >= 0);
    return bound;
}

static void set_state(struct store *store, int64_t volume_id, enum volume_state state,
                      enum volume_reason reason)
{
    assert_int_equal(row_set_state(store, volume_id, state, reason, NULL), 0);
}

/* Back and forth is the same; another size, or another sandbox, is not. */
static void same_reason_is_repeated_until_the_size_changes(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct seen seen;
    int64_t seq = 0;

    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    (void)read_after(store, &seq);
    for (int i = 0; i < 3; i++) {
        set_state(store, bound.volume_id, STATE_BLOCKED, REASON_HYPERVISOR_BUSY);
        seen = read_after(store, &seq);
        assert_int_equal(seen.count, 1);
        assert_int_equal(seen.row[0].is_repeated, i > 0);
        set_state(store, bound.volume_id, STATE_HOST_GROWN, REASON_NONE);
        seen = read_after(store, &seq);
        assert_false(seen.row[0].is_stalled);
    }
    set_state(store, bound.volume_id, STATE_BLOCKED, REASON_MONITOR_MISSING);
    assert_false(read_after(store, &seq).row[0].is_repeated);
    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 3 * GIB), 0);
    set_state(store, bound.volume_id, STATE_HOST_GROWN, REASON_NONE);
    set_state(store, bound.volume_id, STATE_BLOCKED, REASON_HYPERVISOR_BUSY);
    seen = read_after(store, &seq);
    assert_int_equal(seen.count, 2);
    assert_false(seen.row[0].is_current);
    assert_true(seen.row[1].is_current && !seen.row[1].is_repeated);
}

static void ended_sandbox_is_still_known(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct seen seen;
    int64_t seq = 0;

    (void)read_after(store, &seq);
    assert_int_equal(store_close_binding(store, bound.volume_id), 0);
    assert_int_equal(store_journal(store, "cleanup_removed", bound.volume_id, NULL, NULL,
                                   "{\"reason\":\"sandbox_ended\"}"),
                     0);
    seen = read_after(store, &seq);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.row[0].kind, "cleanup_removed");
    assert_string_equal(seen.row[0].pod, "pod");
}

static void malformed_json_is_left_out(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_with_metadata(store, "no JSON");
    struct seen seen;
    int64_t seq = 0;

    assert_int_equal(
        store_journal(store, "guest_condition_changed", bound.volume_id, NULL, NULL, "{\"to\":"),
        0);
    seen = read_after(store, &seq);
    assert_string_equal(seen.row[seen.count - 1].kind, "guest_condition_changed");
    assert_string_equal(seen.row[seen.count - 1].to, "");
    assert_string_equal(seen.row[seen.count - 1].claim, "");
}

static void rows_come_in_pieces_and_only_when_committed(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct seen seen = {0};
    int64_t seq = 0, newest;

    assert_int_equal(store_each_event_row(store, &seq, 1, 10, on_row, &seen), STORE_RUNNING);
    for (int i = 0; i < 5; i++)
        assert_int_equal(store_journal(store, "cleanup_removed", bound.volume_id, NULL, NULL, NULL),
                         0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(store_newest_journal_row(store, &newest), 0);
    seq = newest - 5;
    assert_int_equal(store_each_event_row(store, &seq, newest, 2, on_row, &seen), 0);
    assert_int_equal(seq, newest - 3);
    assert_int_equal(seen.count, 2);
    assert_int_equal(store_each_event_row(store, &seq, newest, 10, on_row, &seen), 0);
    assert_int_equal(seen.count, 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_memory, fixture_done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(same_reason_is_repeated_until_the_size_changes),
        TEST(ended_sandbox_is_still_known),
        TEST(malformed_json_is_left_out),
        TEST(rows_come_in_pieces_and_only_when_committed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
