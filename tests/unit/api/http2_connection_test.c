/* SPDX-License-Identifier: Apache-2.0 */
/* http2_connection_test.c - how the session's bytes get into the socket.
 *
 * The socket keeps the boundaries of writes (SOCK_SEQPACKET), so that they can be counted.
 */
#include "tests/unit/api/http2_conversation.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "api/http2.h"

enum { PACKET_BYTES = 64 * 1024, BODY_BYTES = 60 * 1000 };

struct dialogue {
    struct conversation talk; /* its client, and what the handler saw */
    struct loop loop;
    struct http2_connection *connection;
    int client;
    bool ended;
};

static void on_ended(struct http2_connection *connection, void *userdata)
{
    struct dialogue *dialogue = userdata;

    dialogue->ended = true;
}

static int begin(void **state)
{
    struct dialogue *dialogue = calloc(1, sizeof(*dialogue));
    struct http2_connection_options options = {.loop = &dialogue->loop,
                                               .handler = &handler,
                                               .room = &dialogue->talk.room,
                                               .ended = on_ended,
                                               .userdata = dialogue};
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
                     0);
    assert_int_equal(loop_init(&dialogue->loop), 0);
    dialogue->talk.room.limit = 100 * 1024;
    dialogue->client = ends[0];
    assert_int_equal(http2_connection_new(&options, ends[1], &dialogue->connection), 0);
    make_client(&dialogue->talk);
    *state = dialogue;
    return 0;
}

static int end(void **state)
{
    struct dialogue *dialogue = *state;

    http2_connection_free(dialogue->connection);
    loop_done(&dialogue->loop);
    nghttp2_session_del(dialogue->talk.client);
    buffer_done(&dialogue->talk.fields);
    buffer_done(&dialogue->talk.body);
    fd_close(dialogue->client);
    free(dialogue);
    return 0;
}

/* What the client library wants to say. */
static void say(struct dialogue *dialogue)
{
    const uint8_t *bytes;
    ssize_t length;

    while ((length = nghttp2_session_mem_send(dialogue->talk.client, &bytes)) > 0)
        assert_int_equal(send(dialogue->client, bytes, (size_t)length, 0), length);
}

/* How many writes there are to be read. */
static unsigned hear(struct dialogue *dialogue)
{
    static uint8_t bytes[PACKET_BYTES];
    unsigned writes = 0;
    ssize_t length;

    while ((length = recv(dialogue->client, bytes, sizeof(bytes), 0)) > 0) {
        assert_int_equal(nghttp2_session_mem_recv(dialogue->talk.client, bytes, (size_t)length),
                         length);
        writes++;
    }
    return writes;
}

/* The connection has begun and a request waits. */
static void request(struct dialogue *dialogue)
{
    ask(&dialogue->talk, NULL);
    while (dialogue->talk.given == 0) {
        say(dialogue);
        loop_run_once(&dialogue->loop);
    }
    while (hear(dialogue) > 0) {
        say(dialogue);
        loop_run_once(&dialogue->loop);
    }
}

static void a_reply_is_one_write(void **state)
{
    struct dialogue *dialogue = *state;

    request(dialogue);
    reply_ok(dialogue->talk.request[0]);
    http2_connection_wake(dialogue->connection);
    loop_run_once(&dialogue->loop);
    assert_int_equal(hear(dialogue), 1);
    assert_string_equal(buffer_text(&dialogue->talk.fields),
                        ":status=200\ncontent-type=text\ngrpc-status=0\n");
    assert_string_equal(buffer_text(&dialogue->talk.body), "reply");
    assert_int_equal(dialogue->talk.ended, 1);
}

static void reply_long(struct http2_request *asked)
{
    static const struct http2_field fields[] = {{"content-type", "text"}};
    static const struct http2_field trailer = {"grpc-status", "0"};
    struct buffer body = BUFFER_INIT(BODY_BYTES);

    while (body.length < BODY_BYTES)
        assert_int_equal(buffer_append_format(&body, "%09zu.", body.length), 0);
    http2_reply(asked, "200", fields, 1, &body, &trailer);
}

/* More than is gathered at a time, and more than the socket takes at once: all of it comes, and in
 * order. */
static void a_long_reply_comes_whole_to_a_slow_reader(void **state)
{
    struct dialogue *dialogue = *state;
    int few = 1;
    unsigned writes = 0;

    request(dialogue);
    assert_int_equal(setsockopt(dialogue->client, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
    reply_long(dialogue->talk.request[0]);
    http2_connection_wake(dialogue->connection);
    while (dialogue->talk.ended == 0) {
        loop_run_once(&dialogue->loop);
        writes += hear(dialogue);
        say(dialogue);
    }
    assert_in_range(writes, BODY_BYTES / (16 * 1024) + 1, BODY_BYTES / 1024);
    assert_int_equal(dialogue->talk.body.length, BODY_BYTES);
    for (size_t at = 0; at < BODY_BYTES; at += 10) {
        char expected[16];

        (void)snprintf(expected, sizeof(expected), "%09zu.", at);
        assert_memory_equal(dialogue->talk.body.data + at, expected, 10);
    }
}

static void pending_output_is_written_at_shutdown(void **state)
{
    struct dialogue *dialogue = *state;

    request(dialogue);
    reply_ok(dialogue->talk.request[0]);
    dialogue->connection = http2_connection_free(dialogue->connection);
    assert_int_equal(hear(dialogue), 1);
    assert_int_equal(dialogue->talk.ended, 1);
}

static void a_client_that_is_gone_ends_it(void **state)
{
    struct dialogue *dialogue = *state;

    request(dialogue);
    fd_close(dialogue->client);
    dialogue->client = -1;
    while (!dialogue->ended)
        loop_run_once(&dialogue->loop);
}

#define DIALOGUE(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIALOGUE(a_reply_is_one_write),
        DIALOGUE(a_long_reply_comes_whole_to_a_slow_reader),
        DIALOGUE(pending_output_is_written_at_shutdown),
        DIALOGUE(a_client_that_is_gone_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
