/* agent_client.c - one call: connect, perhaps ask for a port, one request, one reply, close.
 *
 * A call goes through at most three phases (struct agent_call) on one stream with one deadline. It
 * reports once: call_report() ends the stream before it calls out, and the owner may free the call
 * from there. What fails before anything was started is reported in the loop's next turn, so the
 * owner never hears of a call that it does not hold yet.
 *
 * The agent is told the time that is left, so that it can give its own reason before ours is "no
 * answer". Whatever comes back is hostile: its length is checked before it is waited for, its
 * memory is bounded, its texts are cleaned.
 *
 * On a unix:// address the bytes in front may belong to somebody who died (ttrpc_codec.h). vsock
 * has connections, so there the first bytes must look like ttrpc, and a wrong peer is found at
 * once.
 */
#include "agent-client/agent_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "agent-client/hybrid_vsock.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/stream.h"

enum {
    REQUEST_BYTES = AGENT_PATH_BYTES + 1024,
    INPUT_BYTES = TTRPC_HEADER_BYTES + AGENT_REPLY_BYTES + 1, /* never full with one reply in it */
    FOREIGN_BYTES = 2 * TTRPC_DATA_BYTES,                     /* dropped in front of the reply */
};

enum phase {
    PHASE_CONNECTING,
    PHASE_HANDSHAKE, /* hybrid vsock only */
    PHASE_WAITING,   /* the request is sent */
};

struct agent_call {
    struct loop *loop;
    enum agent_act act;
    bool resized; /* GROW: the first half is done */
    char *volume_path;
    uint64_t bytes;
    uint64_t deadline_ns; /* the whole time allowed */
    uint64_t ends_at;     /* on clock_boottime() */
    struct agent_address address;
    uint32_t stream_id;
    size_t foreign; /* bytes dropped so far */
    enum phase phase;
    struct stream stream;
    struct loop_timer late;   /* reports what failed before there was a stream */
    struct agent_reply reply; /* of `late` */
    agent_done *done;
    void *userdata;
};

static bool contains(const char *text, const char *part)
{
    return text && strstr(text, part);
}

enum agent_outcome agent_outcome_from_status(int status, const char *message)
{
    switch (status) {
    case STATUS_OK:
        return AGENT_DONE;
    case STATUS_UNIMPLEMENTED:
    case STATUS_NOT_FOUND: /* Go before 1.1, kata-agent before 4.0 */
        return AGENT_UNSUPPORTED;
    case STATUS_INVALID_ARGUMENT: /* ttrpc-rust: "/SERVICE/METHOD does not exist" */
        return contains(message, "does not exist") ? AGENT_UNSUPPORTED : AGENT_FAILED;
    case STATUS_PERMISSION_DENIED:
        return AGENT_DENIED;
    case STATUS_INTERNAL: /* a policy that does not know the call */
        return contains(message, "policy check") ? AGENT_DENIED : AGENT_FAILED;
    case STATUS_FAILED_PRECONDITION:
        return AGENT_LAYER;
    default:
        return AGENT_FAILED;
    }
}

/* The owner may free the call in here: nothing follows it. */
static void call_report(struct agent_call *call, const struct agent_reply *reply)
{
    stream_done(&call->stream);
    loop_timer_stop(&call->late);
    call->done(call, reply, call->userdata);
}

static void call_unreachable(struct agent_call *call, const char *text)
{
    struct agent_reply reply = {.outcome = AGENT_UNREACHABLE, .stats_outcome = AGENT_UNREACHABLE};

    if (call->resized)
        reply.outcome = AGENT_DONE;
    (void)error_set(&reply.error, AGENT_UNREACHABLE, "%s", text);
    call_report(call, &reply);
}

static bool asks_stats(const struct agent_call *call)
{
    return call->act == AGENT_STATS || call->resized;
}

static int call_encode(const struct agent_call *call, struct buffer *frame)
{
    struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    struct ttrpc_request request = {.service = AGENT_SERVICE};
    uint64_t now = clock_boottime();
    int r;

    request.timeout_ns = call->ends_at > now ? call->ends_at - now : 1;
    if (asks_stats(call)) {
        strcpy(request.method, AGENT_METHOD_STATS);
        r = agent_append_stats_request(&payload, call->volume_path);
    } else {
        strcpy(request.method, AGENT_METHOD_RESIZE);
        r = agent_append_resize_request(&payload, call->volume_path, call->bytes);
    }
    if (r == 0)
        r = ttrpc_append_request(frame, call->stream_id, &request, buffer_text(&payload),
                                 payload.length);
    buffer_done(&payload);
    return r;
}

/* False if the call has reported, and may be gone. */
static bool call_send(struct agent_call *call)
{
    struct buffer frame = BUFFER_INIT(REQUEST_BYTES);
    int r = call_encode(call, &frame);

    if (r == 0)
        r = stream_send(&call->stream, frame.data, frame.length);
    buffer_done(&frame);
    if (r < 0) {
        call_unreachable(call, r == -EMSGSIZE ? "the volume's path is too long to be sent"
                                              : "cannot send the request");
        return false;
    }
    call->phase = PHASE_WAITING;
    return true;
}

static void on_connected(struct stream *stream)
{
    struct agent_call *call = container_of(stream, struct agent_call, stream);
    char line[HYBRID_VSOCK_LINE_BYTES];

    if (call->address.transport != AGENT_HYBRID_VSOCK) {
        (void)call_send(call);
        return;
    }
    call->phase = PHASE_HANDSHAKE;
    if (stream_send(stream, line, hybrid_vsock_request(call->address.port, line)) < 0)
        call_unreachable(call, "cannot send the vsock handshake");
}

/* True if the request is sent and what is left in the input is the agent's. */
static bool call_handshake(struct agent_call *call)
{
    struct buffer *input = &call->stream.input;
    size_t used = 0;

    switch (hybrid_vsock_answer(buffer_text(input), input->length, &used)) {
    case HYBRID_VSOCK_CONNECTED:
        buffer_consume(input, used);
        return call_send(call);
    case HYBRID_VSOCK_MORE:
        return false;
    default:
        call_unreachable(call, "the hypervisor's vsock socket did not answer OK");
        return false;
    }
}

static int parse_reply(bool stats, const struct ttrpc_frame *frame, struct agent_reply *reply)
{
    struct buffer payload = BUFFER_INIT(AGENT_REPLY_BYTES);
    struct ttrpc_status status;
    int r = ttrpc_parse_response(frame, &status, &payload);

    if (r == 0) {
        reply->status = status.code;
        reply->outcome = agent_outcome_from_status(status.code, status.message);
        if (reply->outcome == AGENT_DONE && stats)
            r = agent_parse_stats(buffer_text(&payload), payload.length, &reply->stats);
    }
    if (r == 0 && reply->outcome != AGENT_DONE) {
        char number[16];

        (void)error_set(&reply->error, (int)reply->outcome, "%s%s%s",
                        ttrpc_code_name(status.code, number), status.message[0] ? ": " : "",
                        status.message);
    }
    buffer_done(&payload);
    return r;
}

/* Stream ids go up by two, as servers that check them want it. */
static void call_ask_stats(struct agent_call *call)
{
    call->resized = true;
    call->stream_id += 2;
    buffer_clear(&call->stream.input);
    (void)call_send(call);
}

static void call_answered(struct agent_call *call, const struct ttrpc_frame *frame)
{
    struct agent_reply reply = {0};

    if (parse_reply(asks_stats(call), frame, &reply) < 0) {
        call_unreachable(call, "the agent's reply cannot be understood");
    } else if (call->act == AGENT_GROW && reply.outcome == AGENT_DONE && !call->resized) {
        call_ask_stats(call);
    } else {
        reply.stats_outcome = reply.outcome;
        if (call->resized)
            reply.outcome = AGENT_DONE;
        call_report(call, &reply);
    }
}

/* Everything received that can be told from a reply is dropped at once. */
static void call_look_for_reply(struct agent_call *call)
{
    struct buffer *input = &call->stream.input;
    struct ttrpc_frame frame;
    size_t skipped;
    int r;

    if (!call->foreign && call->address.transport != AGENT_UNIX &&
        !ttrpc_looks_like_header(buffer_text(input), input->length)) {
        call_unreachable(call, "what answers there does not speak ttrpc");
        return;
    }
    r = ttrpc_find_response(buffer_text(input), input->length, call->stream_id, AGENT_REPLY_BYTES,
                            &skipped, &frame);
    if (r == TTRPC_FRAME) {
        call_answered(call, &frame);
        return;
    }
    buffer_consume(input, skipped);
    call->foreign += skipped;
    if (r == TTRPC_OVERSIZE)
        call_unreachable(call, "the agent's reply is too long");
    else if (call->foreign > FOREIGN_BYTES)
        call_unreachable(call, "the agent sends too much that is no reply");
}

static void on_received(struct stream *stream)
{
    struct agent_call *call = container_of(stream, struct agent_call, stream);

    if (call->phase == PHASE_WAITING || call_handshake(call))
        call_look_for_reply(call);
}

static void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
{
    struct agent_call *call = container_of(stream, struct agent_call, stream);
    struct error reason;

    switch (end) {
    case STREAM_TIMEOUT:
        (void)error_set(&reason, 0, "no answer within %g s%s",
                        (double)call->deadline_ns / (double)NSEC_PER_SEC,
                        call->foreign ? ", only bytes that are no reply to this call" : "");
        break;
    case STREAM_CLOSED:
        (void)error_set(&reason, 0, "%s",
                        call->phase == PHASE_HANDSHAKE
                            ? "nothing listens on that port in the guest"
                            : "the agent closed the connection without an answer");
        break;
    case STREAM_REFUSED:
    case STREAM_OVERFLOW:
    case STREAM_FAILED:
    default:
        reason = *error;
        break;
    }
    call_unreachable(call, reason.text);
}

static const struct stream_handler handler = {
    .connected = on_connected,
    .received = on_received,
    .ended = on_ended,
};

static void on_late(struct loop_timer *timer)
{
    struct agent_call *call = container_of(timer, struct agent_call, late);
    struct agent_reply reply = call->reply;

    call_report(call, &reply);
}

static int call_start(struct agent_call *call, int root)
{
    struct stream_address address = {
        .family = call->address.transport == AGENT_VSOCK ? STREAM_VSOCK : STREAM_UNIX,
        .directory = root,
        .path = call->address.path,
        .cid = call->address.cid,
        .port = call->address.port,
    };

    return stream_connect(&call->stream, call->loop, &address, call->deadline_ns, INPUT_BYTES,
                          REQUEST_BYTES + HYBRID_VSOCK_LINE_BYTES, &handler);
}

int agent_call_new(struct loop *loop, const struct agent_request *request, agent_done *done,
                   void *userdata, struct agent_call **ret_call)
{
    struct agent_call *call = calloc(1, sizeof(*call));
    struct error *error;
    int r;

    if (!call)
        return -ENOMEM;
    call->loop = loop;
    call->act = request->act;
    call->bytes = request->bytes;
    call->deadline_ns = request->deadline_ns;
    call->ends_at = clock_boottime() + request->deadline_ns;
    call->done = done;
    call->userdata = userdata;
    call->volume_path = strdup(request->volume_path);
    if (!call->volume_path) {
        (void)agent_call_free(call);
        return -ENOMEM;
    }
    error = &call->reply.error;
    r = agent_address_parse(request->address, &call->address, error);
    if (r == 0)
        r = ttrpc_random_stream(&call->stream_id);
    if (r == 0)
        r = call_start(call, request->root);
    if (r < 0) {
        if (!error->text[0])
            (void)error_set_errno(error, r, "cannot start the call");
        error->code = AGENT_UNREACHABLE;
        call->reply.outcome = AGENT_UNREACHABLE;
        loop_timer_start(loop, &call->late, 0, on_late);
    }
    *ret_call = call;
    return 0;
}

struct agent_call *agent_call_free(struct agent_call *call)
{
    if (!call)
        return NULL;
    stream_done(&call->stream);
    loop_timer_stop(&call->late);
    free(call->volume_path);
    free(call);
    return NULL;
}
