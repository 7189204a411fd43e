/* SPDX-License-Identifier: Apache-2.0 */
/* open_test.c - a store that leaves its file for memory, and comes back to it. */
#include "tests/unit/store/fixture.h"

#include <fcntl.h>

#include "lib/cleanup.h"

static void fall_back(struct fixture *fixture)
{
    struct error error = {0};

    if (store_fall_back(fixture->store, &error) != 0)
        fail_msg("%s", error.text);
    assert_true(store_is_in_memory(fixture->store));
    assert_true(store_is_degraded(fixture->store));
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 0);
}

static int come_back(struct fixture *fixture, bool *ret_same)
{
    struct error error = {0};

    return store_return(fixture->store, fixture->path, "it failed", ret_same, &error);
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

static void a_file_left_and_taken_up_at_once_is_the_same(void **state)
{
    struct fixture *fixture = *state;
    bool same = false;

    fall_back(fixture);
    assert_int_equal(come_back(fixture, &same), STORE_OPENED);
    assert_true(same);
    assert_false(store_is_degraded(fixture->store));
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
    assert_int_equal(lines_of(fixture->store, "history_missing"), 0);
}

static void records_lost_with_the_memory_store_are_reported(void **state)
{
    struct fixture *fixture = *state;
    bool same = true;

    fall_back(fixture);
    assert_int_equal(put(fixture->store).volume_id, 1);
    assert_int_equal(come_back(fixture, &same), STORE_OPENED);
    assert_false(same);
    assert_int_equal(lines_of(fixture->store, "history_missing"), 1);
    assert_text_of(fixture->store,
                   "SELECT detail ->> 'reason' FROM journal WHERE kind = 'history_missing'",
                   "it failed");
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM journal WHERE kind ="
                                               " 'history_missing' AND detail ->> 'since' LIKE"
                                               " '20__-__-__T__:__:__.___Z'"),
                     1);
}

static void a_file_that_took_its_place_is_another(void **state)
{
    struct fixture *fixture = *state;
    bool same = true;

    assert_int_equal(unlink(fixture->path), 0);
    fall_back(fixture);
    assert_int_equal(come_back(fixture, &same), STORE_OPENED);
    assert_false(same);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 0);
    assert_int_equal(lines_of(fixture->store, "history_missing"), 1);
}

static void overwrite(const struct fixture *fixture, const char *text)
{
    int fd = open(fixture->path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static void an_overwritten_file_is_noticed_and_set_aside(void **state)
{
    struct fixture *fixture = *state;
    char aside[160];
    bool same = true;

    overwrite(fixture, "this is no database");
    assert_int_equal(store_check_file(fixture->store), STORE_DAMAGED);
    assert_true(store_is_degraded(fixture->store));
    fall_back(fixture);
    assert_int_equal(come_back(fixture, &same), STORE_OPENED);
    assert_false(same);
    (void)snprintf(aside, sizeof(aside), "%s.corrupt-1", fixture->path);
    assert_int_equal(access(aside, F_OK), 0);
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
    bool same = true;

    for (int i = 0; i < NOISE; i++)
        noise[i] = (unsigned char)(i * 7 + i / 251);
    /* A log without the first page. */
    store_close(fixture->store);
    fixture->store = fixture_open(fixture->path, "boot-1");
    execute_sql(fixture->store, "UPDATE volumes SET last_changed = last_changed + 1");
    assert_int_equal(pwrite(fd, noise, NOISE, 0), NOISE);
    assert_int_equal(ftruncate(fd, NOISE), 0);
    assert_int_equal(store_check_file(fixture->store), STORE_DAMAGED);
    fall_back(fixture);
    assert_int_equal(come_back(fixture, &same), STORE_OPENED);
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

/* As long as the file cannot be opened, memory keeps what it has. */
static void memory_survives_a_failed_return(void **state)
{
    struct fixture *fixture = *state;
    bool same;

    fall_back(fixture);
    (void)put(fixture->store);
    assert_int_equal(unlink(fixture->path), 0);
    assert_int_equal(mkdir(fixture->path, 0700), 0);
    assert_int_equal(come_back(fixture, &same), -EISDIR);
    assert_true(store_is_in_memory(fixture->store));
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
    assert_int_equal(store_begin(fixture->store), 0);
    assert_int_equal(store_commit(fixture->store), 0);
    assert_int_equal(rmdir(fixture->path), 0);
    assert_int_equal(come_back(fixture, &same), STORE_OPENED);
}

static void memory_is_bounded(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(store_rows_kept(fixture->store), 100000);
    fall_back(fixture);
    assert_int_equal(store_rows_kept(fixture->store), 20000);
}

/* Its program takes more memory than any other statement's, and it runs once. */
static void the_check_of_the_file_is_not_kept(void **state)
{
    struct fixture *fixture = *state;
    sqlite3_stmt *statement = NULL;
    unsigned kept = 0;

    while ((statement = sqlite3_next_stmt(fixture->store->connection.db, statement))) {
        assert_null(strstr(sqlite3_sql(statement), "quick_check"));
        kept++;
    }
    assert_true(kept > 0);
}

#define FILE_TEST(function) cmocka_unit_test_setup_teardown(function, open_and_put, fixture_done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_file_left_and_taken_up_at_once_is_the_same),
        FILE_TEST(records_lost_with_the_memory_store_are_reported),
        FILE_TEST(a_word_that_is_none_of_ours_is_damage),
        FILE_TEST(a_file_that_took_its_place_is_another),
        FILE_TEST(an_overwritten_file_is_noticed_and_set_aside),
        FILE_TEST(a_damaged_file_is_kept_as_it_was_found),
        FILE_TEST(memory_survives_a_failed_return),
        FILE_TEST(memory_is_bounded),
        FILE_TEST(the_check_of_the_file_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
