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

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "tests/unit/scratch.h"

enum { FIXED = 100, MANY = 4096 };

static struct line_output output;
static int end[2]; /* to read from, to write to */

static int start(void **state)
{
    end[0] = end[1] = -1;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    return 0;
}

static int stop(void **state)
{
    line_output_done(&output);
    fd_close(end[0]);
    fd_close(end[1]);
    return 0;
}

static int write_lines(unsigned first, unsigned count)
{
    struct buffer lines = BUFFER_INIT(1 << 20);
    int r;

    for (unsigned i = first; i < first + count; i++)
        assert_int_equal(buffer_append_format(&lines, "%0*u\n", FIXED - 1, i), 0);
    r = line_output_write(&output, lines.data, lines.length);
    buffer_done(&lines);
    return r;
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

/* What fits is written in whole lines and in order, what does not is dropped and counted, and what
 * comes once there is room is written again. Nothing waits. */
static void fill(void)
{
    static char text[MANY * FIXED];
    uint64_t written;
    size_t length;

    assert_int_equal(write_lines(0, MANY), LINE_OUTPUT_FULL);
    written = output.written;
    assert_true(written > 0 && written < MANY);
    assert_int_equal(written + output.dropped, MANY);
    length = read_lines(text, sizeof(text));
    assert_int_equal(length, written * FIXED);
    expect_numbers(text, length, 0);
    assert_int_equal(write_lines(MANY, 1), 0);
    assert_int_equal(output.written, written + 1);
    assert_int_equal(read_lines(text, sizeof(text)), FIXED);
    expect_numbers(text, FIXED, MANY);
}

static void full_pipe_takes_whole_lines(void **state)
{
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    line_output_init(&output, end[1]);
    fill();
    assert_int_equal(fcntl(end[1], F_GETFL) & O_NONBLOCK, 0);
}

static void full_socket_takes_whole_lines(void **state)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end), 0);
    line_output_init(&output, end[1]);
    fill();
    assert_int_equal(fcntl(end[1], F_GETFL) & O_NONBLOCK, 0);
}

/* As where a pipe may not be opened anew. */
static void full_pipe_that_would_block_is_asked_first(void **state)
{
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    line_output_init(&output, end[1]);
    assert_true(output.is_own);
    fd_close(output.fd);
    output.fd = end[1];
    output.is_own = false;
    output.may_block = true;
    fill();
}

static void lines_without_reader_are_dropped_and_counted(void **state)
{
    char text[FIXED];

    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    line_output_init(&output, end[1]);
    fd_close(end[0]);
    assert_int_equal(write_lines(0, 3), -EPIPE);
    assert_int_equal(output.dropped, 3);
    /* A reader comes back, as one of a FIFO may. */
    (void)snprintf(text, sizeof(text), "/proc/self/fd/%d", end[1]);
    end[0] = open(text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(end[0] >= 0);
    assert_int_equal(write_lines(7, 1), 0);
    assert_int_equal(read_lines(text, sizeof(text)), FIXED);
    expect_numbers(text, FIXED, 7);
    assert_int_equal(output.written, 1);
}

/* What follows a line that was torn by a full disk stands on a line of its own. */
static void torn_line_is_ended(void **state)
{
    char scratch[SCRATCH_BYTES], path[SCRATCH_BYTES + 8], text[1024] = "";
    struct rlimit before, small;
    int file;

    assert_int_equal(scratch_directory_make(scratch), 0);
    (void)snprintf(path, sizeof(path), "%s/file", scratch);
    file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    line_output_init(&output, file);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = FIXED + 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(write_lines(0, 3), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(output.written, 1);
    assert_int_equal(output.dropped, 2);
    assert_int_equal(write_lines(3, 1), 0);
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
        TEST(full_pipe_takes_whole_lines),
        TEST(full_socket_takes_whole_lines),
        TEST(full_pipe_that_would_block_is_asked_first),
        TEST(lines_without_reader_are_dropped_and_counted),
        TEST(torn_line_is_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
