/* SPDX-License-Identifier: Apache-2.0 */
/* agent_client.c - one call: connect, one request, one reply, close; for GROW two of them.
 *
 * A call reports once: call_report() ends the session before it calls `done`, and the owner may
 * free the call there. A failure before anything was started is reported in the loop's next
 * iteration, so that the owner already has the call.
 */
#include "agent-client/agent_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_session.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"

enum { REQUEST_BYTES = AGENT_PATH_BYTES + 1024 };

struct agent_call {
    struct agent_session session;
    enum agent_act act;
    bool resized; /* GROW: the first half is done */
    char *volume_path;
    uint64_t bytes;
    struct loop_timer late;   /* reports what failed before there was a session */
    struct agent_reply reply; /* of `late` */
    agent_done *done;
    void *userdata;
};

static bool contains(const char *text, const char *part)
{
    return text && strstr(text, part);
}

static bool begins(const char *text, const char *prefix)
{
    return text && strncmp(text, prefix, strlen(prefix)) == 0;
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
    case STATUS_INTERNAL: /* a policy that does not know the call or its object; only the agent's
                             src/agent/src/policy.rs has these words */
        return contains(message, "policy check") || contains(message, "Request: internal error ")
                   ? AGENT_DENIED
                   : AGENT_FAILED;
    case STATUS_UNAVAILABLE:
        return begins(message, AGENT_READ_ONLY_TEXT) ? AGENT_READ_ONLY : AGENT_FAILED;
    case STATUS_FAILED_PRECONDITION:
        if (begins(message, AGENT_NOT_GROWABLE_TEXT AGENT_SHUT_DOWN_TEXT))
            return AGENT_SHUT_DOWN;
        if (begins(message, AGENT_LIMIT_TEXT))
            return AGENT_LIMIT;
        return begins(message, AGENT_NOT_GROWABLE_TEXT) ? AGENT_NOT_GROWABLE : AGENT_LAYER;
    case STATUS_DEADLINE_EXCEEDED:
        return begins(message, AGENT_GROWING_TEXT) ? AGENT_GROWING : AGENT_FAILED;
    default:
        return AGENT_FAILED;
    }
}

/* The owner may free the call in here: nothing follows it. */
static void call_report(struct agent_call *call, const struct agent_reply *reply)
{
    agent_session_done(&call->session);
    loop_timer_stop(&call->late);
    call->done(call, reply, call->userdata);
}

static void call_unreachable(struct agent_call *call, bool is_foreign, const char *text)
{
    struct agent_reply reply = {
        .outcome = AGENT_UNREACHABLE,
        .stats_outcome = AGENT_UNREACHABLE,
        .is_foreign = is_foreign,
    };

    if (call->resized)
        reply.outcome = AGENT_DONE;
    (void)error_set(&reply.error, AGENT_UNREACHABLE, "%s", text);
    call_report(call, &reply);
}

static bool asks_stats(const struct agent_call *call)
{
    return call->act == AGENT_STATS || call->resized;
}

static int call_send(struct agent_call *call, struct error *error)
{
    struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    bool stats = asks_stats(call);
    int r = stats ? agent_append_stats_request(&payload, call->volume_path)
                  : agent_append_resize_request(&payload, call->volume_path, call->bytes);

    if (r == 0)
        r = agent_session_call(&call->session, stats ? AGENT_METHOD_STATS : AGENT_METHOD_RESIZE,
                               payload.data, payload.length);
    buffer_done(&payload);
    if (r < 0)
        (void)error_set(error, AGENT_UNREACHABLE, "%s",
                        r == BUFFER_FULL ? "the volume's path is too long to be sent"
                                         : "cannot send the request");
    return r;
}

static int parse_reply(bool stats, const struct ttrpc_status *status, const struct buffer *payload,
                       struct agent_reply *reply)
{
    char number[16];

    reply->status = status->code;
    reply->outcome = agent_outcome_from_status(status->code, status->message);
    if (reply->outcome == AGENT_DONE)
        return stats ? agent_parse_stats(buffer_text(payload), payload->length, &reply->stats) : 0;
    (void)error_set(&reply->error, (int)reply->outcome, "%s%s%s",
                    ttrpc_code_name(status->code, number), status->message[0] ? ": " : "",
                    status->message);
    return 0;
}

static void call_ask_stats(struct agent_call *call)
{
    struct error error;

    call->resized = true;
    if (call_send(call, &error) < 0)
        call_unreachable(call, false, error.text);
}

static void on_answered(struct agent_session *session, const struct ttrpc_status *status,
                        const struct buffer *payload)
{
    struct agent_call *call = container_of(session, struct agent_call, session);
    struct agent_reply reply = {0};

    if (parse_reply(asks_stats(call), status, payload, &reply) < 0) {
        call_unreachable(call, false, "the agent's reply cannot be understood");
    } else if (call->act == AGENT_RESIZE_AND_STATS && reply.outcome == AGENT_DONE &&
               !call->resized) {
        call_ask_stats(call);
    } else {
        reply.stats_outcome = reply.outcome;
        if (call->resized)
            reply.outcome = AGENT_DONE;
        call_report(call, &reply);
    }
}

static void on_ended(struct agent_session *session, enum agent_session_end end,
                     const struct error *error)
{
    call_unreachable(container_of(session, struct agent_call, session),
                     end == AGENT_SESSION_FOREIGN, error->text);
}

static const struct agent_session_handler handler = {.answered = on_answered, .ended = on_ended};

static void on_late(struct loop_timer *timer)
{
    struct agent_call *call = container_of(timer, struct agent_call, late);
    struct agent_reply reply = call->reply;

    call_report(call, &reply);
}

static int call_start(struct agent_call *call, struct loop *loop,
                      const struct agent_request *request, struct error *error)
{
    struct agent_session_options options = {
        .root = request->root,
        .address = request->address,
        .listener = request->listener,
        .request_bytes = REQUEST_BYTES,
        .tells_time = true,
    };
    int r = agent_session_start(&call->session, loop, &options, &handler, error);

    if (r < 0)
        return r;
    agent_session_allow(&call->session, request->deadline_ns);
    return call_send(call, error);
}

int agent_call_new(struct loop *loop, const struct agent_request *request, agent_done *done,
                   void *userdata, struct agent_call **ret_call)
{
    struct agent_call *call = calloc(1, sizeof(*call));
    struct error *error;
    int r;

    if (!call)
        return -ENOMEM;
    call->act = request->act;
    call->bytes = request->bytes;
    call->done = done;
    call->userdata = userdata;
    call->volume_path = strdup(request->volume_path);
    if (!call->volume_path) {
        (void)agent_call_free(call);
        return -ENOMEM;
    }
    error = &call->reply.error;
    r = call_start(call, loop, request, error);
    if (r < 0) {
        if (!error->text[0])
            (void)error_set_errno(error, r, "cannot start the call");
        error->code = AGENT_UNREACHABLE;
        call->reply.outcome = AGENT_UNREACHABLE;
        agent_session_done(&call->session);
        loop_timer_start(loop, &call->late, 0, on_late);
    }
    *ret_call = call;
    return 0;
}

struct agent_call *agent_call_free(struct agent_call *call)
{
    if (!call)
        return NULL;
    agent_session_done(&call->session);
    loop_timer_stop(&call->late);
    free(call->volume_path);
    free(call);
    return NULL;
}
