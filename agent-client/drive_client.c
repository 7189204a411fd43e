/* SPDX-License-Identifier: Apache-2.0 */
/* drive_client.c - connect, one request, one answer, close.
 *
 * The request is encoded in the daemon. The worker sends it, and decodes the answer. A helper's
 * call is the same request, and its answer is decoded in the same way.
 */
#include "agent-client/drive_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_client.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/encode.h"
#include "lib/workers.h"

enum { REQUEST_BYTES = AGENT_REPLY_BYTES };

static const struct {
    const char *service, *method;
} calls[DRIVE_CLIENT_ACTS] = {
    [DRIVE_CLIENT_MOUNT] = {DRIVE_SERVICE, DRIVE_METHOD_MOUNT},
    [DRIVE_CLIENT_UNMOUNT] = {DRIVE_SERVICE, DRIVE_METHOD_UNMOUNT},
    [DRIVE_CLIENT_LIST] = {DRIVE_SERVICE, DRIVE_METHOD_LIST},
    [DRIVE_CLIENT_GROW] = {AGENT_SERVICE, AGENT_METHOD_RESIZE},
};

static void set_reply(struct drive_client_reply *reply, enum drive_client_outcome outcome,
                      enum status_code status, const char *text)
{
    *reply = (struct drive_client_reply){.outcome = outcome, .status = status};
    (void)error_set(&reply->error, (int)status, "%s", text);
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
static void take_refusal(enum drive_client_act act, const struct ttrpc_status *status,
                         struct drive_client_reply *reply)
{
    enum agent_outcome outcome = agent_outcome_from_status(status->code, status->message);
    char number[16];

    if (outcome == AGENT_UNSUPPORTED) {
        set_reply(reply, DRIVE_CLIENT_UNSUPPORTED, STATUS_FAILED_PRECONDITION,
                  "the agent in the guest does not know drives");
    } else if (act == DRIVE_CLIENT_GROW) {
        bool is_passing =
            status->code == STATUS_UNAVAILABLE || status->code == STATUS_DEADLINE_EXCEEDED;

        reply->status = outcome == AGENT_DENIED                  ? STATUS_PERMISSION_DENIED
                        : outcome == AGENT_FAILED && !is_passing ? STATUS_INTERNAL
                                                                 : known_status(status->code);
        agent_describe_status(status, NULL, &reply->error);
    } else {
        set_reply(reply, DRIVE_CLIENT_ANSWERED, known_status(status->code),
                  status->message[0] ? status->message : ttrpc_code_name(status->code, number));
    }
}

static int parse_list(const void *bytes, size_t length, const char *serial,
                      struct drive_client_reply *reply)
{
    struct drive_guest_list list;
    int r = drive_parse_list(bytes, length, &list);

    if (r < 0)
        return r;
    reply->is_incomplete = list.incomplete;
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(list.entries[i].serial, serial) == 0)
            reply->entry = list.entries[i];
    drive_guest_list_done(&list);
    return 0;
}

static void take_answer(enum drive_client_act act, const char *serial,
                        const struct ttrpc_status *status, const struct buffer *payload,
                        struct drive_client_reply *reply)
{
    const void *bytes = buffer_text(payload);
    int r = 0;

    *reply = (struct drive_client_reply){.outcome = DRIVE_CLIENT_ANSWERED};
    if (status->code != STATUS_OK)
        take_refusal(act, status, reply);
    else if (act == DRIVE_CLIENT_MOUNT)
        r = drive_parse(bytes, payload->length, DRIVE_MOUNT_ANSWER, &reply->mount, NULL);
    else if (act == DRIVE_CLIENT_UNMOUNT)
        r = drive_parse(bytes, payload->length, DRIVE_UNMOUNT_ANSWER, &reply->unmount, NULL);
    else if (act == DRIVE_CLIENT_LIST)
        r = parse_list(bytes, payload->length, serial, reply);
    if (r < 0)
        set_reply(reply, DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE,
                  "the agent's reply cannot be understood");
}

void drive_client_run(const struct drive_client_request *request, const char *serial,
                      const struct buffer *payload, uint64_t until_ns,
                      struct drive_client_reply *reply)
{
    struct agent_connection connection = {
        .root = request->root,
        .address = request->address,
        .listener = &request->listener,
        .service = calls[request->act].service,
        .tells_time = true,
    };
    cleanup(buffer_done) struct buffer answer = BUFFER_INIT(AGENT_REPLY_BYTES);
    struct ttrpc_status status;
    struct error error;
    int r = agent_connect(&connection, until_ns, request->allowed_ns, &error);
    enum drive_client_outcome outcome = r == PEER_FOREIGN ? DRIVE_CLIENT_FOREIGN
                                        : r == PEER_LATE || r == PEER_FULL || r == PEER_HINDERED
                                            ? DRIVE_CLIENT_UNREACHABLE
                                            : DRIVE_CLIENT_ABSENT;

    if (r == 0) {
        r = agent_ask(&connection, calls[request->act].method, payload, &status, &answer, &error);
        outcome = r == PEER_LATE ? DRIVE_CLIENT_SILENT : DRIVE_CLIENT_UNREACHABLE;
    }
    if (r == 0)
        take_answer(request->act, serial, &status, &answer, reply);
    else
        set_reply(reply, outcome, STATUS_UNAVAILABLE, error.text);
    agent_close(&connection);
}

/* ---- the request ---- */

static int append_request(struct buffer *payload, const struct drive_client_request *request)
{
    const struct drive_mount_request *drive = request->drive;
    struct drive_unmount_request unmount;

    switch (request->act) {
    case DRIVE_CLIENT_MOUNT:
        return drive_append(payload, DRIVE_MOUNT_REQUEST, drive);
    case DRIVE_CLIENT_UNMOUNT:
        unmount = (struct drive_unmount_request){.timeout_ms = drive->timeout_ms,
                                                 .containers = drive->containers};
        (void)strcpy(unmount.drive_id, drive->drive_id);
        (void)strcpy(unmount.serial, drive->serial);
        return drive_append(payload, DRIVE_UNMOUNT_REQUEST, &unmount);
    case DRIVE_CLIENT_GROW:
        return agent_append_request(payload, drive->vm_path, drive->bytes);
    case DRIVE_CLIENT_LIST:
    case DRIVE_CLIENT_ACTS:
    default:
        return drive_append(payload, DRIVE_LIST_REQUEST, &(bool){request->without_disks});
    }
}

/* ---- the job ---- */

/* The encoded request follows the texts. */
struct message {
    struct drive_client_request request; /* without its drive */
    const char *serial;
    size_t length; /* of the encoded request */
};

static const struct job_texts texts[] = {
    {offsetof(struct message, request.address), 1},
    {offsetof(struct message, request.listener.sandbox_id), 1},
    {offsetof(struct message, serial), 1},
    {0, 0},
};

static void client_act(const struct job_input *input, struct buffer *reply)
{
    struct drive_client_reply answer;
    struct message message;
    struct buffer payload;

    job_read_message(input, texts, &message, sizeof(message));
    message.request.root = input->fds[0];
    payload = (struct buffer){
        .data = (char *)(uintptr_t)input->request + input->length - message.length,
        .length = message.length,
    };
    drive_client_run(&message.request, message.serial, &payload, input->deadline_ns, &answer);
    (void)buffer_append(reply, &answer, sizeof(answer));
}

struct drive_client {
    struct job job;
    drive_client_done *done;
    void *userdata;
};

static bool take_reply(const void *bytes, size_t length, struct drive_client_reply *reply)
{
    return job_take_reply(bytes, length, reply, sizeof(*reply)) &&
           (unsigned)reply->outcome < DRIVE_CLIENT_OUTCOMES &&
           (reply->status == STATUS_OK || reply->status == known_status((int)reply->status)) &&
           job_is_error(&reply->error) && job_is_text(reply->mount.device) &&
           (unsigned)reply->mount.fsck <= DRIVE_FSCK_REPAIRED &&
           job_is_text(reply->mount.container_error) && job_is_flag(&reply->unmount.was_mounted) &&
           job_is_flag(&reply->unmount.disk_removed) && job_is_flag(&reply->is_incomplete) &&
           job_is_text(reply->entry.serial) && job_is_text(reply->entry.device) &&
           job_is_text(reply->entry.vm_path) &&
           (unsigned)reply->entry.state <= DRIVE_GUEST_UNMOUNTING;
}

static void on_job_done(struct job *job, enum job_end end, const void *bytes, size_t length)
{
    struct drive_client *client = container_of(job, struct drive_client, job);
    struct drive_client_reply reply;

    if (end != JOB_ANSWERED || !take_reply(bytes, length, &reply))
        set_reply(&reply, end == JOB_LATE ? DRIVE_CLIENT_SILENT : DRIVE_CLIENT_UNREACHABLE,
                  STATUS_UNAVAILABLE, job_fault_text(end));
    client->done(client, &reply, client->userdata);
}

int drive_client_new(const struct drive_client_request *request, drive_client_done *done,
                     void *userdata, struct drive_client **ret_client)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    struct message message = {.request = *request, .serial = request->drive->serial};
    struct job *job;
    int r = append_request(&payload, request);

    message.length = payload.length;
    if (r == 0)
        r = job_new(
            sizeof(**ret_client),
            &(struct job_message){&message, sizeof(message), texts, payload.data, payload.length},
            (struct job_request){.act = client_act,
                                 .fds = {request->root, -1},
                                 .allowed_ns = request->allowed_ns,
                                 .done = on_job_done},
            &job);
    if (r < 0)
        return r;
    *ret_client = container_of(job, struct drive_client, job);
    (*ret_client)->done = done;
    (*ret_client)->userdata = userdata;
    return 0;
}

struct drive_client *drive_client_free(struct drive_client *client)
{
    return job_free(client ? &client->job : NULL);
}

/* ---- as texts ---- */

int drive_client_make_text(const struct drive_client_request *request, char **ret_text)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    cleanup(buffer_done) struct buffer frame = BUFFER_INIT(TTRPC_HEADER_BYTES + REQUEST_BYTES);
    struct ttrpc_request call = {.service = DRIVE_SERVICE};
    int r = append_request(&payload, request);

    (void)strcpy(call.method, calls[request->act].method);
    if (r == 0)
        r = ttrpc_append_request(&frame, 1, &call, buffer_text(&payload), payload.length);
    if (r < 0)
        return r;
    *ret_text = malloc(BASE64URL_ENCODED_LENGTH(frame.length) + 1);
    if (!*ret_text)
        return -ENOMEM;
    base64url_encode(frame.data, frame.length, *ret_text);
    return 0;
}

void drive_client_read_text(enum drive_client_act act, const char *serial, const char *text,
                            size_t length, struct drive_client_reply *ret_reply)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(AGENT_REPLY_BYTES);
    size_t chars = length && text[length - 1] == '\n' ? length - 1 : length, bytes = 0;
    cleanup(freep) char *data = malloc(chars + 1);
    struct ttrpc_status status;
    struct ttrpc_frame frame;

    if (data && base64url_decode(text, chars, data, chars, &bytes) == 0 &&
        ttrpc_next_frame(data, bytes, AGENT_REPLY_BYTES, &frame) == TTRPC_FRAME &&
        ttrpc_parse_response(&frame, &status, &payload) == 0)
        take_answer(act, serial, &status, &payload, ret_reply);
    else
        set_reply(ret_reply, DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE,
                  "the helper's answer cannot be understood");
}
