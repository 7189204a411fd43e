/* SPDX-License-Identifier: Apache-2.0 */
/* reading_test.c - answers in pieces: one state, few rows at a time, and an end in any case. */
#include "tests/unit/store/fixture.h"

#include "lib/clock.h"
#include "store/reading.h"

enum { ROWS = 300, LIMIT = 1 << 20 };

static void add_lines(struct store *store, unsigned count)
{
    assert_int_equal(store_begin(store), 0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(store_journal(store, "test", 0, "sandbox-1", NULL, NULL), 0);
    assert_int_equal(store_commit(store), 0);
}

static struct store *open_store(void **state)
{
    struct fixture *fixture = *state;

    fixture->store = fixture_open(fixture->path, "boot-1");
    add_lines(fixture->store, ROWS);
    return fixture->store;
}

static struct store_reading *begin(struct store *store, size_t limit)
{
    const struct store_query query = {.view = STORE_VIEW_JOURNAL};
    struct store_reading *reading = NULL;

    assert_int_equal(store_reading_new(store_get_reader(store), &query, limit, &reading), 0);
    return reading;
}

static unsigned count_rows(const struct buffer *json)
{
    unsigned rows = 0;

    for (const char *at = json->data; (at = strstr(at, "{\"seq\"")); at++)
        rows++;
    return rows;
}

/* The pieces that are left, each of at least one row. */
static unsigned read_rest(struct store_reading *reading, unsigned *ret_pieces)
{
    cleanup(buffer_done) struct buffer json = {0};
    struct error error = {0};
    unsigned rows;
    int r;

    *ret_pieces = 1;
    while ((r = store_reading_go_on(reading, 0, &json, &error)) == STORE_READING_MORE)
        ++*ret_pieces;
    if (r != STORE_READING_DONE)
        fail_msg("%d: %s", r, error.text);
    assert_int_equal(*buffer_text(&json), '[');
    assert_int_equal(json.data[json.length - 1], ']');
    rows = count_rows(&json);
    store_reading_free(reading);
    return rows;
}

static void all_pieces_come_from_one_snapshot(void **state)
{
    struct store *store = open_store(state);
    struct store_reading *reading = begin(store, LIMIT);
    cleanup(buffer_done) struct buffer json = {0};
    struct error error;
    unsigned pieces, before = 0, after = 0;

    before = (unsigned)number_of(store, "SELECT count(*) FROM journal");
    assert_int_equal(store_reading_go_on(reading, 0, &json, &error), STORE_READING_MORE);
    add_lines(store, 5);
    assert_int_equal(read_rest(reading, &pieces), before);
    assert_true(pieces >= ROWS);
    after = read_rest(begin(store, LIMIT), &pieces);
    assert_int_equal(after, before + 5);
}

static void a_small_answer_has_one_piece(void **state)
{
    struct store *store = open_store(state);
    struct store_reading *reading = begin(store, LIMIT);
    cleanup(buffer_done) struct buffer json = {0};
    struct error error;

    assert_int_equal(store_reading_go_on(reading, 60 * NSEC_PER_SEC, &json, &error),
                     STORE_READING_DONE);
    assert_true(count_rows(&json) >= ROWS);
    store_reading_free(reading);
}

static void a_store_in_memory_is_read_at_once(void **state)
{
    struct store *store = store_of(state);
    unsigned pieces;

    assert_int_equal(store_commit(store), 0);
    add_lines(store, ROWS);
    assert_true(read_rest(begin(store, LIMIT), &pieces) >= ROWS);
    assert_true(pieces <= 2);
    assert_int_equal(store_begin(store), 0);
}

/* Whatever was open is closed: the log can be emptied, and the daemon writes on. */
static void it_can_be_given_up_at_any_time(void **state)
{
    struct store *store = open_store(state);
    struct store_reading *first = begin(store, LIMIT), *second = begin(store, LIMIT);
    cleanup(buffer_done) struct buffer json = {0};
    struct error error;

    store_reading_free(begin(store, LIMIT));
    assert_int_equal(store_reading_go_on(first, 0, &json, &error), STORE_READING_MORE);
    assert_int_equal(store_reading_go_on(second, 0, &json, &error), STORE_READING_MORE);
    store_reading_free(first);
    readings_leave(store);
    assert_int_equal(store_reading_go_on(second, 0, &json, &error), STORE_READING_LEFT);
    store_reading_free(second);
    store_reading_free(NULL);
    assert_int_equal(number_of(store, "PRAGMA wal_checkpoint(TRUNCATE)"), 0);
    add_lines(store, 1);
}

static void a_row_that_does_not_fit_is_refused(void **state)
{
    struct store *store = open_store(state);
    struct store_reading *reading = begin(store, 1000);
    struct buffer json = {0};
    struct error error = {0};
    int r;

    while ((r = store_reading_go_on(reading, 0, &json, &error)) == STORE_READING_MORE)
        continue;
    assert_int_equal(r, BUFFER_FULL);
    assert_non_null(strstr(error.text, "too large"));
    assert_null(json.data);
    store_reading_free(reading);
}

/* The lock of a transaction lasts although a reader in this process comes and goes. */
static void our_locks_outlive_a_reader(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = open_store(state);
    cleanup(buffer_done) struct buffer json = {0};
    struct error error;
    char command[200];
    struct store_reading *reading;

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_journal(store, "test", 0, NULL, NULL, NULL), 0);
    reading = begin(store, LIMIT);
    assert_int_equal(store_reading_go_on(reading, 0, &json, &error), STORE_READING_MORE);
    store_reading_free(reading);
    (void)snprintf(command, sizeof(command),
                   "sqlite3 %s 'DELETE FROM journal' 2>&1 | grep -q locked", fixture->path);
    assert_int_equal(system(command), 0);
    assert_int_equal(store_commit(store), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(all_pieces_come_from_one_snapshot),  FILES(a_small_answer_has_one_piece),
        MODEL(a_store_in_memory_is_read_at_once),  FILES(it_can_be_given_up_at_any_time),
        FILES(a_row_that_does_not_fit_is_refused), FILES(our_locks_outlive_a_reader),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
