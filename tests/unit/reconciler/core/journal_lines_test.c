/* SPDX-License-Identifier: Apache-2.0 */
/* journal_lines_test.c - the journal on stdout: where it begins, and what becomes of rows that its
 * reader does not take. */
#include "tests/unit/store/fixture.h"

#include <fcntl.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/core/database.h"

static struct loop loop;
static struct config config;
static struct context context;
static struct journal_lines lines;
static int end[2];

/* Of a store with its opening row alone. */
static int start(void **state)
{
    (void)fixture_memory(state);
    assert_int_equal(store_commit(store_of(state)), 0);
    assert_int_equal(loop_init(&loop), 0);
    assert_int_equal(pipe2(end, O_CLOEXEC | O_NONBLOCK), 0);
    config_defaults(&config);
    config.log.journal = true;
    context = (struct context){.loop = &loop, .store = store_of(state), .config = &config};
    journal_lines_init(&lines, &context, end[1], "node-1");
    return 0;
}

static int stop(void **state)
{
    journal_lines_done(&lines);
    loop_done(&loop);
    fd_close(end[0]);
    fd_close(end[1]);
    return fixture_done(state);
}

static void add_rows(struct store *store, unsigned count)
{
    assert_int_equal(store_begin(store), 0);
    while (count--)
        assert_int_equal(store_journal(store, "kind", 0, NULL, NULL, NULL), 0);
    assert_int_equal(store_commit(store), 0);
}

/* Reads until nothing comes any more; the numbers of the first and the last row. */
static unsigned read_all(int64_t *ret_first, int64_t *ret_last)
{
    static char text[1 << 16];
    unsigned count = 0;
    ssize_t got;

    *ret_first = *ret_last = 0;
    do {
        (void)journal_lines_follow(&lines);
        got = read(end[0], text, sizeof(text) - 1);
        text[got > 0 ? got : 0] = '\0';
        for (const char *at = text; (at = strstr(at, "\"seq\":")); at++, count++) {
            *ret_last = strtoll(at + strlen("\"seq\":"), NULL, 10);
            *ret_first = *ret_first ? *ret_first : *ret_last;
        }
    } while (got > 0);
    return count;
}

/* Many rows are written in parts, between which the loop is served. */
static void loop_goes_on_with_many_rows(void **state)
{
    journal_lines_configure(&lines, true);
    add_rows(store_of(state), 100);
    assert_true(journal_lines_follow(&lines));
    assert_int_equal(lines.output.written, 32);
    while (journal_lines_follow(&lines))
        ;
    assert_int_equal(lines.output.written, 101);
    assert_int_equal(lines.output.dropped, 0);
}

/* It was put on record before the restart. */
static void a_gap_before_the_opening_is_printed(void **state)
{
    struct store *store = store_of(state);
    int64_t first, last;

    add_rows(store, 3);
    assert_int_equal(store_begin(store), 0);
    execute_sql(store, "INSERT INTO journal (at, kind) VALUES (1, 'history_missing')");
    execute_sql(store, "INSERT INTO journal (at, kind) VALUES (1, 'store_opened')");
    assert_int_equal(store_commit(store), 0);
    journal_lines_configure(&lines, true);
    assert_int_equal(read_all(&first, &last), 2);
    assert_int_equal(last - first, 1);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_gap_before_the_opening_is_printed),
        TEST(loop_goes_on_with_many_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
