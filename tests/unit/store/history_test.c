/* SPDX-License-Identifier: Apache-2.0 */
/* history_test.c - the journal's lines, another boot, and the bounds of history. */
#include "tests/unit/store/fixture.h"
#include "tests/unit/volume_rows.h"

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

/* ---- bounds -------------------------------------------------------------------------------- */

/* Trims to the end and returns in how many steps. */
static int trim(struct store *store)
{
    int steps = 0, r;

    do {
        r = store_trim(store);
        assert_true(r >= 0);
        steps++;
    } while (r > 0);
    return steps;
}

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
    assert_int_equal(trim(store), 1);
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_volumes"), 1);
    /* Half a year later. */
    store->now_ms += INT64_C(180) * 24 * 3600 * 1000;
    (void)trim(store);
    assert_int_equal(number_of(store, "SELECT count(*) FROM journal"), 1);
    assert_int_equal(rows_of_all(store), 0);

    bound = put_bound(store);
    assert_int_equal(row_open_resize(store, bound.volume_id, GIB, 2 * GIB), 0);
    live = rows_of_all(store);
    store->now_ms += INT64_C(180) * 24 * 3600 * 1000;
    (void)trim(store);
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
    assert_true(trim(store) > 3);
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
    store->now_ms += INT64_C(180) * 24 * 3600 * 1000;
    (void)trim(store);
    assert_true(put_bound(store).volume_id > volume_id);
    assert_true(number_of(store, "SELECT max(seq) FROM journal") > newest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(a_line_brings_its_volumes_sandbox_and_device),
        FILES(another_boot_is_history),
        FILES(the_same_boot_is_not),
        MODEL(old_history_goes_and_the_live_stays),
        MODEL(history_is_bounded_in_rows_and_steps),
        MODEL(numbers_are_never_used_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
