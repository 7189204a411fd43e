/* SPDX-License-Identifier: Apache-2.0 */
/* line_output_test.c - lines to pipes, sockets and files that are full, slow or gone. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/line_output.h"
#include "tests/unit/scratch.h"

enum { FIXED = 100, MANY = 4096, LIMIT = 1 << 20 };

static struct loop loop;
static struct line_output output;
static int end[2]; /* to read from, to write to */

static int start(void **state)
{
    (void)state;
    end[0] = end[1] = -1;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    return loop_init(&loop);
}

static int stop(void **state)
{
    (void)state;
    line_output_done(&output);
    loop_done(&loop);
    fd_close(end[0]);
    fd_close(end[1]);
    return 0;
}

static void append_lines(unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        assert_int_equal(buffer_append_format(&output.lines, "%0*u\n", FIXED - 1, i), 0);
}

/* All that is there now. */
static size_t read_lines(char *ret_text, size_t size)
{
    ssize_t got;
    size_t length = 0;

    assert_int_equal(fcntl(end[0], F_SETFL, O_NONBLOCK), 0);
    while ((got = read(end[0], ret_text + length, size - length)) > 0)
        length += (size_t)got;
    return length;
}

static void expect_numbers(const char *text, size_t length, unsigned first)
{
    assert_int_equal(length % FIXED, 0);
    for (size_t i = 0; i < length / FIXED; i++) {
        assert_int_equal(strtoul(text + i * FIXED, NULL, 10), first + i);
        assert_int_equal(text[i * FIXED + FIXED - 1], '\n');
    }
}

/* More than fits is written as the reader takes it, in order, and without waiting. */
static void pass_through_a_full_descriptor(void)
{
    static char text[MANY * FIXED];
    size_t length;

    append_lines(0, MANY);
    line_output_flush(&output);
    assert_true(line_output_is_waiting(&output));
    assert_true(output.written > 0 && output.written < MANY);
    length = 0;
    while (line_output_is_waiting(&output)) {
        length += read_lines(text + length, sizeof(text) - length);
        loop_run_once(&loop);
    }
    length += read_lines(text + length, sizeof(text) - length);
    assert_int_equal(length, sizeof(text));
    expect_numbers(text, length, 0);
    assert_int_equal(output.written, MANY);
    assert_int_equal(output.dropped, 0);
}

static void full_pipe_is_continued(void **state)
{
    (void)state;
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    line_output_init(&output, &loop, end[1], LIMIT);
    pass_through_a_full_descriptor();
    assert_int_equal(fcntl(end[1], F_GETFL) & O_NONBLOCK, 0);
}

static void full_socket_is_continued(void **state)
{
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end), 0);
    line_output_init(&output, &loop, end[1], LIMIT);
    pass_through_a_full_descriptor();
    assert_int_equal(fcntl(end[1], F_GETFL) & O_NONBLOCK, 0);
}

/* As where a pipe may not be opened anew. */
static void full_pipe_that_would_block_is_asked_first(void **state)
{
    (void)state;
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    line_output_init(&output, &loop, end[1], LIMIT);
    assert_true(output.is_own);
    fd_close(output.fd);
    output.fd = end[1];
    output.is_own = false;
    output.may_block = true;
    pass_through_a_full_descriptor();
}

static void pipe_gets_whole_lines(void **state)
{
    static char text[LIMIT];
    size_t length;

    (void)state;
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    line_output_init(&output, &loop, end[1], LIMIT);
    append_lines(0, MANY);
    line_output_flush(&output);
    length = read_lines(text, sizeof(text));
    assert_int_equal(length / FIXED, output.written);
    expect_numbers(text, length, 0);
}

static void lines_without_reader_are_dropped_and_counted(void **state)
{
    char text[FIXED];

    (void)state;
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    line_output_init(&output, &loop, end[1], LIMIT);
    fd_close(end[0]);
    append_lines(0, 3);
    line_output_flush(&output);
    assert_false(line_output_is_waiting(&output));
    assert_int_equal(output.dropped, 3);
    assert_int_equal(output.failure, -EPIPE);
    /* A reader comes back, as one of a FIFO may. */
    (void)snprintf(text, sizeof(text), "/proc/self/fd/%d", end[1]);
    end[0] = open(text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(end[0] >= 0);
    append_lines(7, 1);
    line_output_flush(&output);
    assert_int_equal(read_lines(text, sizeof(text)), FIXED);
    expect_numbers(text, FIXED, 7);
    assert_int_equal(output.failure, 0);
}

/* What follows a line that was torn by a full disk stands on a line of its own. */
static void torn_line_is_ended(void **state)
{
    char scratch[SCRATCH_BYTES], path[SCRATCH_BYTES + 8], text[1024] = "";
    struct rlimit before, small;
    int file;

    (void)state;
    assert_int_equal(scratch_directory_make(scratch), 0);
    (void)snprintf(path, sizeof(path), "%s/file", scratch);
    file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    line_output_init(&output, &loop, file, LIMIT);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = FIXED + 10;
    append_lines(0, 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    line_output_flush(&output);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(output.written, 1);
    assert_int_equal(output.dropped, 2);
    assert_int_equal(output.failure, -EFBIG);
    append_lines(3, 1);
    line_output_flush(&output);
    assert_int_equal(pread(file, text, sizeof(text), 0), FIXED + 10 + 1 + FIXED);
    assert_int_equal(text[FIXED + 10], '\n');
    expect_numbers(text + FIXED + 11, FIXED, 3);
    fd_close(file);
    assert_int_equal(scratch_directory_remove(scratch), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(full_pipe_is_continued),
        TEST(full_socket_is_continued),
        TEST(full_pipe_that_would_block_is_asked_first),
        TEST(pipe_gets_whole_lines),
        TEST(lines_without_reader_are_dropped_and_counted),
        TEST(torn_line_is_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
