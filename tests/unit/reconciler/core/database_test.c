/* SPDX-License-Identifier: Apache-2.0 */
/* database_test.c - a reconciler whose database fails in the middle of its passes. */
#include "tests/unit/reconciler/fake_node.h"

#include "store/internal.h"
#include "tests/unit/missing_database.h"

static struct reconciler_health health(void)
{
    struct reconciler_health health;

    reconciler_get_health(reconciler, &health);
    return health;
}

/* The next write on this connection fails. */
static void fail_writes(void)
{
    assert_int_equal(sqlite3_exec(store->connection.db, "PRAGMA query_only = 1", NULL, NULL, NULL),
                     SQLITE_OK);
}

static void grow(uint64_t bytes)
{
    put_disk(0, DISK, 1, bytes);
    reconciler_queue_device(reconciler, 7, 1);
}

/* Nothing can be opened at its place. */
static void obstruct(void)
{
    tree_remove(config.paths.database);
    tree_make(config.paths.database);
}

static void wait_until_in_memory(bool is)
{
    fake_goes_on = true;
    while (health().in_memory != is || !health().synced)
        loop_run_once(&loop);
    fake_goes_on = false;
    settle();
}

static void a_file_that_fails_in_a_pass_loses_nothing(void **state)
{
    (void)state;
    (void)bind_one();
    fail_writes();
    grow(2 * GIB);
    settle();
    assert_false(health().in_memory);
    assert_false(health().database_fails);
    assert_int_equal(volume_of(last_volume()).resize_to_bytes, 2 * GIB);
    assert_int_equal(volume_of(last_volume()).resize_from_bytes, GIB);
}

/* ENOENT is about the database's file, and no volume's absence. */
static void a_file_that_is_missing_in_a_pass_is_no_missing_volume(void **state)
{
    (void)state;
    (void)bind_one();
    missing_for = "m.guest_synced_bytes";
    missing_times = 1;
    grow(2 * GIB);
    settle();
    assert_int_equal(missing_times, 0);
    assert_int_equal(volume_of(last_volume()).resize_to_bytes, 2 * GIB);
    assert_int_equal(volume_of(last_volume()).resize_from_bytes, GIB);
}

static void without_its_file_crustd_goes_on_in_memory_and_comes_back(void **state)
{
    (void)state;
    (void)bind_one();
    obstruct();
    fail_writes();
    grow(2 * GIB);
    wait_until_in_memory(true);
    assert_true(health().degraded);
    assert_true(health().database_fails);
    assert_non_null(strstr(health().problem, "the database fails"));
    assert_int_equal(volume_of(last_volume()).device_bytes, 2 * GIB); /* found by a scan */
    assert_true(volume_of(last_volume()).binding_id != 0);
    tree_remove(config.paths.database);
    reconciler_resync(reconciler);
    wait_until_in_memory(false);
    assert_false(health().database_fails);
    assert_true(tree_has(config.paths.database));
    assert_int_equal(volume_of(last_volume()).device_bytes, 2 * GIB);
}

static void a_start_in_memory_comes_back_to_the_file(void **state)
{
    struct store_opening opening;
    struct error error = {0};

    (void)state;
    store_close(store);
    assert_int_equal(
        instance_open_store(&instance, &config, INSTANCE_STORE_MEMORY, &store, &opening, &error),
        STORE_OPENED);
    (void)error_set(&error, STORE_NO_SPACE, "no space is left");
    stage(TARGET, DISK, NULL);
    put_disk(0, DISK, 1, GIB);
    make_reconciler(&error);
    reconciler_start(reconciler);
    wait_until_in_memory(true);
    assert_non_null(strstr(health().problem, "no space is left"));
    wait_until_in_memory(false); /* by itself */
    assert_is(last_volume(), STATE_UNBOUND, REASON_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(a_file_that_fails_in_a_pass_loses_nothing),
        NODE(a_file_that_is_missing_in_a_pass_is_no_missing_volume),
        NODE(without_its_file_crustd_goes_on_in_memory_and_comes_back),
        NODE(a_start_in_memory_comes_back_to_the_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
