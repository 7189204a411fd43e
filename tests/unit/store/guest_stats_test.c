/* SPDX-License-Identifier: Apache-2.0 */
/* guest_stats_test.c - what guests say of their file systems, and what is said of that. */
#include "tests/unit/store/fixture.h"

#include "store/overview.h"
#include "tests/unit/volume_rows.h"

static struct store_guest_stats stats_of(struct store *store, int64_t volume_id)
{
    return (struct store_guest_stats){
        .binding_id = get_volume(store, volume_id).binding_id,
        .has_bytes = true,
        .total = GIB - 4096,
        .used = 4096,
        .available = GIB - 8192,
        .message = "fine",
    };
}

static bool put(struct store *store, int64_t volume_id, const struct store_guest_stats *stats)
{
    bool changed = false;

    assert_int_equal(store_put_guest_stats(store, volume_id, stats, &changed), 0);
    return changed;
}

static void usage_is_kept_and_not_journaled(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats stats = stats_of(store, volume_id);
    int64_t lines = number_of(store, "SELECT count(*) FROM journal");

    assert_text_of(store,
                   "SELECT coalesce(used_bytes, condition, stats_at, 'unknown') FROM audit_volumes",
                   "unknown");
    assert_false(put(store, volume_id, &stats));
    stats.used = 0;
    assert_false(put(store, volume_id, &stats));
    assert_text_of(store,
                   "SELECT used_bytes || ' ' || available_bytes || ' ' || condition || ' ' ||"
                   " condition_message || ' ' || guest_bytes || ' ' || (stats_at IS NOT NULL)"
                   " FROM audit_volumes",
                   "0 1073733632 normal fine 1073737728 1");
    stats.has_bytes = false;
    assert_false(put(store, volume_id, &stats));
    assert_text_of(store,
                   "SELECT coalesce(used_bytes, 'unknown') || guest_bytes FROM audit_volumes",
                   "unknown1073737728");
    assert_int_equal(number_of(store, "SELECT count(*) FROM journal"), lines);
}

/* What a poll counted before the volume grew, and what a clock that was set back makes of that. */
static void an_older_answer_is_dropped(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats grown = stats_of(store, volume_id), before = grown;

    grown.total = 2 * GIB;
    before.abnormal = true;
    before.age_ms = 1;
    assert_false(put(store, volume_id, &grown));
    assert_false(put(store, volume_id, &before));
    assert_int_equal(number_of(store, "SELECT guest_bytes FROM audit_volumes"), 2 * GIB);
    assert_text_of(store, "SELECT condition FROM audit_volumes", "normal");
    assert_int_equal(lines_of(store, "guest_condition_changed"), 0);
    assert_int_equal(
        sql_execute(&store->connection, "UPDATE guest_stats SET read_at = read_at + 2"), 0);
    assert_true(put(store, volume_id, &before));
    assert_int_equal(number_of(store, "SELECT guest_bytes FROM audit_volumes"),
                     (int64_t)before.total);
}

static void a_condition_is_journaled_when_it_changes(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats stats = stats_of(store, volume_id);

    assert_false(put(store, volume_id, &stats));
    stats.abnormal = true;
    stats.message = "remounted read-only";
    assert_true(put(store, volume_id, &stats));
    assert_false(put(store, volume_id, &stats));
    assert_int_equal(lines_of(store, "guest_condition_changed"), 1);
    assert_text_of(store, "SELECT detail FROM journal WHERE kind = 'guest_condition_changed'",
                   "{\"from\":\"normal\",\"to\":\"abnormal\","
                   "\"message\":\"remounted read-only\"}");
    stats.abnormal = false;
    assert_true(put(store, volume_id, &stats));
    assert_int_equal(lines_of(store, "guest_condition_changed"), 2);
}

static void a_first_reading_is_news_if_it_is_abnormal(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats stats = stats_of(store, volume_id);

    stats.abnormal = true;
    assert_true(put(store, volume_id, &stats));
    assert_int_equal(lines_of(store, "guest_condition_changed"), 1);
}

/* The next guest has not been asked yet. */
static void a_guests_report_ends_with_its_binding(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_guest_stats stats = stats_of(store, bound.volume_id);

    stats.abnormal = true;
    assert_true(put(store, bound.volume_id, &stats));
    assert_int_equal(store_close_binding(store, bound.volume_id), 0);
    assert_text_of(store, "SELECT coalesce(condition, 'unknown') FROM audit_volumes", "unknown");
    assert_false(put(store, bound.volume_id, &stats)); /* an answer that comes late */
    assert_int_equal(store_note_guest_silent(store, bound.volume_id), 0);
    assert_int_equal(number_of(store, "SELECT max(failures) FROM guest_stats"), 0);
    assert_int_equal(sql_execute(&store->connection, "DELETE FROM mappings"), 0);
    assert_int_equal(number_of(store, "SELECT count(*) FROM guest_stats"), 0);
}

/* The agent counts whatever is mounted at that path. */
static void guest_without_the_device_reports_no_condition(void **state)
{
    static const struct {
        enum volume_state state;
        enum volume_reason reason;
    } standing[] = {{STATE_BLOCKED, REASON_BYPASSED}, {STATE_DETACHED, REASON_NONE}};
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats stats = stats_of(store, volume_id);

    for (size_t i = 0; i < array_length(standing); i++) {
        assert_int_equal(row_set_state(store, volume_id, STATE_IN_SYNC, REASON_NONE, NULL), 0);
        assert_false(put(store, volume_id, &stats));
        assert_text_of(store, "SELECT condition FROM audit_volumes", "normal");
        assert_int_equal(
            row_set_state(store, volume_id, standing[i].state, standing[i].reason, NULL), 0);
        assert_false(put(store, volume_id, &stats));
        assert_text_of(store,
                       "SELECT coalesce(condition, used_bytes, 'unknown') FROM audit_volumes",
                       "unknown");
    }
}

struct guests {
    unsigned count;
    uint32_t failures;
};

static int note_guest(void *userdata, int64_t volume_id, int64_t binding_id, uint32_t failures)
{
    struct guests *guests = userdata;

    assert_true(volume_id && binding_id);
    guests->count++;
    guests->failures = failures;
    return 0;
}

static void silence_is_counted_up_to_a_bound(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats stats = stats_of(store, volume_id);
    struct guests guests = {0};
    int before;

    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(store_note_guest_silent(store, volume_id), 0);
    before = written(store);
    assert_int_equal(store_note_guest_silent(store, volume_id), 0);
    assert_int_equal(written(store), before);
    assert_int_equal(store_each_guest(store, note_guest, &guests), 0);
    assert_int_equal(guests.count, 1);
    assert_int_equal(guests.failures, 8);
    assert_text_of(store, "SELECT coalesce(stats_at, condition, 'unknown') FROM audit_volumes",
                   "unknown");
    (void)put(store, volume_id, &stats);
    assert_int_equal(store_each_guest(store, note_guest, &guests), 0);
    assert_int_equal(guests.failures, 0);
}

static int take_usage(void *userdata, const struct store_usage_line *line)
{
    assert_string_equal(line->pv, "pv-1");
    *(struct store_usage_line *)userdata = *line;
    return 0;
}

static void usage_is_listed_by_pv(void **state)
{
    struct store *store = store_of(state);
    struct store_reader *reader = store_get_reader(store);
    struct store_usage_line line = {0};
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats stats = stats_of(store, volume_id);
    struct error error;

    assert_int_equal(store_list_usage(reader, take_usage, &line, &error), 0);
    assert_int_equal(line.size_bytes, GIB);
    assert_false(line.has_usage);
    (void)put(store, volume_id, &stats);
    assert_int_equal(store_list_usage(reader, take_usage, &line, &error), 0);
    assert_true(line.has_usage);
    assert_int_equal(line.used_bytes, 4096);
    assert_int_equal(line.available_bytes, GIB - 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(usage_is_kept_and_not_journaled),
        MODEL(an_older_answer_is_dropped),
        MODEL(a_condition_is_journaled_when_it_changes),
        MODEL(a_first_reading_is_news_if_it_is_abnormal),
        MODEL(a_guests_report_ends_with_its_binding),
        MODEL(guest_without_the_device_reports_no_condition),
        MODEL(silence_is_counted_up_to_a_bound),
        MODEL(usage_is_listed_by_pv),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
