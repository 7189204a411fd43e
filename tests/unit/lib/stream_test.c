/* SPDX-License-Identifier: Apache-2.0 */
/* stream_test.c - a stream whose peer answers in pieces, floods, hangs and vanishes.
 *
 * The peer's end is in the test's own hands. Each test runs the loop until the stream has ended or
 * the test has what it waits for; a deadline only ends tests whose subject it is.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/stream.h"
#include "tests/unit/scratch.h"

enum { LIMIT = 64 };

#define LONG_TIME (3600 * NSEC_PER_SEC)

static struct loop loop;
static char scratch[SCRATCH_BYTES];

/* What the handlers saw. */
static struct {
    unsigned received, ended;
    enum stream_end end;
    struct error error;
    char text[256];       /* all that was consumed */
    size_t consume_up_to; /* the handler consumes only while this is not reached */
    size_t stop_at;       /* bytes after which the loop stops */
} seen;

static int set_up(void **state)
{
    memset(&seen, 0, sizeof(seen));
    seen.consume_up_to = sizeof(seen.text) - 1;
    seen.stop_at = SIZE_MAX;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    return loop_init(&loop);
}

static int tear_down(void **state)
{
    loop_done(&loop);
    return scratch_directory_remove(scratch);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static void on_received(struct stream *stream)
{
    size_t used = strlen(seen.text), length = stream->input.length;

    seen.received++;
    assert_int_equal(seen.ended, 0);
    if (length > seen.consume_up_to - used)
        length = seen.consume_up_to - used;
    memcpy(seen.text + used, stream->input.data, length);
    buffer_consume(&stream->input, length);
    if (used + length >= seen.stop_at)
        loop_stop(&loop);
}

static void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
{
    seen.ended++;
    seen.end = end;
    seen.error = *error;
    assert_int_equal(stream_send(stream, "x", 1), -EPIPE);
    stream_set_deadline(stream, 0); /* too late, and harmless */
    loop_stop(&loop);
}

static const struct stream_handler handler = {on_received, on_ended};

static void expect_end(enum stream_end end, int code)
{
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.end, end);
    assert_int_equal(seen.error.code, code);
    assert_true(strlen(seen.error.text) > 0);
}

static void say(int peer, const char *text)
{
    assert_int_equal(send(peer, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* A stream on one end of a pair; the other end is returned. */
static int adopt_pair(struct stream *stream, uint64_t deadline)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(stream_adopt(stream, &loop, ends[0], deadline, LIMIT, LIMIT, &handler), 0);
    return ends[1];
}

static void delivers_what_comes_in_pieces(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    for (size_t i = 0; i < 5; i++) {
        say(peer, (char[]){"hello"[i], '\0'});
        seen.stop_at = i + 1;
        loop_run(&loop);
    }
    assert_string_equal(seen.text, "hello");
    assert_int_equal(seen.received, 5);
    assert_int_equal(seen.ended, 0);
    stream_done(&stream);
    stream_done(&stream);
    close(peer);
}

static void delivers_before_it_ends(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    say(peer, "last words");
    close(peer);
    loop_run(&loop);
    assert_string_equal(seen.text, "last words");
    expect_end(STREAM_CLOSED, -ECONNRESET);
    assert_int_equal(stream.fd, -1);
    loop_run(&loop); /* nothing is left to happen */
    assert_int_equal(seen.ended, 1);
    stream_done(&stream);
}

/* The peer hung up before the request left: its words still count. */
static void reads_although_it_cannot_write(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    say(peer, "go away");
    close(peer);
    assert_int_equal(stream_send(&stream, "request", 7), 0);
    loop_run(&loop);
    assert_string_equal(seen.text, "go away");
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.end, STREAM_CLOSED);
    stream_done(&stream);
}

/* A peer that closes with our bytes unread resets the connection. */
static void reports_a_reset(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    assert_int_equal(stream_send(&stream, "request", 7), 0);
    close(peer);
    loop_run(&loop);
    expect_end(STREAM_CLOSED, -ECONNRESET);
    stream_done(&stream);
}

/* A peer that no longer reads but keeps its end open. */
static void ends_when_the_peer_takes_nothing(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    assert_int_equal(shutdown(peer, SHUT_RD), 0);
    assert_int_equal(stream_send(&stream, "request", 7), 0);
    loop_run(&loop);
    expect_end(STREAM_CLOSED, -EPIPE);
    stream_done(&stream);
    close(peer);
}

static void ends_at_its_deadline(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, NSEC_PER_MSEC);

    loop_run(&loop);
    expect_end(STREAM_TIMEOUT, -ETIMEDOUT);
    stream_done(&stream);
    close(peer);
}

/* Bytes that keep coming do not move the deadline. */
static void deadline_is_absolute(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    stream_set_deadline(&stream, 5 * NSEC_PER_MSEC);
    seen.consume_up_to = 0; /* so that input would overflow rather than grow */
    while (!seen.ended) {
        if (stream.input.length < LIMIT / 2)
            say(peer, "x");
        loop_run_once(&loop);
    }
    expect_end(STREAM_TIMEOUT, -ETIMEDOUT);
    stream_done(&stream);
    close(peer);
}

static void ends_a_flood(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);
    char flood[4 * LIMIT];

    memset(flood, 'x', sizeof(flood));
    seen.consume_up_to = 0;
    assert_int_equal(send(peer, flood, sizeof(flood), 0), sizeof(flood));
    loop_run(&loop);
    expect_end(STREAM_OVERFLOW, -EMSGSIZE);
    assert_int_equal(stream.input.length, LIMIT);
    stream_done(&stream);
    close(peer);
}

/* More than the limit in all is fine as long as it is consumed. */
static void lets_a_consumed_flood_pass(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    for (int i = 0; i < 20; i++)
        say(peer, "0123456789");
    seen.stop_at = 200;
    loop_run(&loop);
    assert_int_equal(strlen(seen.text), 200);
    assert_int_equal(seen.ended, 0);
    stream_done(&stream);
    close(peer);
}

static void keeps_to_its_output_limit(void **state)
{
    struct stream stream;
    char bytes[LIMIT + 1] = "";
    int peer = adopt_pair(&stream, LONG_TIME);

    assert_int_equal(stream_send(&stream, bytes, LIMIT + 1), -EMSGSIZE);
    /* A peer that reads nothing: the kernel's buffer fills, then ours, then no more is taken. */
    while (stream.output.length + LIMIT <= LIMIT)
        assert_int_equal(stream_send(&stream, bytes, LIMIT), 0);
    assert_int_equal(stream_send(&stream, bytes, LIMIT), -EMSGSIZE);
    assert_int_equal(seen.ended, 0);
    stream_done(&stream);
    close(peer);
}

static void writes_on_when_the_peer_reads(void **state)
{
    struct stream stream;
    char bytes[LIMIT] = "", taken[4096];
    size_t sent = 0, got = 0;
    int peer = adopt_pair(&stream, LONG_TIME);

    for (; stream.output.length + LIMIT <= LIMIT; sent += LIMIT)
        assert_int_equal(stream_send(&stream, bytes, LIMIT), 0);
    assert_true(stream.output.length > 0);
    while (got < sent) {
        ssize_t count = recv(peer, taken, sizeof(taken), MSG_DONTWAIT);

        if (count < 0) {
            assert_int_equal(errno, EAGAIN);
            loop_run_once(&loop);
            continue;
        }
        got += (size_t)count;
    }
    loop_stop(&loop);
    assert_int_equal(got, sent);
    assert_int_equal(stream.output.length, 0);
    stream_done(&stream);
    close(peer);
}

static void adopts_only_descriptors(void **state)
{
    struct stream stream;

    assert_int_equal(stream_adopt(&stream, &loop, -1, LONG_TIME, LIMIT, LIMIT, &handler), -EBADF);
    stream_done(&stream);
    stream_done(NULL);
    memset(&stream, 0, sizeof(stream));
    stream_done(&stream); /* would close descriptor 0 if it were careless */
    assert_true(fcntl(0, F_GETFD) >= 0 || errno == EBADF);
    assert_int_equal(stream_send(&stream, "x", 1), -EPIPE);
}

/* A terminal or a virtio port is no socket. */
static void adopts_a_pipe(void **state)
{
    struct stream stream;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(stream_adopt(&stream, &loop, ends[0], LONG_TIME, LIMIT, LIMIT, &handler), 0);
    assert_int_equal(write(ends[1], "hi", 2), 2);
    seen.stop_at = 2;
    loop_run(&loop);
    assert_string_equal(seen.text, "hi");
    stream_done(&stream);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(delivers_what_comes_in_pieces),
        TEST(delivers_before_it_ends),
        TEST(reads_although_it_cannot_write),
        TEST(reports_a_reset),
        TEST(ends_when_the_peer_takes_nothing),
        TEST(ends_at_its_deadline),
        TEST(deadline_is_absolute),
        TEST(ends_a_flood),
        TEST(lets_a_consumed_flood_pass),
        TEST(keeps_to_its_output_limit),
        TEST(writes_on_when_the_peer_reads),
        TEST(adopts_only_descriptors),
        TEST(adopts_a_pipe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
