/* SPDX-License-Identifier: Apache-2.0 */
/* guest_stats_test.c - what guests say of their file systems, and what is said of that. */
#include "tests/unit/store/fixture.h"

#include "store/read.h"

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

static void a_first_reading_is_news_if_it_is_abnormal(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;
    struct store_guest_stats stats = stats_of(store, volume_id);

    stats.abnormal = true;
    assert_true(put(store, volume_id, &stats));
    assert_int_equal(lines_of(store, "guest_condition_changed"), 1);
}

struct guests {
    unsigned count;
    uint32_t failures;
};

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(an_older_answer_is_dropped),
        MODEL(a_first_reading_is_news_if_it_is_abnormal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
