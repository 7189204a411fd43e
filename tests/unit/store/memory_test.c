/* SPDX-License-Identifier: Apache-2.0 */
/* memory_test.c - SQLite's allocations fail one after another, once each and then for ever.
 *
 * Whatever failed: no crash, no leak (the sanitizer says), -ENOMEM, nothing half done, and when
 * memory is back the same turn goes through.
 */
#include "tests/unit/store/fixture.h"

static sqlite3_mem_methods real;
static long allowed; /* allocations until the first that fails; negative: all succeed */
static bool for_ever;

static bool refuses(void)
{
    if (allowed < 0)
        return false;
    if (allowed > 0) {
        allowed--;
        return false;
    }
    if (!for_ever)
        allowed = -1;
    return true;
}

static void *failing_malloc(int size)
{
    return refuses() ? NULL : real.xMalloc(size);
}

static void *failing_realloc(void *memory, int size)
{
    return refuses() ? NULL : real.xRealloc(memory, size);
}

static int install(void **state)
{
    sqlite3_mem_methods failing;

    allowed = -1;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real), SQLITE_OK);
    failing = real;
    failing.xMalloc = failing_malloc;
    failing.xRealloc = failing_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
    return 0;
}

/* A turn of the loop: a device grew. */
static int grow(struct store *store, uint64_t size)
{
    struct store_device device = device_of(1, size);
    struct store_volume volume;
    int64_t device_id;
    bool changed;
    int r = store_begin(store);

    if (r == 0)
        r = store_put_device(store, &device, &device_id, &changed);
    if (r == 0)
        r = store_get_volume(store, 1, &volume);
    if (r == 0)
        r = store_open_resize(store, &volume, GIB, size);
    if (r == 0)
        r = store_set_state(store, &volume, STATE_HOST_GROWN, REASON_NONE, NULL);
    if (r == 0)
        r = store_commit(store);
    if (r < 0)
        store_rollback(store);
    return r;
}

/* The device and its resize were written by the same turn. */
static bool is_whole(struct store *store)
{
    return number_of(store, "SELECT (SELECT size_bytes FROM devices) ="
                            " coalesce((SELECT max(to_bytes) FROM resizes), 1 << 30)") == 1;
}

/* Each round opens anew, so that statements are prepared while memory is short. A commit that fails
 * may have happened, so a turn is found whole or not at all, and is simply taken again. */
static bool sweep_once(struct fixture *fixture, long failing)
{
    struct store_options options = {.path = fixture->path, .boot_id = "boot-1", .max_rows = 1000};
    uint64_t size = (uint64_t)(failing + 2) * GIB;
    int r;

    allowed = failing;
    r = store_open(&options, &fixture->store, NULL);
    if (r == 0)
        r = grow(fixture->store, size);
    allowed = -1;
    if (r < 0)
        assert_int_equal(r, -ENOMEM);
    if (!fixture->store)
        return false;
    assert_true(is_whole(fixture->store));
    assert_int_equal(grow(fixture->store, size), 0);
    assert_int_equal(number_of(fixture->store, "SELECT size_bytes FROM devices"), size);
    store_close(fixture->store);
    fixture->store = NULL;
    return r == 0;
}

static void sweep(struct fixture *fixture, bool ever)
{
    long failing = 0;

    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(store_begin(fixture->store), 0);
    assert_int_equal(put_bound(fixture->store).volume_id, 1);
    assert_int_equal(store_commit(fixture->store), 0);
    store_close(fixture->store);
    fixture->store = NULL;
    for_ever = ever;
    /* Some allocations may fail without harm: it is over when many in a row are not even reached.
     */
    for (int untouched = 0; untouched < 50; failing++)
        untouched = sweep_once(fixture, failing) ? untouched + 1 : 0;
    assert_true(failing > 150);
    assert_true(number_of((fixture->store = fixture_open(fixture->path, "boot-1")),
                          "SELECT count(*) FROM volumes") == 1);
}

static void each_allocation_fails_once(void **state)
{
    sweep(*state, false);
}

static void all_allocations_fail_from_one_on(void **state)
{
    sweep(*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_fails_once, fixture_directory,
                                        fixture_done),
        cmocka_unit_test_setup_teardown(all_allocations_fail_from_one_on, fixture_directory,
                                        fixture_done),
    };

    return cmocka_run_group_tests(tests, install, NULL);
}
