/* SPDX-License-Identifier: Apache-2.0 */
/* history_test.c - the journal's lines, another boot, and the bounds of history. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

#define DAY_MS (INT64_C(24) * 3600 * 1000)

enum { ENOUGH = 100 }; /* sweeps for these few rows */

static void a_line_brings_its_volumes_sandbox_and_device(void **state)
{
    struct store *store = store_of(state);
    int64_t volume_id = put_bound(store).volume_id;

    assert_int_equal(store_journal(store, "resync", volume_id, NULL, NULL, "{\"by\":\"x\"}"), 0);
    assert_text_of(store,
                   "SELECT sandbox_id || device || detail FROM journal WHERE kind = 'resync'",
                   "sandbox-1/dev/loop1{\"by\":\"x\"}");
    assert_int_equal(store_journal(store, "signal", 0, NULL, NULL, NULL), 0);
    assert_text_of(store, "SELECT volume_id FROM journal WHERE kind = 'signal'", NULL);
}

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

static void the_same_boot_is_not(void **state)
{
    struct fixture *fixture = *state;
    struct bound bound;

    open_at(fixture, "boot-1");
    bound = put_bound(fixture->store);
    assert_int_equal(store_set_attempts(fixture->store, bound.volume_id, 2, 500, 1000), 0);
    assert_int_equal(store_commit(fixture->store), 0);
    open_at(fixture, "boot-1");
    assert_int_not_equal(get_volume(fixture->store, bound.volume_id).binding_id, 0);
    assert_int_equal(get_volume(fixture->store, bound.volume_id).next_attempt_ns, 500);
    assert_int_equal(get_volume(fixture->store, bound.volume_id).device_id, bound.device_id);
}

/* ---- clocks ---- */

static void set_clock(struct store *store, int64_t milliseconds)
{
    store->now_ms += milliseconds;
    assert_int_equal(counted_time_note(store), 0);
}

static int64_t lines(struct store *store)
{
    return number_of(store, "SELECT count(*) FROM journal");
}

static void write_lines(struct store *store, unsigned count)
{
    while (count--)
        assert_int_equal(store_journal(store, "line", 0, NULL, NULL, NULL), 0);
}

static void a_clock_that_is_set_ahead_erases_nothing(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    write_lines(store, 20);
    before = lines(store);
    set_clock(store, 3650 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), before);
    /* It runs on from there, for less than the 90 days. */
    pass_time(store, 80 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), before);
    pass_time(store, 11 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), 1);
}

/* A machine whose clock is right a while after its boot only. */
static void rows_written_by_a_clock_that_was_behind_stay(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    set_clock(store, -3650 * DAY_MS);
    write_lines(store, 20);
    before = lines(store);
    pass_time(store, 1000);
    set_clock(store, 3650 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), before);
    write_lines(store, 1);
    pass_time(store, 91 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), 1);
}

static void there_and_back_is_as_if_nothing_had_been(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    write_lines(store, 20);
    pass_time(store, 50 * DAY_MS);
    write_lines(store, 5);
    before = lines(store);
    set_clock(store, 3650 * DAY_MS);
    set_clock(store, -3650 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), before);
    pass_time(store, 41 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), 5);
}

static void a_clock_that_is_set_again_and_again_has_a_bound(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    write_lines(store, 20);
    before = lines(store);
    for (unsigned i = 0; i < 1000; i++) {
        pass_time(store, 1000);
        set_clock(store, i % 3 ? DAY_MS : -DAY_MS);
    }
    assert_int_equal(number_of(store, "SELECT count(*) FROM clock_spans"), 64);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), before);
    pass_time(store, 91 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(number_of(store, "SELECT count(*) FROM clock_spans"), 1);
    pass_time(store, 400 * DAY_MS); /* the clock is ahead of some of them */
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(lines(store), 1);
}

/* What a correction of seconds leaves is no span of its own. */
static void a_small_clock_correction_is_ignored(void **state)
{
    struct store *store = store_of(state);

    for (int i = 0; i < 10; i++)
        set_clock(store, i % 2 ? 30000 : -30000);
    assert_int_equal(number_of(store, "SELECT count(*) FROM clock_spans"), 1);
    for (int i = 0; i < 3; i++)
        set_clock(store, 30000);
    assert_int_equal(number_of(store, "SELECT count(*) FROM clock_spans"), 2);
}

/* The machine was off, or its clock was wrong meanwhile: nobody can tell. */
static void another_boot_counts_on(void **state)
{
    struct fixture *fixture = *state;
    int64_t before;

    open_at(fixture, "boot-1");
    write_lines(fixture->store, 20);
    pass_time(fixture->store, 60 * DAY_MS);
    (void)trim_in_sweeps(fixture->store, 1); /* it is noted how far it has come */
    assert_int_equal(store_commit(fixture->store), 0);
    open_at(fixture, "boot-2");
    before = lines(fixture->store);
    set_clock(fixture->store, 500 * DAY_MS);
    (void)trim_in_sweeps(fixture->store, ENOUGH);
    assert_int_equal(lines(fixture->store), before);
    pass_time(fixture->store, 31 * DAY_MS);
    (void)trim_in_sweeps(fixture->store, ENOUGH);
    assert_true(lines(fixture->store) < before);
}

static void one_sweep_takes_a_part(void **state)
{
    struct store *store = store_of(state);
    int64_t before;

    write_lines(store, 4000);
    before = lines(store);
    pass_time(store, 180 * DAY_MS);
    (void)trim_in_sweeps(store, 1);
    assert_in_range(lines(store), before - before / 16 - 1, before - 1);
    write_lines(store, 10000);
    before = lines(store);
    pass_time(store, 180 * DAY_MS);
    (void)trim_in_sweeps(store, 1);
    assert_int_equal(lines(store), before - 500);
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
    (void)trim_in_sweeps(store, ENOUGH);
    assert_int_equal(number_of(store, "SELECT count(*) FROM journal"), 1);
    assert_int_equal(rows_of_all(store), 0);

    bound = put_bound(store);
    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    live = rows_of_all(store);
    pass_time(store, 180 * DAY_MS);
    (void)trim_in_sweeps(store, ENOUGH);
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
    (void)trim_in_sweeps(store, ENOUGH);
    assert_true(put_bound(store).volume_id > volume_id);
    assert_true(number_of(store, "SELECT max(seq) FROM journal") > newest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_line_brings_its_volumes_sandbox_and_device),
        FILES(another_boot_is_history),
        FILES(the_same_boot_is_not),
        MODEL(a_clock_that_is_set_ahead_erases_nothing),
        MODEL(rows_written_by_a_clock_that_was_behind_stay),
        MODEL(there_and_back_is_as_if_nothing_had_been),
        MODEL(a_clock_that_is_set_again_and_again_has_a_bound),
        MODEL(a_small_clock_correction_is_ignored),
        FILES(another_boot_counts_on),
        MODEL(one_sweep_takes_a_part),
        MODEL(old_history_goes_and_the_live_stays),
        MODEL(history_is_bounded_in_rows_and_steps),
        MODEL(numbers_are_never_used_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
