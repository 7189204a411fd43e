/* SPDX-License-Identifier: Apache-2.0 */
/* http2_conversation.h - a session against nghttp2 as a client, in memory.
 *
 * pump() carries bytes both ways until neither side has any left, so a test reads like the
 * conversation. What the client library would not send is written by hand.
 */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http2.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

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

static inline void reply_ok(struct http2_request *request)
{
    static const struct http2_field fields[] = {{"content-type", "text"}};
    static const struct http2_field trailer = {"grpc-status", "0"};
    struct buffer body = BUFFER_INIT(100);

    assert_int_equal(buffer_append_text(&body, "reply"), 0);
    http2_reply(request, "200", fields, 1, &body, &trailer);
    assert_null(body.data);
}

static inline void on_request(struct http2_request *request, void *userdata)
{
    struct conversation *talk = userdata;

    assert_true(talk->given < REQUESTS || talk->reply);
    if (talk->given < REQUESTS)
        talk->request[talk->given] = request;
    talk->given++;
    if (talk->reply)
        reply_ok(request);
}

static inline void on_cancelled(struct http2_request *request, void *userdata)
{
    struct conversation *talk = userdata;

    assert_false(request->replied);
    talk->cancelled++;
}

static const struct http2_handler handler = {on_request, on_cancelled};

/* ---- the client ---- */

static inline int on_field(nghttp2_session *session, const nghttp2_frame *frame,
                           const uint8_t *name, size_t name_length, const uint8_t *value,
                           size_t value_length, uint8_t flags, void *userdata)
{
    struct conversation *talk = userdata;

    return buffer_append_format(&talk->fields, "%s=%s\n", (const char *)name, (const char *)value);
}

static inline int on_body(nghttp2_session *session, uint8_t flags, int32_t stream,
                          const uint8_t *bytes, size_t length, void *userdata)
{
    struct conversation *talk = userdata;

    return buffer_append(&talk->body, bytes, length);
}

static inline int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
    struct conversation *talk = userdata;

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

static inline void make_client(struct conversation *talk)
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

static inline void feed(struct conversation *talk, const void *bytes, size_t length)
{
    size_t piece = talk->bytewise ? 1 : length;

    for (size_t at = 0; at < length; at += piece)
        talk->received = http2_session_receive(talk->server, (const char *)bytes + at, piece);
}

static inline void pump(struct conversation *talk)
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

static inline ssize_t read_body(nghttp2_session *session, int32_t stream, uint8_t *bytes,
                                size_t length, uint32_t *flags, nghttp2_data_source *source,
                                void *userdata)
{
    struct conversation *talk = source->ptr;

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

static inline nghttp2_nv field(const char *name, const char *value)
{
    union {
        const char *constant;
        uint8_t *bytes;
    } n = {.constant = name}, v = {.constant = value};

    return (nghttp2_nv){n.bytes, v.bytes, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/* A request whose body comes from talk->send; extra may be NULL. */
static inline int32_t ask(struct conversation *talk, const char *extra)
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

static inline int set_up(void **state)
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

static inline int tear_down(void **state)
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
