/* SPDX-License-Identifier: Apache-2.0 */
/* open_test.c - a file that failed, opened again; and memory in its place. */
#include "tests/unit/store/fixture.h"

#include <fcntl.h>

#include "lib/cleanup.h"

/* Opens the file as a running daemon does that could not use it. */
static int open_after(struct fixture *fixture, bool is_certain)
{
    const struct store_gap gap = {1800000000000, "it failed", is_certain};
    const struct store_options options = {.path = fixture->path,
                                          .boot_id = "boot-1",
                                          .keep_days = 90,
                                          .max_rows = 100000,
                                          .gap = &gap};
    struct error error = {0};
    int r;

    store_keep_wal(fixture->store);
    store_close(fixture->store);
    fixture->store = NULL;
    r = store_open(&options, &fixture->store, &error);
    if (r == STORE_OPENED)
        assert_false(store_is_degraded(fixture->store));
    return r;
}

static struct bound put(struct store *store)
{
    struct bound bound;

    assert_int_equal(store_begin(store), 0);
    bound = put_bound(store);
    assert_int_equal(store_commit(store), 0);
    return bound;
}

static int open_and_put(void **state)
{
    struct fixture *fixture;

    (void)fixture_directory(state);
    fixture = *state;
    fixture->store = fixture_open(fixture->path, "boot-1");
    (void)put(fixture->store);
    return 0;
}

static void a_file_that_failed_once_has_no_gap(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(open_after(fixture, false), STORE_OPENED);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
    assert_int_equal(lines_of(fixture->store, "history_missing"), 0);
}

static void a_gap_is_reported(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(open_after(fixture, true), STORE_OPENED);
    assert_int_equal(lines_of(fixture->store, "history_missing"), 1);
    assert_text_of(fixture->store, "SELECT detail FROM journal WHERE kind = 'history_missing'",
                   "{\"since\":\"2027-01-15T08:00:00.000Z\",\"reason\":\"it failed\"}");
}

/* What the log has of it is not written into it. */
static void a_damaged_file_is_kept_as_it_was_found(void **state)
{
    enum { NOISE = 64 * 1024 };
    static unsigned char noise[NOISE], found[NOISE + 1];
    struct fixture *fixture = *state;
    cleanup(fd_closep) int fd = open(fixture->path, O_WRONLY | O_CLOEXEC);
    cleanup(fd_closep) int aside_fd = -1;
    char aside[160];

    for (int i = 0; i < NOISE; i++)
        noise[i] = (unsigned char)(i * 7 + i / 251);
    /* A log without the first page. */
    store_close(fixture->store);
    fixture->store = fixture_open(fixture->path, "boot-1");
    execute_sql(fixture->store, "UPDATE volumes SET last_changed = last_changed + 1");
    assert_int_equal(pwrite(fd, noise, NOISE, 0), NOISE);
    assert_int_equal(ftruncate(fd, NOISE), 0);
    assert_int_equal(store_check_file(fixture->store), STORE_DAMAGED);
    assert_int_equal(open_after(fixture, false), STORE_OPENED);
    (void)snprintf(aside, sizeof(aside), "%s.corrupt-1", fixture->path);
    aside_fd = open(aside, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(aside_fd, found, sizeof(found)), NOISE);
    assert_memory_equal(found, noise, NOISE);
}

/* Words are not tried when they are written: each opening tries them all. */
static void a_word_that_is_none_of_ours_is_damage(void **state)
{
    struct fixture *fixture = *state;
    struct store_opening opening;
    struct store_options options = {
        .path = fixture->path, .boot_id = "boot-1", .max_rows = 100000, .ret_opening = &opening};
    struct error error = {0};

    assert_int_equal(sqlite3_exec(fixture->store->connection.db,
                                  "UPDATE volumes SET status = 'nonsense'", NULL, NULL, NULL),
                     SQLITE_CONSTRAINT_CHECK);
    execute_sql(fixture->store, "PRAGMA ignore_check_constraints = ON");
    execute_sql(fixture->store, "UPDATE volumes SET status = 'nonsense'");
    store_close(fixture->store);
    assert_int_equal(store_open(&options, &fixture->store, &error), STORE_OPENED);
    assert_true(opening.rebuilt);
}

static void memory_is_bounded_and_degraded(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(store_rows_kept(fixture->store), 100000);
    store_close(fixture->store);
    fixture->store = fixture_open(NULL, "boot-1");
    assert_true(store_is_in_memory(fixture->store));
    assert_true(store_is_degraded(fixture->store));
    assert_int_equal(store_rows_kept(fixture->store), 20000);
}

#define FILE_TEST(function) cmocka_unit_test_setup_teardown(function, open_and_put, fixture_done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_file_that_failed_once_has_no_gap),
        FILE_TEST(a_gap_is_reported),
        FILE_TEST(a_word_that_is_none_of_ours_is_damage),
        FILE_TEST(a_damaged_file_is_kept_as_it_was_found),
        FILE_TEST(memory_is_bounded_and_degraded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
