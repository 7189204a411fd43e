/* SPDX-License-Identifier: Apache-2.0 */
/* journal_lines_test.c - the journal on stdout: where it begins, and what becomes of rows that its
 * reader does not take. */
#include "tests/unit/store/fixture.h"

#include <fcntl.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/core/journal_lines.h"

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
        journal_lines_follow(&lines);
        got = read(end[0], text, sizeof(text) - 1);
        text[got > 0 ? got : 0] = '\0';
        for (const char *at = text; (at = strstr(at, "\"seq\":")); at++, count++) {
            *ret_last = strtoll(at + strlen("\"seq\":"), NULL, 10);
            *ret_first = *ret_first ? *ret_first : *ret_last;
        }
    } while (got > 0);
    return count;
}

static void begins_with_the_opening(void **state)
{
    int64_t first, last;

    add_rows(store_of(state), 100);
    journal_lines_start(&lines);
    assert_int_equal(read_all(&first, &last), 101);
    assert_int_equal(first, 1);
    assert_int_equal(last, 101);
    add_rows(store_of(state), 1);
    assert_int_equal(read_all(&first, &last), 1);
    assert_int_equal(last, 102);
    assert_int_equal(lines.output.written, 102);
    assert_int_equal(lines.output.dropped, 0);
}

static void switched_on_later_it_begins_there(void **state)
{
    int64_t first, last;

    config.log.journal = false;
    journal_lines_start(&lines);
    add_rows(store_of(state), 5);
    assert_int_equal(read_all(&first, &last), 0);
    config.log.journal = true;
    journal_lines_configure(&lines);
    add_rows(store_of(state), 1);
    assert_int_equal(read_all(&first, &last), 1);
    assert_int_equal(first, 7);
    config.log.journal = false;
    journal_lines_configure(&lines);
    add_rows(store_of(state), 1);
    assert_int_equal(read_all(&first, &last), 0);
    assert_int_equal(lines.output.dropped, 0);
}

/* Many rows are written in parts, between which the loop is served. */
static void loop_goes_on_with_many_rows(void **state)
{
    journal_lines_start(&lines);
    add_rows(store_of(state), 100);
    journal_lines_follow(&lines);
    assert_int_equal(lines.output.written, 32);
    loop_run(&loop); /* until nothing is left to do */
    assert_int_equal(lines.output.written, 101);
    assert_int_equal(lines.output.dropped, 0);
}

static void slow_reader_loses_lines_that_are_counted(void **state)
{
    int64_t first, last;
    unsigned count;

    assert_int_equal(fcntl(end[1], F_SETPIPE_SZ, 4096), 4096);
    journal_lines_start(&lines);
    add_rows(store_of(state), 1000);
    journal_lines_follow(&lines);
    loop_run(&loop);
    assert_true(lines.output.written > 0 && lines.output.dropped > 0);
    assert_int_equal(lines.output.written + lines.output.dropped, 1001);
    count = read_all(&first, &last);
    assert_int_equal(count, lines.output.written);
    assert_int_equal(first, 1);
    add_rows(store_of(state), 1);
    assert_int_equal(read_all(&first, &last), 1);
    assert_int_equal(last, 1002);
}

/* What is on record when crustd stops is printed, as far as the reader takes it. */
static void end_prints_what_is_left(void **state)
{
    char text[4096];

    journal_lines_start(&lines);
    journal_lines_follow(&lines);
    add_rows(store_of(state), 5);
    journal_lines_done(&lines);
    assert_int_equal(lines.output.written, 6);
    assert_true(read(end[0], text, sizeof(text)) > 0);
    journal_lines_init(&lines, &context, 0, "");
}

/* Another store has numbers of its own. */
static void another_store_begins_anew(void **state)
{
    struct store *store = store_of(state);
    struct error error = {0};
    int64_t first, last;

    journal_lines_start(&lines);
    add_rows(store, 9);
    assert_int_equal(read_all(&first, &last), 10);
    assert_int_equal(store_fall_back(store, &error), 0);
    journal_lines_start(&lines);
    assert_int_equal(read_all(&first, &last), 1);
    assert_int_equal(first, 1);
    assert_int_equal(lines.output.dropped, 0);
}

static void without_stdout_there_are_no_lines(void **state)
{
    journal_lines_done(&lines);
    journal_lines_init(&lines, &context, 0, "");
    journal_lines_start(&lines);
    add_rows(store_of(state), 1);
    journal_lines_configure(&lines);
    journal_lines_follow(&lines);
    assert_int_equal(lines.output.written, 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(begins_with_the_opening),           TEST(switched_on_later_it_begins_there),
        TEST(loop_goes_on_with_many_rows),       TEST(slow_reader_loses_lines_that_are_counted),
        TEST(end_prints_what_is_left),           TEST(another_store_begins_anew),
        TEST(without_stdout_there_are_no_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
