/* SPDX-License-Identifier: Apache-2.0 */
/* drive_client.c - connect, one request, one answer, close.
 *
 * client_report() is the last use of a client, because `done` may free it. A failure before the
 * session began is reported in the loop's next iteration, when the owner already has the client.
 */
#include "agent-client/drive_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_client.h"
#include "agent-client/agent_session.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

enum { REQUEST_BYTES = AGENT_REPLY_BYTES };

struct drive_client {
    struct agent_session session;
    enum drive_client_act act;
    struct loop_timer deferred; /* reports a failure before the session began */
    struct drive_client_reply reply;
    drive_client_done *done;
    void *userdata;
};

static void client_report(struct drive_client *client)
{
    struct drive_client_reply reply = client->reply;

    agent_session_done(&client->session);
    client->done(client, &reply, client->userdata);
    drive_guest_list_done(&reply.list);
}

static void set_reply(struct drive_client *client, enum drive_client_outcome outcome,
                      enum status_code status, const char *text)
{
    client->reply = (struct drive_client_reply){.outcome = outcome, .status = status};
    (void)error_set(&client->reply.error, (int)status, "%s", text);
}

/* ---- the answer ---- */

/* The statuses that an agent may answer; any other one is reported as INTERNAL. */
static enum status_code known_status(int code)
{
    switch (code) {
    case STATUS_INVALID_ARGUMENT:
    case STATUS_DEADLINE_EXCEEDED:
    case STATUS_ALREADY_EXISTS:
    case STATUS_PERMISSION_DENIED:
    case STATUS_RESOURCE_EXHAUSTED:
    case STATUS_FAILED_PRECONDITION:
    case STATUS_UNAVAILABLE:
        return (enum status_code)code;
    default:
        return STATUS_INTERNAL;
    }
}

/* The agent has refused the call or does not know it. */
static void take_refusal(struct drive_client *client, const struct ttrpc_status *status)
{
    bool unsupported =
        agent_outcome_from_status(status->code, status->message) == AGENT_UNSUPPORTED;
    char number[16];

    if (unsupported)
        set_reply(client, DRIVE_CLIENT_UNSUPPORTED, STATUS_FAILED_PRECONDITION,
                  "the agent in the guest does not know drives");
    else
        set_reply(client, DRIVE_CLIENT_ANSWERED, known_status(status->code),
                  status->message[0] ? status->message : ttrpc_code_name(status->code, number));
}

static int parse_answer(struct drive_client *client, const struct buffer *payload)
{
    const void *bytes = buffer_text(payload);
    struct drive_client_reply *reply = &client->reply;

    switch (client->act) {
    case DRIVE_CLIENT_MOUNT:
        return drive_parse_mount_answer(bytes, payload->length, &reply->mount);
    case DRIVE_CLIENT_UNMOUNT:
        return drive_parse_unmount_answer(bytes, payload->length, &reply->unmount);
    case DRIVE_CLIENT_LIST:
    default:
        return drive_parse_list(bytes, payload->length, &reply->list);
    }
}

static void on_answered(struct agent_session *session, const struct ttrpc_status *status,
                        const struct buffer *payload)
{
    struct drive_client *client = container_of(session, struct drive_client, session);

    client->reply = (struct drive_client_reply){.outcome = DRIVE_CLIENT_ANSWERED};
    if (status->code != STATUS_OK)
        take_refusal(client, status);
    else if (parse_answer(client, payload) < 0)
        set_reply(client, DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE,
                  "the agent's reply cannot be understood");
    client_report(client);
}

static void on_ended(struct agent_session *session, enum agent_session_end end,
                     const struct error *error)
{
    struct drive_client *client = container_of(session, struct drive_client, session);
    enum drive_client_outcome outcome = DRIVE_CLIENT_UNREACHABLE;

    if (end == AGENT_SESSION_LATE && session->ready)
        outcome = DRIVE_CLIENT_SILENT;
    else if (end == AGENT_SESSION_BROKEN && !session->ready)
        outcome = DRIVE_CLIENT_ABSENT;
    set_reply(client, outcome, STATUS_UNAVAILABLE, error->text);
    client_report(client);
}

static const struct agent_session_handler handler = {.answered = on_answered, .ended = on_ended};

/* ---- the request ---- */

static int append_mount(struct buffer *payload, const struct drive_client_request *request)
{
    cleanup(freep) struct drive_mount_request *mount = malloc(sizeof(*mount));

    if (!mount)
        return -ENOMEM;
    *mount = *request->mount;
    mount->timeout_ms = request->deadline_ns / NSEC_PER_MSEC;
    return drive_append_mount_request(payload, mount);
}

static int append_request(struct buffer *payload, const struct drive_client_request *request,
                          const char **ret_method)
{
    struct drive_unmount_request unmount;

    switch (request->act) {
    case DRIVE_CLIENT_MOUNT:
        *ret_method = DRIVE_METHOD_MOUNT;
        return append_mount(payload, request);
    case DRIVE_CLIENT_UNMOUNT:
        *ret_method = DRIVE_METHOD_UNMOUNT;
        unmount = *request->unmount;
        unmount.timeout_ms = request->deadline_ns / NSEC_PER_MSEC;
        return drive_append_unmount_request(payload, &unmount);
    case DRIVE_CLIENT_LIST:
    default:
        *ret_method = DRIVE_METHOD_LIST;
        return drive_append_list_request(payload, request->without_disks);
    }
}

static int client_call(struct drive_client *client, struct loop *loop,
                       const struct drive_client_request *request, struct error *error)
{
    const struct agent_session_options options = {
        .root = request->root,
        .address = request->address,
        .listener = request->listener,
        .service = DRIVE_SERVICE,
        .request_bytes = REQUEST_BYTES,
        .tells_time = true,
    };
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    const char *method;
    int r = append_request(&payload, request, &method);

    client->act = request->act;
    if (r == 0)
        r = agent_session_start(&client->session, loop, &options, &handler, error);
    if (r < 0)
        return r;
    agent_session_allow(&client->session, request->deadline_ns);
    return agent_session_call(&client->session, method, payload.data, payload.length);
}

static void on_deferred(struct loop_timer *timer)
{
    client_report(container_of(timer, struct drive_client, deferred));
}

int drive_client_new(struct loop *loop, const struct drive_client_request *request,
                     drive_client_done *done, void *userdata, struct drive_client **ret_client)
{
    struct drive_client *client = calloc(1, sizeof(*client));
    struct error error = {0};
    int r;

    if (!client)
        return -ENOMEM;
    client->done = done;
    client->userdata = userdata;
    r = client_call(client, loop, request, &error);
    if (r < 0) {
        if (!error.text[0])
            (void)error_set_errno(&error, r, "cannot start the call");
        set_reply(client, result_is_shortage(r) ? DRIVE_CLIENT_UNREACHABLE : DRIVE_CLIENT_ABSENT,
                  STATUS_UNAVAILABLE, error.text);
        agent_session_done(&client->session);
        loop_timer_start(loop, &client->deferred, 0, on_deferred);
    }
    *ret_client = client;
    return 0;
}

struct drive_client *drive_client_free(struct drive_client *client)
{
    if (!client)
        return NULL;
    agent_session_done(&client->session);
    loop_timer_stop(&client->deferred);
    free(client);
    return NULL;
}
