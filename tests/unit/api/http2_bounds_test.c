/* SPDX-License-Identifier: Apache-2.0 */
/* http2_bounds_test.c - clients that ask for too much, too slowly or too often. */
#include "tests/unit/api/http2_conversation.h"

/* The client is still sending when it has its reply, and is asked to stop. */
static void expect_fault(struct conversation *talk, enum http2_fault fault)
{
    assert_int_equal(talk->given, 1);
    assert_int_equal(talk->request[0]->fault, fault);
    assert_false(talk->request[0]->complete);
    reply_ok(talk->request[0]);
    pump(talk);
    assert_int_equal(talk->ended, 1);
    assert_int_equal(talk->reset, 1);
    assert_int_equal(talk->reset_code, NGHTTP2_NO_ERROR);
    assert_int_not_equal(http2_session_idle_since(talk->server), HTTP2_BUSY);
}

static void long_fields_are_a_fault(void **state)
{
    struct conversation *talk = *state;
    cleanup(freep) char *value = malloc(HTTP2_FIELDS_BYTES + 1);

    memset(value, 'x', HTTP2_FIELDS_BYTES);
    value[HTTP2_FIELDS_BYTES] = '\0';
    talk->send_on = true;
    ask(talk, value);
    pump(talk);
    expect_fault(talk, HTTP2_FIELDS_TOO_LONG);
}

static void a_long_body_is_a_fault(void **state)
{
    struct conversation *talk = *state;
    cleanup(freep) char *bytes = calloc(1, HTTP2_BODY_BYTES + 1);

    talk->send = bytes;
    talk->send_length = HTTP2_BODY_BYTES;
    talk->send_on = true;
    ask(talk, NULL);
    pump(talk);
    assert_int_equal(talk->given, 0);
    assert_int_equal(talk->room.used, HTTP2_BODY_BYTES - HTTP2_OWN_BYTES);
    talk->send_length = 1;
    assert_int_equal(nghttp2_session_resume_data(talk->client, 1), 0);
    pump(talk);
    expect_fault(talk, HTTP2_BODY_TOO_LONG);
}

static void a_slow_request_is_a_fault(void **state)
{
    struct conversation *talk = *state;

    talk->send_on = true;
    ask(talk, NULL);
    pump(talk);
    http2_session_expire(talk->server, 1);
    assert_int_equal(talk->given, 0);
    http2_session_expire(talk->server, clock_boottime() + 1);
    expect_fault(talk, HTTP2_TOO_SLOW);
}

static void bodies_share_their_room(void **state)
{
    struct conversation *talk = *state;
    cleanup(freep) char *bytes = calloc(1, HTTP2_BODY_BYTES);

    talk->room.used = 60 * 1024; /* another session's */
    talk->send = bytes;
    talk->send_length = 60 * 1024;
    talk->send_on = true;
    ask(talk, NULL);
    pump(talk);
    assert_true(talk->room.used <= talk->room.limit);
    expect_fault(talk, HTTP2_NO_ROOM);
    assert_int_equal(talk->room.used, 60 * 1024);
    talk->room.used = 0;
}

/* Who fills the room keeps no small request of another session out. */
static void some_room_is_a_sessions_own(void **state)
{
    struct conversation *talk = *state;
    cleanup(freep) char *bytes = calloc(1, HTTP2_OWN_BYTES);

    talk->room.used = talk->room.limit; /* another session's */
    talk->send = bytes;
    talk->send_length = HTTP2_OWN_BYTES;
    ask(talk, NULL);
    pump(talk);
    assert_int_equal(talk->given, 1);
    assert_int_equal(talk->request[0]->fault, HTTP2_FINE);
    assert_int_equal(talk->request[0]->body.length, HTTP2_OWN_BYTES);
    assert_int_equal(talk->room.used, talk->room.limit);
    talk->room.used = 0;
}

/* The client has not heard of the bound yet when it asks. */
static void there_is_a_bound_on_streams(void **state)
{
    struct conversation *talk = *state;
    cleanup(buffer_done) struct buffer all = BUFFER_INIT(0);
    const uint8_t *bytes;
    ssize_t length;

    for (unsigned i = 0; i < HTTP2_STREAMS + 8; i++)
        ask(talk, NULL);
    while ((length = nghttp2_session_mem_send(talk->client, &bytes)) > 0)
        assert_int_equal(buffer_append(&all, bytes, (size_t)length), 0);
    feed(talk, all.data, all.length);
    pump(talk);
    assert_int_equal(talk->given, HTTP2_STREAMS);
    assert_int_equal(talk->refused, 8);
    for (unsigned i = 0; i < HTTP2_STREAMS; i++)
        reply_ok(talk->request[i]);
    pump(talk);
    assert_int_equal(talk->ended, HTTP2_STREAMS);
}

static void ping(struct conversation *talk, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(nghttp2_submit_ping(talk->client, NGHTTP2_FLAG_NONE, NULL), 0);
        pump(talk);
    }
}

static void a_flood_of_pings_ends_it(void **state)
{
    struct conversation *talk = *state;

    ping(talk, HTTP2_NOISE / 2);
    assert_false(talk->goaway);
    ping(talk, HTTP2_NOISE);
    assert_true(talk->goaway);
    assert_int_equal(talk->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_true(http2_session_is_over(talk->server));
    assert_int_equal(talk->received, -EPROTO);
}

static void a_client_being_served_may_ping(void **state)
{
    struct conversation *talk = *state;

    talk->reply = true;
    for (unsigned i = 0; i < HTTP2_NOISE; i++) {
        ask(talk, NULL);
        ping(talk, 3);
    }
    assert_false(talk->goaway);
    assert_int_equal(talk->ended, HTTP2_NOISE);
}

static void a_flood_of_resets_ends_it(void **state)
{
    struct conversation *talk = *state;
    unsigned asked = 0;

    while (!talk->goaway && asked < 2000 && talk->given < REQUESTS) {
        int32_t stream;

        talk->send_on = true;
        stream = ask(talk, NULL);
        pump(talk);
        if (talk->goaway)
            break;
        assert_int_equal(
            nghttp2_submit_rst_stream(talk->client, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL), 0);
        pump(talk);
        asked++;
    }
    assert_true(talk->goaway);
    assert_true(asked >= 100);
    assert_int_equal(talk->given, 0);
}

static void garbage_ends_it(void **state)
{
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct conversation *talk = *state;

    feed(talk, garbage, strlen(garbage));
    assert_int_equal(talk->received, -EPROTO);
    assert_true(http2_session_is_over(talk->server));
}

/* It asks for stream after stream, and what refuses them is not fetched. */
static void a_client_that_uses_too_much_memory_is_disconnected(void **state)
{
    struct conversation *talk = *state;
    static const char begin[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    /* POST http: / of x */
    unsigned char head[] = {0, 0, 6, 1, 5, 0, 0, 0, 0, 0x83, 0x86, 0x84, 0x41, 1, 'x'};
    unsigned streams = 0;
    int r = 0;

    r = http2_session_receive(talk->server, begin, sizeof(begin) - 1);
    while (r == 0 && streams < 10000) {
        unsigned stream = 2 * streams++ + 1;

        head[7] = (unsigned char)(stream >> 8);
        head[8] = (unsigned char)stream;
        r = http2_session_receive(talk->server, head, sizeof(head));
    }
    assert_int_equal(r, -EPROTO);
    assert_in_range(streams, HTTP2_STREAMS, 2000);
    assert_true(http2_session_is_over(talk->server));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(long_fields_are_a_fault),
        TEST(a_long_body_is_a_fault),
        TEST(a_slow_request_is_a_fault),
        TEST(bodies_share_their_room),
        TEST(some_room_is_a_sessions_own),
        TEST(there_is_a_bound_on_streams),
        TEST(a_flood_of_pings_ends_it),
        TEST(a_client_being_served_may_ping),
        TEST(a_flood_of_resets_ends_it),
        TEST(garbage_ends_it),
        TEST(a_client_that_uses_too_much_memory_is_disconnected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
