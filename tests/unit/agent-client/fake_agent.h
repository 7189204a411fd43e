/* SPDX-License-Identifier: Apache-2.0 */
/* fake_agent.h - an agent in a guest that misbehaves as each test tells it to.
 *
 * It lives on the client's loop: it accepts, takes the handshake and the request apart with the
 * codecs, and sends its answer in pieces, one for each turn of the loop.
 */
#pragma once

#include "tests/unit/agent-client/agent_listener.h"

static struct script {
    const char *handshake; /* NULL: none is expected */
    void (*answer)(uint32_t stream);
    size_t piece; /* bytes sent in one turn */
    bool close;   /* once all is sent */
    bool close_at_once;
} script;

static struct {
    struct buffer output;
    bool shaken;
    struct ttrpc_request request;
    uint32_t stream;
    struct buffer payload;
    unsigned connections, requests;
} server;

static inline void on_send(struct loop_timer *timer)
{
    size_t piece = server.output.length < script.piece ? server.output.length : script.piece;

    ssize_t sent =
        piece ? send(listening.connection, server.output.data, piece, MSG_NOSIGNAL | MSG_DONTWAIT)
              : 0;

    if (sent < 0 && errno != EAGAIN) {
        hang_up(); /* the client has heard enough */
        return;
    }
    if (sent > 0)
        buffer_consume(&server.output, (size_t)sent);
    if (server.output.length)
        loop_timer_start(&loop, &listening.sending, 0, on_send);
    else if (script.close)
        hang_up();
}

static inline void take_request(void)
{
    struct ttrpc_frame frame;

    if (ttrpc_next_frame(buffer_text(&listening.input), listening.input.length, 65536, &frame) !=
        TTRPC_FRAME)
        return;
    assert_int_equal(ttrpc_parse_request(&frame, &server.request, &server.payload), 0);
    server.stream = frame.header.stream;
    server.requests++;
    buffer_consume(&listening.input, frame.size);
    if (script.answer)
        script.answer(server.stream);
    loop_timer_start(&loop, &listening.sending, 0, on_send);
}

static inline void on_received(void)
{
    if (!script.handshake || server.shaken) {
        take_request();
    } else if (take_connect()) {
        server.shaken = true;
        assert_int_equal(buffer_append_text(&server.output, script.handshake), 0);
        loop_timer_start(&loop, &listening.sending, 0, on_send);
    }
}

static inline void on_accepted(void)
{
    server.connections++;
    if (script.close_at_once)
        hang_up();
}

static inline int set_up(void **state)
{
    memset(&script, 0, sizeof(script));
    memset(&server, 0, sizeof(server));
    script.piece = SIZE_MAX;
    return listen_begin(on_accepted, on_received);
}

static inline int tear_down(void **state)
{
    buffer_done(&server.output);
    buffer_done(&server.payload);
    return listen_end();
}

/* The sandbox's VMM; 0: anybody may listen. */
static pid_t vmm;

static inline void reply_with(uint32_t stream, int code, const char *message, const char *payload,
                              size_t length)
{
    struct ttrpc_status status = {.code = code};

    strcpy(status.message, message);
    assert_int_equal(ttrpc_append_response(&server.output, stream, &status, payload, length), 0);
}
