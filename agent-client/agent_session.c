/* SPDX-License-Identifier: Apache-2.0 */
/* agent_session.c - connect, perhaps ask for a port, then calls and their replies.
 *
 * A call that is made before the connection stands waits in `payload`. Stream ids start at a random
 * one and go up by two, as servers that check them require. Frames with another id are dropped.
 */
#include "agent-client/agent_session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"

enum {
    INPUT_BYTES = TTRPC_HEADER_BYTES + AGENT_REPLY_BYTES + 1, /* never full with one reply in it */
    FOREIGN_BYTES = 2 * TTRPC_DATA_BYTES,                     /* dropped in front of a reply */
};

static void session_end(struct agent_session *session, enum agent_session_end end, const char *text)
{
    struct error error;

    (void)error_set(&error, 0, "%s", text);
    stream_done(&session->stream);
    session->handler->ended(session, end, &error);
}

static void session_break(struct agent_session *session, const char *text)
{
    session_end(session, AGENT_SESSION_BROKEN, text);
}

/* Sends the call that waits. */
static int session_send(struct agent_session *session)
{
    struct buffer frame = BUFFER_INIT(session->stream.output.limit);
    struct ttrpc_request request = {0};
    uint64_t now = clock_boottime();
    int r;

    (void)snprintf(request.service, sizeof(request.service), "%s", session->service);
    (void)strcpy(request.method, session->method);
    if (session->tells_time)
        request.timeout_ns = session->ends_at > now ? session->ends_at - now : 1;
    r = ttrpc_append_request(&frame, session->stream_id, &request, buffer_text(&session->payload),
                             session->payload.length);
    if (r == 0)
        r = stream_send(&session->stream, frame.data, frame.length);
    buffer_done(&frame);
    buffer_done(&session->payload);
    session->method[0] = '\0';
    return r;
}

/* False if the session may have ended, and be gone. */
static bool session_is_ready(struct agent_session *session)
{
    session->ready = true;
    if (!session->method[0] || session_send(session) == 0)
        return true;
    session_break(session, "cannot send the request");
    return false;
}

static void on_connected(struct stream *stream)
{
    struct agent_session *session = container_of(stream, struct agent_session, stream);
    char line[HYBRID_VSOCK_LINE_BYTES];

    if (session->address.transport != AGENT_HYBRID_VSOCK) {
        (void)session_is_ready(session);
        return;
    }
    session->shaking = true;
    if (stream_send(stream, line, hybrid_vsock_request(session->address.port, line)) < 0)
        session_break(session, "cannot send the vsock handshake");
}

/* True if the port is there and what is left in the input is the agent's. */
static bool session_shake_hands(struct agent_session *session)
{
    struct buffer *input = &session->stream.input;
    size_t used = 0;

    switch (hybrid_vsock_answer(buffer_text(input), input->length, &used)) {
    case HYBRID_VSOCK_CONNECTED:
        buffer_consume(input, used);
        return session_is_ready(session);
    case HYBRID_VSOCK_MORE:
        return false;
    default:
        session_break(session, "the hypervisor's vsock socket did not answer OK");
        return false;
    }
}

/* `answered` comes last: the session may have been freed after it. */
static void session_take_reply(struct agent_session *session, const struct ttrpc_frame *frame,
                               size_t skipped)
{
    struct buffer payload = BUFFER_INIT(AGENT_REPLY_BYTES);
    struct ttrpc_status status;

    if (ttrpc_parse_response(frame, &status, &payload) < 0) {
        session_break(session, "the agent's reply cannot be understood");
    } else {
        buffer_consume(&session->stream.input, skipped + frame->size);
        session->heard = true;
        session->foreign = 0;
        session->stream_id += 2;
        session->handler->answered(session, &status, &payload);
    }
    buffer_done(&payload);
}

/* Received bytes that cannot be part of a reply are dropped at once. */
static void session_look_for_reply(struct agent_session *session)
{
    struct buffer *input = &session->stream.input;
    struct ttrpc_frame frame;
    size_t skipped;
    int r;

    if (!session->heard && !session->foreign && session->address.transport != AGENT_UNIX &&
        !ttrpc_looks_like_header(buffer_text(input), input->length)) {
        session_break(session, "what answers there does not speak ttrpc");
        return;
    }
    r = ttrpc_find_response(buffer_text(input), input->length, session->stream_id,
                            AGENT_REPLY_BYTES, &skipped, &frame);
    if (r == TTRPC_FRAME) {
        session_take_reply(session, &frame, skipped);
        return;
    }
    buffer_consume(input, skipped);
    session->foreign += skipped;
    if (r == TTRPC_OVERSIZE)
        session_break(session, "the agent's reply is too long");
    else if (session->foreign > FOREIGN_BYTES)
        session_break(session, "the agent sends too much that is no reply");
}

static void on_received(struct stream *stream)
{
    struct agent_session *session = container_of(stream, struct agent_session, stream);

    if (session->ready || session_shake_hands(session))
        session_look_for_reply(session);
}

static enum agent_session_end end_of_refusal(int code)
{
    if (code == STREAM_FOREIGN || code == PATH_BEHIND_A_LINK)
        return AGENT_SESSION_FOREIGN;
    if (result_is_shortage(code) || code == STREAM_BACKLOG_FULL || code == PATH_MAY_HANG)
        return AGENT_SESSION_HINDERED;
    return AGENT_SESSION_BROKEN;
}

static void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
{
    struct agent_session *session = container_of(stream, struct agent_session, stream);
    struct error reason;

    switch (end) {
    case STREAM_TIMEOUT:
        (void)error_set(&reason, 0, "no answer within %g s%s",
                        (double)session->allowed_ns / (double)NSEC_PER_SEC,
                        session->foreign ? ", only bytes that are no reply to this call" : "");
        session_end(session, AGENT_SESSION_LATE, reason.text);
        return;
    case STREAM_CLOSED:
        session_break(session, session->shaking && !session->ready
                                   ? "nothing listens on that port in the guest"
                                   : "the agent closed the connection without an answer");
        return;
    case STREAM_REFUSED:
        reason = *error;
        session_end(session, end_of_refusal(reason.code), reason.text);
        return;
    case STREAM_OVERFLOW:
    case STREAM_FAILED:
    default:
        reason = *error;
        session_break(session, reason.text);
    }
}

static const struct stream_handler handler = {
    .connected = on_connected,
    .received = on_received,
    .ended = on_ended,
};

int agent_session_start(struct agent_session *session, struct loop *loop,
                        const struct agent_session_options *options,
                        const struct agent_session_handler *session_handler, struct error *error)
{
    struct stream_address address;
    int r;

    *session = (struct agent_session){
        .loop = loop,
        .handler = session_handler,
        .service = options->service ? options->service : AGENT_SERVICE,
        .tells_time = options->tells_time,
    };
    r = agent_address_parse(options->address, &session->address, error);
    if (r == 0)
        r = ttrpc_random_stream(&session->stream_id);
    if (r < 0)
        return r;
    buffer_init(&session->payload, options->request_bytes);
    address = (struct stream_address){
        .family = session->address.transport == AGENT_VSOCK ? STREAM_VSOCK : STREAM_UNIX,
        .directory = options->root,
        .path = session->address.path,
        .listener = options->listener,
        .cid = session->address.cid,
        .port = session->address.port,
    };
    r = stream_connect(&session->stream, loop, &address, STREAM_NO_DEADLINE, INPUT_BYTES,
                       options->request_bytes + HYBRID_VSOCK_LINE_BYTES, &handler);
    if (r < 0)
        agent_session_done(session);
    return r;
}

void agent_session_allow(struct agent_session *session, uint64_t nanoseconds)
{
    session->allowed_ns = nanoseconds;
    session->ends_at = clock_boottime() + nanoseconds;
    stream_set_deadline(&session->stream, nanoseconds);
}

int agent_session_call(struct agent_session *session, const char *method, const void *payload,
                       size_t length)
{
    int r;

    buffer_clear(&session->payload);
    r = buffer_append(&session->payload, payload, length);
    if (r < 0)
        return r;
    (void)strncpy(session->method, method, sizeof(session->method) - 1);
    return session->ready ? session_send(session) : 0;
}

void agent_session_done(struct agent_session *session)
{
    stream_done(&session->stream);
    buffer_done(&session->payload);
    session->ready = false;
}
