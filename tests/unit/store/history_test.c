/* SPDX-License-Identifier: Apache-2.0 */
/* history_test.c - the journal's lines, another boot, and the bounds of history. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

enum { ENOUGH = 100 }; /* sweeps, or days, for these few rows */

/* ---- boots --------------------------------------------------------------------------------- */

static void open_at(struct fixture *fixture, const char *boot_id)
{
    store_close(fixture->store);
    fixture->store = fixture_open(fixture->path, boot_id);
    assert_int_equal(store_begin(fixture->store), 0);
}

static void another_boot_is_history(void **state)
{
    struct fixture *fixture = *state;
    struct store_device device = device_of(1, GIB);
    struct store_volume volume;
    struct bound bound;

    open_at(fixture, "boot-1");
    bound = put_bound(fixture->store);
    assert_int_equal(row_open_resize(fixture->store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(store_set_attempts(fixture->store, bound.volume_id, 2, 500, 1000), 0);
    assert_int_equal(store_commit(fixture->store), 0);
    open_at(fixture, "boot-2");
    volume = get_volume(fixture->store, bound.volume_id);
    assert_int_equal(volume.status, STORE_PRESENT);
    assert_int_equal(volume.binding_id, 0);
    assert_int_equal(volume.live_sandboxes, 0);
    assert_int_equal(volume.device_id, 0);
    assert_int_equal(volume.attempts, 0);
    assert_int_equal(volume.next_attempt_ns, 0);
    assert_int_not_equal(volume.resize_id, 0); /* still to be done */
    assert_text_of(fixture->store, "SELECT boot_id || status FROM audit_sandboxes", "boot-1gone");
    assert_int_not_equal(put_device(fixture->store, &device, true), bound.device_id);
}

/* ---- clocks ---- */

static int64_t lines(struct store *store)
{
    return number_of(store, "SELECT count(*) FROM journal");
}

static void write_lines(struct store *store, unsigned count)
{
    while (count--)
        assert_int_equal(store_journal(store, "line", 0, NULL, NULL, NULL), 0);
}

static void a_clock_that_is_set_ahead_erases_a_tenth_a_day(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    write_lines(store, 2000);
    before = lines(store);
    store->now_ms += 3650 * DAY_MS;
    (void)trim_in_sweeps(store, ENOUGH);
    assert_in_range(lines(store), before - before / 10 - 1, before - before / 10);
    pass_time(store, DAY_MS - 1000);
    store->now_ms += 3650 * DAY_MS; /* and once more: within a boot no day begins by that */
    (void)trim_in_sweeps(store, ENOUGH);
    assert_in_range(lines(store), before - before / 10 - 1, before - before / 10);
    before = lines(store);
    store->now_ms -= 2 * 3650 * DAY_MS; /* it is set right */
    trim_for_days(store, 3);
    assert_int_equal(lines(store), before);
}

static void rows_of_a_clock_that_is_ahead_stay_until_then(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    store->now_ms += 100 * DAY_MS;
    write_lines(store, 20);
    store->now_ms -= 100 * DAY_MS;
    before = lines(store);
    trim_for_days(store, 89);
    assert_int_equal(lines(store), before);
    trim_for_days(store, 200);
    assert_int_equal(lines(store), 1);
}

/* Not even if the daemon is restarted meanwhile, or the machine. */
static void a_restart_begins_no_day(void **state)
{
    struct fixture *fixture = *state;
    int64_t before;

    open_at(fixture, "boot-1");
    write_lines(fixture->store, 200);
    pass_time(fixture->store, 180 * DAY_MS);
    (void)trim_in_sweeps(fixture->store, ENOUGH);
    execute_sql(fixture->store, "UPDATE clock_spans SET wall_from = unixepoch() * 1000");
    assert_int_equal(store_commit(fixture->store), 0);
    for (int i = 0; i < 4; i++) {
        open_at(fixture, i < 2 ? "boot-1" : "boot-2");
        before = lines(fixture->store);
        fixture->store->keep_ms = -DAY_MS; /* all of it is too old */
        (void)trim_in_sweeps(fixture->store, ENOUGH);
        assert_int_equal(lines(fixture->store), before);
        assert_int_equal(store_commit(fixture->store), 0);
    }
    open_at(fixture, "boot-2");
    fixture->store->keep_ms = -DAY_MS;
    fixture->store->now_ms += DAY_MS;
    (void)trim_in_sweeps(fixture->store, ENOUGH);
    assert_true(lines(fixture->store) < before);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM clock_spans"), 1);
}

static void one_day_takes_a_tenth_in_steps(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    write_lines(store, 15000);
    before = lines(store);
    pass_time(store, 180 * DAY_MS);
    assert_in_range(trim_in_sweeps(store, 1), 3, 5);
    assert_in_range(lines(store), before - before / 10 - 1, before - before / 10 + 1);
}

/* ---- bounds -------------------------------------------------------------------------------- */

/* One whole life of a volume. */
static void live_and_end(struct store *store)
{
    struct bound bound = put_bound(store);
    int64_t removed;
    bool changed;

    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    assert_int_equal(store_remove_entry(store, LAYOUT_KATA, "key-1", &removed), 0);
    assert_int_equal(store_end_sandbox(store, "sandbox-1", &changed), 0);
}

static int64_t rows_of_all(struct store *store)
{
    return number_of(store, "SELECT (SELECT count(*) FROM volumes) + (SELECT count(*) FROM entries)"
                            " + (SELECT count(*) FROM mappings) + (SELECT count(*) FROM sandboxes)"
                            " + (SELECT count(*) FROM resizes) + (SELECT count(*) FROM devices)"
                            " + (SELECT count(*) FROM entry_sandboxes)");
}

static void old_history_goes_and_the_live_stays(void **state)
{
    struct store *store = store_of(state);
    struct bound bound;
    int64_t live;

    live_and_end(store);
    assert_int_equal(trim_in_sweeps(store, 1), 1);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_volumes"), 1);
    /* Half a year later. */
    pass_time(store, 180 * DAY_MS);
    trim_for_days(store, ENOUGH);
    assert_int_equal(number_of(store, "SELECT count(*) FROM journal"), 1);
    assert_int_equal(rows_of_all(store), 0);

    bound = put_bound(store);
    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    live = rows_of_all(store);
    pass_time(store, 180 * DAY_MS);
    trim_for_days(store, ENOUGH);
    assert_int_equal(rows_of_all(store), live);
    assert_int_not_equal(get_volume(store, bound.volume_id).resize_id, 0);
}

static void history_is_bounded_in_rows_and_steps(void **state)
{
    struct store *store = store_of(state);
    int64_t newest;

    store->max_rows = 100;
    for (int i = 0; i < 2000; i++)
        assert_int_equal(store_journal(store, "line", 0, NULL, NULL, NULL), 0);
    newest = number_of(store, "SELECT max(seq) FROM journal");
    assert_true(trim_in_sweeps(store, 1) > 3);
    assert_int_equal(number_of(store, "SELECT count(*) FROM journal"), 100);
    assert_int_equal(number_of(store, "SELECT max(seq) FROM journal"), newest);
}

static void numbers_are_never_used_twice(void **state)
{
    struct store *store = store_of(state);
    int64_t newest, volume_id;

    live_and_end(store);
    newest = number_of(store, "SELECT max(seq) FROM journal");
    volume_id = number_of(store, "SELECT max(volume_id) FROM volumes");
    pass_time(store, 180 * DAY_MS);
    trim_for_days(store, ENOUGH);
    assert_true(put_bound(store).volume_id > volume_id);
    assert_true(number_of(store, "SELECT max(seq) FROM journal") > newest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(another_boot_is_history),
        MODEL(a_clock_that_is_set_ahead_erases_a_tenth_a_day),
        MODEL(rows_of_a_clock_that_is_ahead_stay_until_then),
        FILES(a_restart_begins_no_day),
        MODEL(one_day_takes_a_tenth_in_steps),
        MODEL(old_history_goes_and_the_live_stays),
        MODEL(history_is_bounded_in_rows_and_steps),
        MODEL(numbers_are_never_used_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
