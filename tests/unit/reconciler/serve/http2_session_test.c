/* http2_session_test.c - the session against nghttp2 as a client, in memory.
 *
 * pump() carries bytes both ways until neither side has any left, so a test reads like the
 * conversation. What the client library would not send is written by hand.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/serve/http2_session.h"

enum { REQUESTS = 64 };

struct conversation {
    struct http2_room room;
    struct http2_session *server;
    nghttp2_session *client;
    bool bytewise; /* the server gets one byte at a time */
    bool reply;    /* the server replies at once */
    int received;  /* what http2_session_receive() said last */

    struct http2_request *request[REQUESTS]; /* given to the server's handler */
    unsigned given, cancelled;

    /* What the client saw. */
    struct buffer fields, body;
    unsigned ended, reset, refused;
    uint32_t reset_code, goaway_code;
    bool goaway;

    const char *send; /* the client's body */
    size_t send_length;
    bool send_on; /* and there is more to come */
};

/* ---- the server's handler ---- */

static void reply_ok(struct http2_request *request)
{
    static const struct http2_field fields[] = {{"content-type", "text"}};
    static const struct http2_field trailer = {"grpc-status", "0"};
    struct buffer body = BUFFER_INIT(100);

    assert_int_equal(buffer_append_text(&body, "reply"), 0);
    http2_reply(request, "200", fields, 1, &body, &trailer);
    assert_null(body.data);
}

static void on_request(struct http2_request *request, void *userdata)
{
    struct conversation *talk = userdata;

    assert_true(talk->given < REQUESTS || talk->reply);
    if (talk->given < REQUESTS)
        talk->request[talk->given] = request;
    talk->given++;
    if (talk->reply)
        reply_ok(request);
}

static void on_cancelled(struct http2_request *request, void *userdata)
{
    struct conversation *talk = userdata;

    assert_false(request->replied);
    talk->cancelled++;
}

static const struct http2_handler handler = {on_request, on_cancelled};

/* ---- the client ---- */

static int on_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                    size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags,
                    void *userdata)
{
    struct conversation *talk = userdata;

    (void)session;
    (void)frame;
    (void)name_length;
    (void)value_length;
    (void)flags;
    return buffer_append_format(&talk->fields, "%s=%s\n", (const char *)name, (const char *)value);
}

static int on_body(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t length, void *userdata)
{
    struct conversation *talk = userdata;

    (void)session;
    (void)flags;
    (void)stream;
    return buffer_append(&talk->body, bytes, length);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
    struct conversation *talk = userdata;

    (void)session;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        talk->ended++;
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        talk->reset++;
        talk->reset_code = frame->rst_stream.error_code;
        talk->refused += frame->rst_stream.error_code == NGHTTP2_REFUSED_STREAM;
    }
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        talk->goaway = true;
        talk->goaway_code = frame->goaway.error_code;
    }
    return 0;
}

static void make_client(struct conversation *talk)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;

    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_body);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_peer_max_concurrent_streams(option, 1000);
    assert_int_equal(nghttp2_session_client_new2(&talk->client, callbacks, talk, option), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    assert_int_equal(nghttp2_submit_settings(talk->client, NGHTTP2_FLAG_NONE, NULL, 0), 0);
}

static void feed(struct conversation *talk, const void *bytes, size_t length)
{
    size_t piece = talk->bytewise ? 1 : length;

    for (size_t at = 0; at < length; at += piece)
        talk->received = http2_session_receive(talk->server, (const char *)bytes + at, piece);
}

static void pump(struct conversation *talk)
{
    bool moved = true;

    while (moved) {
        const uint8_t *to_server;
        const void *to_client;
        ssize_t sent = nghttp2_session_mem_send(talk->client, &to_server);
        size_t got;

        assert_true(sent >= 0);
        if (sent > 0)
            feed(talk, to_server, (size_t)sent);
        got = http2_session_send(talk->server, &to_client);
        if (got > 0)
            assert_int_equal(nghttp2_session_mem_recv(talk->client, to_client, got), got);
        moved = sent > 0 || got > 0;
    }
}

static ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t length,
                         uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
    struct conversation *talk = source->ptr;

    (void)session;
    (void)stream;
    (void)userdata;
    if (talk->send_length == 0 && talk->send_on)
        return NGHTTP2_ERR_DEFERRED;
    if (length > talk->send_length)
        length = talk->send_length;
    memcpy(bytes, talk->send, length);
    talk->send += length;
    talk->send_length -= length;
    if (talk->send_length == 0 && !talk->send_on)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)length;
}

static nghttp2_nv field(const char *name, const char *value)
{
    union {
        const char *constant;
        uint8_t *bytes;
    } n = {.constant = name}, v = {.constant = value};

    return (nghttp2_nv){n.bytes, v.bytes, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/* A request whose body comes from talk->send; extra may be NULL. */
static int32_t ask(struct conversation *talk, const char *extra)
{
    nghttp2_data_provider provider = {.source.ptr = talk, .read_callback = read_body};
    nghttp2_nv fields[] = {
        field(":method", "POST"),     field(":scheme", "http"),
        field(":authority", "x"),     field(":path", "/a.b/C"),
        field("content-type", "t"),   field("grpc-timeout", "5S"),
        field("grpc-encoding", "id"), field("extra", extra ? extra : ""),
    };
    int32_t stream = nghttp2_submit_request(talk->client, NULL, fields, array_length(fields),
                                            talk->send || talk->send_on ? &provider : NULL, NULL);

    assert_true(stream > 0);
    return stream;
}

/* ---- fixture ---- */

static int set_up(void **state)
{
    struct conversation *talk = calloc(1, sizeof(*talk));

    assert_non_null(talk);
    talk->room.limit = 100 * 1024;
    assert_int_equal(http2_session_new(&handler, talk, &talk->room, &talk->server), 0);
    make_client(talk);
    assert_false(http2_session_has_begun(talk->server));
    *state = talk;
    return 0;
}

static int tear_down(void **state)
{
    struct conversation *talk = *state;

    http2_session_free(talk->server);
    assert_int_equal(talk->room.used, 0);
    nghttp2_session_del(talk->client);
    buffer_done(&talk->fields);
    buffer_done(&talk->body);
    free(talk);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

/* ---- tests ---- */

static void a_request_has_its_reply(void **state)
{
    struct conversation *talk = *state;
    const struct http2_request *request;

    talk->bytewise = true;
    talk->send = "0123456789";
    talk->send_length = 10;
    ask(talk, NULL);
    pump(talk);
    assert_true(http2_session_has_begun(talk->server));
    assert_int_equal(talk->given, 1);
    request = talk->request[0];
    assert_int_equal(request->fault, HTTP2_FINE);
    assert_true(request->complete);
    assert_string_equal(request->method, "POST");
    assert_string_equal(request->path, "/a.b/C");
    assert_string_equal(request->content_type, "t");
    assert_string_equal(request->timeout, "5S");
    assert_string_equal(request->encoding, "id");
    assert_int_equal(request->body.length, 10);
    assert_memory_equal(request->body.data, "0123456789", 10);

    reply_ok(talk->request[0]);
    pump(talk);
    assert_string_equal(buffer_text(&talk->fields),
                        ":status=200\ncontent-type=text\ngrpc-status=0\n");
    assert_string_equal(buffer_text(&talk->body), "reply");
    assert_int_equal(talk->ended, 1);
    assert_int_equal(talk->reset, 0);
    assert_int_not_equal(http2_session_idle_since(talk->server), HTTP2_BUSY);
    assert_false(http2_session_is_over(talk->server));
}

static void fields_alone_end_the_stream(void **state)
{
    static const struct http2_field fields[] = {{"grpc-status", "12"}, {"grpc-message", "no"}};
    struct conversation *talk = *state;

    ask(talk, NULL);
    pump(talk);
    http2_reply(talk->request[0], "200", fields, array_length(fields), NULL, NULL);
    pump(talk);
    assert_string_equal(buffer_text(&talk->fields),
                        ":status=200\ngrpc-status=12\ngrpc-message=no\n");
    assert_int_equal(talk->body.length, 0);
    assert_int_equal(talk->ended, 1);
}

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

static void a_reset_cancels(void **state)
{
    struct conversation *talk = *state;
    int32_t stream = ask(talk, NULL);

    pump(talk);
    assert_int_equal(talk->given, 1);
    assert_int_equal(
        nghttp2_submit_rst_stream(talk->client, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL), 0);
    pump(talk);
    assert_int_equal(talk->cancelled, 1);
    assert_int_not_equal(http2_session_idle_since(talk->server), HTTP2_BUSY);
    assert_false(http2_session_is_over(talk->server));
}

static void the_end_cancels(void **state)
{
    struct conversation *talk = *state;

    ask(talk, NULL);
    talk->send_on = true; /* not complete, so never given */
    ask(talk, NULL);
    pump(talk);
    talk->server = http2_session_free(talk->server);
    assert_int_equal(talk->cancelled, 1);
}

static void ping(struct conversation *talk, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(nghttp2_submit_ping(talk->client, NGHTTP2_FLAG_NONE, NULL), 0);
        pump(talk);
    }
}

/* Not even a client whose window lets no reply through takes room from others. */
static void a_reply_that_is_not_taken_is_waited_for_by_nobody(void **state)
{
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    static const char bytes[HTTP2_OWN_BYTES + 10];
    struct conversation *talk = *state;
    uint64_t before;

    assert_int_equal(nghttp2_submit_settings(talk->client, NGHTTP2_FLAG_NONE, &window, 1), 0);
    talk->send = bytes;
    talk->send_length = sizeof(bytes);
    ask(talk, NULL);
    pump(talk);
    assert_int_equal(http2_session_idle_since(talk->server), HTTP2_BUSY);
    assert_int_equal(talk->room.used, 10);
    before = clock_boottime();
    reply_ok(talk->request[0]);
    pump(talk);
    assert_int_equal(talk->ended, 0);
    assert_int_equal(talk->body.length, 0);
    assert_int_equal(talk->room.used, 0);
    assert_in_range(http2_session_idle_since(talk->server), before, clock_boottime());
}

static void who_has_just_been_served_is_not_idle(void **state)
{
    struct conversation *talk = *state;
    uint64_t before;

    talk->reply = true;
    pump(talk);
    before = clock_boottime();
    assert_in_range(http2_session_idle_since(talk->server), 0, before);
    ask(talk, NULL);
    pump(talk);
    assert_in_range(http2_session_idle_since(talk->server), before, clock_boottime());
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

static void who_is_served_may_ping(void **state)
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

static void what_is_in_flight_at_the_end_has_its_reply(void **state)
{
    struct conversation *talk = *state;

    ask(talk, NULL);
    pump(talk);
    http2_session_shut_down(talk->server);
    pump(talk);
    assert_true(talk->goaway);
    assert_int_equal(talk->goaway_code, NGHTTP2_NO_ERROR);
    assert_false(http2_session_is_over(talk->server));
    reply_ok(talk->request[0]);
    pump(talk);
    assert_int_equal(talk->ended, 1);
    assert_true(http2_session_is_over(talk->server));
}

/* It asks for stream after stream, and what refuses them is not fetched. */
static void who_makes_it_take_too_much_memory_is_ended(void **state)
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
        TEST(a_request_has_its_reply),
        TEST(fields_alone_end_the_stream),
        TEST(long_fields_are_a_fault),
        TEST(a_long_body_is_a_fault),
        TEST(a_slow_request_is_a_fault),
        TEST(bodies_share_their_room),
        TEST(some_room_is_a_sessions_own),
        TEST(who_makes_it_take_too_much_memory_is_ended),
        TEST(there_is_a_bound_on_streams),
        TEST(a_reset_cancels),
        TEST(the_end_cancels),
        TEST(a_reply_that_is_not_taken_is_waited_for_by_nobody),
        TEST(who_has_just_been_served_is_not_idle),
        TEST(a_flood_of_pings_ends_it),
        TEST(who_is_served_may_ping),
        TEST(a_flood_of_resets_ends_it),
        TEST(garbage_ends_it),
        TEST(what_is_in_flight_at_the_end_has_its_reply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
