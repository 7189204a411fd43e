/* SPDX-License-Identifier: Apache-2.0 */
/* agent_client.c - connect, perhaps ask for a port, then calls and their replies. */
#include "agent-client/agent_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

enum {
    REQUEST_BYTES = AGENT_PATH_BYTES + 1024,
    FOREIGN_BYTES = 2 * TTRPC_DATA_BYTES, /* dropped in front of a reply */
    MOST_BYTES = 2 * FOREIGN_BYTES,       /* received for one call */
};

static int broken(struct error *error, const char *text)
{
    return error_set(error, PEER_CLOSED, "%s", text);
}

/* Says what a failure of the connection means here. */
static int explain(const struct agent_connection *connection, int failure, struct error *error)
{
    if (failure == PEER_LATE)
        (void)error_set(error, 0, "no answer within %g s",
                        (double)connection->allowed_ns / (double)NSEC_PER_SEC);
    if (failure == PEER_CLOSED && connection->is_open)
        (void)broken(error, "the agent closed the connection without an answer");
    return failure;
}

/* Asks the VMM for the guest's port. */
static int shake_hands(struct agent_connection *connection, uint32_t port, struct error *error)
{
    struct buffer *input = &connection->peer.input;
    char line[HYBRID_VSOCK_LINE_BYTES];
    size_t used = 0;
    int length = snprintf(line, sizeof(line), "CONNECT %u\n", port);
    int r = peer_send(&connection->peer, line, (size_t)length, -1, error);

    while (r == 0) {
        switch (hybrid_vsock_answer(buffer_text(input), input->length, &used)) {
        case HYBRID_VSOCK_CONNECTED:
            buffer_consume(input, used);
            return 0;
        case HYBRID_VSOCK_MORE:
            r = peer_receive(&connection->peer, error);
            break;
        default:
            return broken(error, "the hypervisor's vsock socket did not answer OK");
        }
    }
    return r == PEER_CLOSED ? broken(error, "nothing listens on that port in the guest")
                            : explain(connection, r, error);
}

int agent_connect(struct agent_connection *connection, uint64_t until_ns, uint64_t allowed_ns,
                  struct error *error)
{
    struct agent_address address;
    int r;

    connection->allowed_ns = allowed_ns;
    connection->peer.deadline_ns = until_ns;
    if (connection->is_open)
        return 0;
    connection->peer = (struct peer)PEER_INIT;
    connection->is_heard = false;
    if (agent_address_parse(connection->address, &address, error) < 0)
        return PEER_CLOSED;
    r = ttrpc_random_stream(&connection->stream_id);
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot start the call");
        return PEER_HINDERED;
    }
    connection->transport = address.transport;
    r = address.transport == AGENT_VSOCK
            ? peer_connect_vsock(&connection->peer, address.cid, address.port, until_ns, MOST_BYTES,
                                 error)
            : peer_connect(&connection->peer, connection->root, address.path, connection->listener,
                           until_ns, MOST_BYTES, error);
    if (r != 0)
        return explain(connection, r, error);
    if (address.transport == AGENT_HYBRID_VSOCK)
        r = shake_hands(connection, address.port, error);
    connection->is_open = r == 0;
    return r;
}

static int send_request(struct agent_connection *connection, const char *method,
                        const struct buffer *payload, struct error *error)
{
    struct buffer frame = BUFFER_INIT(TTRPC_HEADER_BYTES + TTRPC_DATA_BYTES);
    struct ttrpc_request request = {.timeout_ns = 0};
    uint64_t now = clock_boottime(), until = connection->peer.deadline_ns;
    int r;

    (void)snprintf(request.service, sizeof(request.service), "%s", connection->service);
    (void)snprintf(request.method, sizeof(request.method), "%s", method);
    if (connection->tells_time)
        request.timeout_ns = until > now ? until - now : 1;
    r = ttrpc_append_request(&frame, connection->stream_id, &request, buffer_text(payload),
                             payload->length);
    if (r == 0)
        r = peer_send(&connection->peer, frame.data, frame.length, -1, error);
    else
        (void)error_set(error, r, "cannot send the request");
    buffer_done(&frame);
    return r;
}

/* Received bytes that cannot be part of the reply are dropped at once. */
static int find_reply(struct agent_connection *connection, struct ttrpc_frame *frame,
                      size_t *skipped, struct error *error)
{
    struct buffer *input = &connection->peer.input;
    size_t foreign = 0;
    int r;

    for (;;) {
        if (!connection->is_heard && !foreign && connection->transport != AGENT_UNIX &&
            !ttrpc_looks_like_header(buffer_text(input), input->length))
            return broken(error, "what answers there does not speak ttrpc");
        r = ttrpc_find_response(buffer_text(input), input->length, connection->stream_id,
                                AGENT_REPLY_BYTES, skipped, frame);
        if (r == TTRPC_FRAME)
            return 0;
        buffer_consume(input, *skipped);
        foreign += *skipped;
        if (r == TTRPC_OVERSIZE)
            return broken(error, "the agent's reply is too long");
        if (foreign > FOREIGN_BYTES)
            return broken(error, "the agent sends too much that is no reply");
        r = peer_receive(&connection->peer, error);
        if (r == 0)
            continue;
        (void)explain(connection, r, error);
        if (r == PEER_LATE && foreign)
            (void)snprintf(error->text + strlen(error->text),
                           sizeof(error->text) - strlen(error->text),
                           ", only bytes that are no reply to this call");
        return r;
    }
}

int agent_ask(struct agent_connection *connection, const char *method, const struct buffer *request,
              struct ttrpc_status *ret_status, struct buffer *ret_payload, struct error *error)
{
    struct ttrpc_frame frame;
    size_t skipped;
    int r;

    connection->peer.received = 0;
    r = send_request(connection, method, request, error);
    /* What an agent said before it closed is still there to be read. */
    if (r != 0 && r != PEER_CLOSED)
        return explain(connection, r, error);
    r = find_reply(connection, &frame, &skipped, error);
    if (r != 0)
        return r;
    buffer_clear(ret_payload);
    if (ttrpc_parse_response(&frame, ret_status, ret_payload) < 0)
        return broken(error, "the agent's reply cannot be understood");
    buffer_consume(&connection->peer.input, skipped + frame.size);
    connection->is_heard = true;
    connection->stream_id += 2;
    return 0;
}

void agent_close(struct agent_connection *connection)
{
    peer_close(&connection->peer);
    connection->is_open = false;
}

/* ---- ResizeVolume and GetVolumeStats ---- */

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

enum agent_outcome agent_outcome_from_status(int status, const char *message)
{
    if (!message)
        message = "";
    switch (status) {
    case STATUS_OK:
        return AGENT_DONE;
    case STATUS_UNIMPLEMENTED:
    case STATUS_NOT_FOUND: /* Go before 1.1, kata-agent before 4.0 */
        return AGENT_UNSUPPORTED;
    case STATUS_INVALID_ARGUMENT: /* ttrpc-rust: "/SERVICE/METHOD does not exist" */
        return strstr(message, "does not exist") ? AGENT_UNSUPPORTED : AGENT_FAILED;
    case STATUS_PERMISSION_DENIED:
        return AGENT_DENIED;
    case STATUS_INTERNAL: /* a policy that does not know the call or its object; only the agent's
                             src/agent/src/policy.rs has these words */
        return strstr(message, "policy check") || strstr(message, "Request: internal error ")
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

void agent_describe_status(const struct ttrpc_status *status, const char *call,
                           struct error *ret_error)
{
    char number[16];

    (void)error_set(ret_error, 0, "%s%s%s%s%s", call ? call : "", call ? ": " : "",
                    ttrpc_code_name(status->code, number), status->message[0] ? ": " : "",
                    status->message);
}

static void ask(struct agent_connection *connection, const struct agent_request *request,
                bool stats, struct agent_reply *reply)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    cleanup(buffer_done) struct buffer answer = BUFFER_INIT(AGENT_REPLY_BYTES);
    struct ttrpc_status status;
    int r = agent_append_request(&payload, request->volume, stats ? 0 : request->bytes);

    *reply = (struct agent_reply){.outcome = AGENT_UNREACHABLE};
    if (r < 0) {
        (void)error_set(&reply->error, 0, "%s",
                        r == BUFFER_FULL ? "the volume's path is too long to be sent"
                                         : "cannot send the request");
        return;
    }
    if (agent_ask(connection, stats ? AGENT_METHOD_STATS : AGENT_METHOD_RESIZE, &payload, &status,
                  &answer, &reply->error) != 0)
        return;
    reply->outcome = agent_outcome_from_status(status.code, status.message);
    if (reply->outcome != AGENT_DONE) {
        agent_describe_status(&status, NULL, &reply->error);
    } else if (stats && agent_parse_stats(buffer_text(&answer), answer.length, &reply->stats) < 0) {
        reply->outcome = AGENT_UNREACHABLE;
        (void)error_set(&reply->error, 0, "the agent's reply cannot be understood");
    }
}

void agent_call_run(const struct agent_request *request, uint64_t until_ns,
                    struct agent_reply *reply)
{
    struct agent_connection connection = {
        .root = request->root,
        .address = request->address,
        .listener = &request->listener,
        .service = AGENT_SERVICE,
        .tells_time = true,
    };

    *reply = (struct agent_reply){.outcome = AGENT_UNREACHABLE};
    if (agent_connect(&connection, until_ns, request->allowed_ns, &reply->error) == 0)
        ask(&connection, request, !request->resizes, reply);
    reply->stats_outcome = reply->outcome;
    if (request->resizes && reply->outcome == AGENT_DONE) {
        ask(&connection, request, true, reply);
        /* Some servers take one request per connection. */
        if (reply->outcome == AGENT_UNREACHABLE) {
            agent_close(&connection);
            if (agent_connect(&connection, until_ns, request->allowed_ns, &reply->error) == 0)
                ask(&connection, request, true, reply);
        }
        reply->stats_outcome = reply->outcome;
        reply->outcome = AGENT_DONE;
    }
    agent_close(&connection);
}
