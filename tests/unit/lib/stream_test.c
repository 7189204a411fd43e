/* SPDX-License-Identifier: Apache-2.0 */
/* stream_test.c - a stream whose peer answers in pieces, floods, hangs and vanishes. */
#include "tests/unit/lib/stream.h"

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

    (void)state;
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

    (void)state;
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

/* The peer gets a descriptor of its own with the first bytes, and no other. */
static void passes_a_descriptor(void **state)
{
    char bytes[16], control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME), ends[2], passed;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(stream_send_descriptor(&stream, "take", 4, ends[1]), 0);
    close(ends[1]);
    assert_int_equal(recvmsg(peer, &message, MSG_CMSG_CLOEXEC), 4);
    assert_memory_equal(bytes, "take", 4);
    assert_non_null(CMSG_FIRSTHDR(&message));
    assert_int_equal(CMSG_FIRSTHDR(&message)->cmsg_type, SCM_RIGHTS);
    assert_int_equal(CMSG_FIRSTHDR(&message)->cmsg_len, CMSG_LEN(sizeof(int)));
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    assert_int_equal(write(passed, "x", 1), 1);
    close(passed); /* the last one of the pipe's end: none is left in the stream */
    assert_int_equal(read(ends[0], bytes, sizeof(bytes)), 1);
    assert_int_equal(read(ends[0], bytes, sizeof(bytes)), 0);
    close(ends[0]);
    assert_int_equal(stream_send_descriptor(&stream, "take", 4, -1), -EBADF);
    message.msg_controllen = sizeof(control);
    assert_int_equal(stream_send(&stream, "more", 4), 0);
    assert_int_equal(recvmsg(peer, &message, MSG_CMSG_CLOEXEC), 4);
    assert_null(CMSG_FIRSTHDR(&message));
    stream_done(&stream);
    close(peer);
}

/* What is not written yet would be parted from its descriptor. */
static void passes_a_descriptor_at_the_front_only(void **state)
{
    static char bytes[LIMIT];
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
    while (stream_send(&stream, bytes, sizeof(bytes)) == 0)
        ;
    assert_true(stream.output.length > 0);
    assert_int_equal(stream_send_descriptor(&stream, "take", 4, peer), -EBUSY);
    stream_done(&stream);
    close(peer);
}

/* The peer hung up before the request left: its words still count. */
static void reads_although_it_cannot_write(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);

    (void)state;
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

    (void)state;
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

    (void)state;
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

    (void)state;
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

    (void)state;
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

static void deadline_can_be_taken_away(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, NSEC_PER_MSEC);

    (void)state;
    stream_set_deadline(&stream, STREAM_NO_DEADLINE);
    assert_false(loop_timer_is_active(&stream.deadline));
    stream_done(&stream);
    close(peer);
}

static void ends_a_flood(void **state)
{
    struct stream stream;
    int peer = adopt_pair(&stream, LONG_TIME);
    char flood[4 * LIMIT];

    (void)state;
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

    (void)state;
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

    (void)state;
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

    (void)state;
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

static void handlers_may_free_the_stream(void **state)
{
    struct stream *stream;
    int peer;

    (void)state;
    stream = malloc(sizeof(*stream));
    peer = adopt_pair(stream, LONG_TIME);
    seen.free_in_received = true;
    say(peer, "x");
    loop_run(&loop);
    assert_int_equal(seen.received, 1);
    assert_int_equal(seen.ended, 0);
    close(peer);

    stream = malloc(sizeof(*stream));
    peer = adopt_pair(stream, LONG_TIME);
    seen.free_in_ended = true;
    close(peer);
    loop_run(&loop);
    assert_int_equal(seen.ended, 1);
}

static void adopts_only_descriptors(void **state)
{
    struct stream stream;

    (void)state;
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

    (void)state;
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
        TEST(passes_a_descriptor),
        TEST(passes_a_descriptor_at_the_front_only),
        TEST(delivers_what_comes_in_pieces),
        TEST(delivers_before_it_ends),
        TEST(reads_although_it_cannot_write),
        TEST(reports_a_reset),
        TEST(ends_when_the_peer_takes_nothing),
        TEST(ends_at_its_deadline),
        TEST(deadline_is_absolute),
        TEST(deadline_can_be_taken_away),
        TEST(ends_a_flood),
        TEST(lets_a_consumed_flood_pass),
        TEST(keeps_to_its_output_limit),
        TEST(writes_on_when_the_peer_reads),
        TEST(handlers_may_free_the_stream),
        TEST(adopts_only_descriptors),
        TEST(adopts_a_pipe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
