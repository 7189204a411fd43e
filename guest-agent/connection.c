/* SPDX-License-Identifier: Apache-2.0 */
/* connection.c - requests are answered as they are done, in any order, matched by stream id.
 *
 * A request in progress belongs to its connection and ends with it: the next client does not get
 * answers to the last one's requests. Bounds: REQUEST_BYTES for one request, REQUESTS in progress,
 * OUTPUT_BYTES of replies that nobody fetches, idle_ns without a whole request on a socket. A frame
 * beyond the bound is answered and its bytes are thrown away as they come.
 *
 * On a serial line the end of a stream is not the end of the connection until the owner says so:
 * the next client's request may arrive before the notice that the last one left (see
 * guest_serve.c). Replies are held meanwhile, also those that the line did not take before it
 * ended: a line without a peer takes nothing, and only the next read shows that it has none.
 * Half-read frames are dropped.
 */
#include "guest-agent/guest_serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_messages.h"
#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/drive_list.h"
#include "guest-agent/drive_task.h"
#include "guest-agent/guest_volume.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/stream.h"

enum {
    REQUEST_BYTES = 64 * 1024,
    INPUT_BYTES = TTRPC_HEADER_BYTES + REQUEST_BYTES + 1, /* never full with one request in it */
    OUTPUT_BYTES = 64 * 1024,
    REQUESTS = 16,
};

#define SILENCE_NS (1 * NSEC_PER_SEC)

/* In progress; a free slot has none of the three. */
struct request {
    struct connection *connection;
    uint32_t stream_id;
    struct resize *resize;
    struct drive_waiter *drive;
    struct drive_listing *listing;
    char path[AGENT_PATH_BYTES];
};

struct connection {
    struct loop *loop;
    struct stream stream;
    bool serial;
    struct buffer held; /* replies while a serial line has no peer */
    size_t discard;     /* bytes of an oversized frame that are yet to come */
    struct loop_timer silence;
    struct request requests[REQUESTS];
    uint64_t active_ns; /* when something was last asked or answered */
    uint64_t idle_ns;
    connection_ended *ended;
    void *userdata;
};

static bool is_free(const struct request *request)
{
    return !request->resize && !request->drive && !request->listing;
}

static bool is_busy(const struct connection *connection)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        if (!is_free(&connection->requests[i]))
            return true;
    }
    return false;
}

/* A serial line has one connection, and no other client waits for it. */
static void note_activity(struct connection *connection)
{
    connection->active_ns = clock_boottime();
    if (!connection->serial)
        stream_set_deadline(&connection->stream,
                            is_busy(connection) ? STREAM_NO_DEADLINE : connection->idle_ns);
}

static void note_loss(int code)
{
    log_warning(NULL, "a reply could not be sent: %s", strerror(-code));
}

static void hold(struct connection *connection, const void *replies, size_t length)
{
    int r = buffer_try_append(&connection->held, replies, length);

    if (r < 0)
        note_loss(r);
}

/* A peer that does not read its replies loses them. The loop reports the stream's end. */
static void answer(struct connection *connection, uint32_t stream_id,
                   const struct ttrpc_status *status, const struct buffer *payload)
{
    struct buffer frame = BUFFER_INIT(OUTPUT_BYTES);
    int r = ttrpc_append_response(&frame, stream_id, status, payload ? buffer_text(payload) : NULL,
                                  payload ? payload->length : 0);

    if (r == 0 && connection->stream.handler)
        r = stream_send(&connection->stream, frame.data, frame.length);
    else if (r == 0)
        hold(connection, frame.data, frame.length);
    buffer_done(&frame);
    if (r < 0)
        note_loss(r);
}

static void refuse(struct connection *connection, uint32_t stream_id, enum status_code code,
                   const char *text)
{
    struct ttrpc_status status = {.code = (int)code};

    (void)snprintf(status.message, sizeof(status.message), "%.*s", (int)sizeof(status.message) - 1,
                   text);
    answer(connection, stream_id, &status, NULL);
}

static void on_resized(struct resize *resize, const struct ttrpc_status *status, void *userdata)
{
    struct request *request = userdata;
    char number[16];

    if (status->code == STATUS_OK)
        log_info(NULL, "resized %s", request->path);
    else if (strncmp(status->message, AGENT_GROWING_TEXT, strlen(AGENT_GROWING_TEXT)) == 0)
        log_info(NULL, "%s: %s", request->path, status->message);
    else
        log_warning(NULL, "cannot resize %s: %s: %s", request->path,
                    ttrpc_code_name(status->code, number), status->message);
    request->resize = resize_free(resize);
    note_activity(request->connection);
    answer(request->connection, request->stream_id, status, NULL);
}

/* NULL: there is none, and the request was refused. */
static struct request *take_slot(struct connection *connection, uint32_t stream_id)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct request *request = &connection->requests[i];

        if (!is_free(request))
            continue;
        request->connection = connection;
        request->stream_id = stream_id;
        return request;
    }
    refuse(connection, stream_id, STATUS_RESOURCE_EXHAUSTED, "too many requests in progress");
    return NULL;
}

static void start_resize(struct connection *connection, uint32_t stream_id,
                         const struct buffer *payload, uint64_t timeout_ns)
{
    struct request *request = take_slot(connection, stream_id);
    uint64_t bytes;

    if (!request)
        return;
    if (agent_parse_request(buffer_text(payload), payload->length, request->path, &bytes) < 0) {
        refuse(connection, stream_id, STATUS_INVALID_ARGUMENT, "not a ResizeVolumeRequest");
        return;
    }
    if (resize_new(connection->loop, request->path, bytes, timeout_ns, on_resized, request,
                   &request->resize) < 0)
        refuse(connection, stream_id, STATUS_RESOURCE_EXHAUSTED, "out of memory");
}

static void answer_stats(struct connection *connection, uint32_t stream_id,
                         const struct buffer *payload)
{
    struct buffer reply = BUFFER_INIT(OUTPUT_BYTES);
    struct ttrpc_status status = {0};
    char path[AGENT_PATH_BYTES];
    struct agent_stats stats;

    if (agent_parse_request(buffer_text(payload), payload->length, path, NULL) < 0) {
        refuse(connection, stream_id, STATUS_INVALID_ARGUMENT, "not a VolumeStatsRequest");
        return;
    }
    stats_read(path, &status, &stats);
    if (status.code == STATUS_OK && agent_append_stats(&reply, &stats) < 0)
        refuse(connection, stream_id, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    else
        answer(connection, stream_id, &status, &reply);
    buffer_done(&reply);
}

static void answer_drives(struct request *request, struct drive_guest_list *list)
{
    struct buffer reply = BUFFER_INIT(OUTPUT_BYTES);
    struct ttrpc_status status = {0};

    if (drive_tasks_note(list) < 0 || drive_append_list(&reply, list) < 0)
        refuse(request->connection, request->stream_id, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    else
        answer(request->connection, request->stream_id, &status, &reply);
    buffer_done(&reply);
}

static void on_listed(struct drive_listing *listing, int r, struct drive_guest_list *list,
                      const struct error *error, void *userdata)
{
    struct request *request = userdata;

    request->listing = drive_listing_free(listing);
    note_activity(request->connection);
    if (r < 0)
        refuse(request->connection, request->stream_id, STATUS_UNAVAILABLE, error->text);
    else
        answer_drives(request, list);
}

static void start_list(struct request *slot, const struct buffer *payload, uint64_t timeout_ns)
{
    struct drive_guest_list none = {0};
    struct error error;
    bool without_disks;
    int r;

    if (drive_parse(buffer_text(payload), payload->length, DRIVE_LIST_REQUEST, &without_disks,
                    NULL) < 0) {
        refuse(slot->connection, slot->stream_id, STATUS_INVALID_ARGUMENT,
               "the request is malformed");
        return;
    }
    if (without_disks) {
        answer_drives(slot, &none);
        drive_guest_list_done(&none);
        return;
    }
    r = drive_listing_new(slot->connection->loop, timeout_ns, on_listed, slot, &slot->listing);
    if (r == 0)
        return;
    (void)error_set(&error, r, "cannot list the drives: %s", child_explain(r));
    refuse(slot->connection, slot->stream_id, STATUS_UNAVAILABLE, error.text);
}

static void on_drive_done(struct drive_waiter *waiter, const struct ttrpc_status *status,
                          const struct buffer *payload, void *userdata)
{
    struct request *request = userdata;

    request->drive = drive_waiter_free(waiter);
    note_activity(request->connection);
    answer(request->connection, request->stream_id, status, payload);
}

static void start_work(struct request *slot, const struct ttrpc_request *request,
                       const struct buffer *payload)
{
    struct drive_work work;
    struct error error;

    if (drive_work_parse(request->method, payload, &work, &error) != STATUS_OK)
        refuse(slot->connection, slot->stream_id, STATUS_INVALID_ARGUMENT, error.text);
    else if (drive_task_start(slot->connection->loop, &work, request->timeout_ns, on_drive_done,
                              slot, &slot->drive) < 0)
        refuse(slot->connection, slot->stream_id, STATUS_RESOURCE_EXHAUSTED, "out of memory");
}

static void dispatch_drives(struct connection *connection, uint32_t stream_id,
                            const struct ttrpc_request *request, const struct buffer *payload)
{
    bool lists = strcmp(request->method, DRIVE_METHOD_LIST) == 0;
    struct request *slot;

    if (!lists && strcmp(request->method, DRIVE_METHOD_MOUNT) != 0 &&
        strcmp(request->method, DRIVE_METHOD_UNMOUNT) != 0) {
        refuse(connection, stream_id, STATUS_UNIMPLEMENTED, "not a method of " DRIVE_SERVICE);
        return;
    }
    slot = take_slot(connection, stream_id);
    if (slot && lists)
        start_list(slot, payload, request->timeout_ns);
    else if (slot)
        start_work(slot, request, payload);
}

static void dispatch(struct connection *connection, uint32_t stream_id,
                     const struct ttrpc_request *request, const struct buffer *payload)
{
    if (strcmp(request->service, DRIVE_SERVICE) == 0)
        dispatch_drives(connection, stream_id, request, payload);
    else if (strcmp(request->service, AGENT_SERVICE) != 0)
        refuse(connection, stream_id, STATUS_UNIMPLEMENTED,
               "only " AGENT_SERVICE " and " DRIVE_SERVICE " are served here");
    else if (strcmp(request->method, AGENT_METHOD_RESIZE) == 0)
        start_resize(connection, stream_id, payload, request->timeout_ns);
    else if (strcmp(request->method, AGENT_METHOD_STATS) == 0)
        answer_stats(connection, stream_id, payload);
    else
        refuse(connection, stream_id, STATUS_UNIMPLEMENTED,
               "only " AGENT_METHOD_RESIZE " and " AGENT_METHOD_STATS " are served here");
}

static void take_frame(struct connection *connection, const struct ttrpc_frame *frame)
{
    struct buffer payload = BUFFER_INIT(REQUEST_BYTES);
    struct ttrpc_request request;

    if (frame->header.type != TTRPC_REQUEST)
        return;
    if (ttrpc_parse_request(frame, &request, &payload) < 0)
        refuse(connection, frame->header.stream, STATUS_INVALID_ARGUMENT, "not a ttrpc request");
    else
        dispatch(connection, frame->header.stream, &request, &payload);
    buffer_done(&payload);
}

static void on_silence(struct loop_timer *timer)
{
    struct connection *connection = container_of(timer, struct connection, silence);

    log_debug(NULL, "dropping half a frame");
    buffer_clear(&connection->stream.input);
    connection->discard = 0;
}

/* Takes one step through the input. False if there is nothing more to do now. */
static bool take_step(struct connection *connection)
{
    struct buffer *input = &connection->stream.input;
    struct ttrpc_frame frame;

    if (connection->discard) {
        size_t part = input->length < connection->discard ? input->length : connection->discard;

        buffer_consume(input, part);
        connection->discard -= part;
        return !connection->discard;
    }
    switch (ttrpc_next_frame(buffer_text(input), input->length, REQUEST_BYTES, &frame)) {
    case TTRPC_FRAME:
        take_frame(connection, &frame);
        note_activity(connection);
        buffer_consume(input, frame.size);
        return true;
    case TTRPC_OVERSIZE:
        refuse(connection, frame.header.stream, STATUS_RESOURCE_EXHAUSTED,
               "the request is too long");
        connection->discard = frame.header.length;
        buffer_consume(input, TTRPC_HEADER_BYTES);
        return true;
    case TTRPC_NONSENSE:
        if (connection->serial)
            buffer_clear(input);
        else
            stream_set_deadline(&connection->stream, 0); /* ends it from the loop */
        return false;
    default:
        return false;
    }
}

static void on_received(struct stream *stream)
{
    struct connection *connection = container_of(stream, struct connection, stream);

    while (take_step(connection))
        ;
    if (connection->serial && (stream->input.length || connection->discard))
        loop_timer_start(connection->loop, &connection->silence, SILENCE_NS, on_silence);
    else
        loop_timer_stop(&connection->silence);
}

static void on_ended(struct stream *stream, enum stream_end end, const struct error *error)
{
    struct connection *connection = container_of(stream, struct connection, stream);

    (void)end;
    (void)error;
    loop_timer_stop(&connection->silence);
    connection->discard = 0;
    if (connection->serial) {
        hold(connection, stream->output.data, stream->output.length);
        stream_done(stream);
    }
    connection->ended(connection, connection->userdata);
}

static const struct stream_handler handler = {.received = on_received, .ended = on_ended};

int connection_new(struct loop *loop, int fd, bool serial, uint64_t idle_ns,
                   connection_ended *ended, void *userdata, struct connection **ret_connection)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    int r;

    if (!connection) {
        fd_close(fd);
        return -ENOMEM;
    }
    buffer_init(&connection->held, OUTPUT_BYTES);
    connection->loop = loop;
    connection->serial = serial;
    connection->idle_ns = idle_ns;
    connection->ended = ended;
    connection->userdata = userdata;
    r = stream_adopt(&connection->stream, loop, fd, STREAM_NO_DEADLINE, INPUT_BYTES, OUTPUT_BYTES,
                     &handler);
    if (r < 0) {
        free(connection);
        return r;
    }
    note_activity(connection);
    *ret_connection = connection;
    return 0;
}

int connection_resume(struct connection *connection, int fd)
{
    int r = stream_adopt(&connection->stream, connection->loop, fd, STREAM_NO_DEADLINE, INPUT_BYTES,
                         OUTPUT_BYTES, &handler);

    if (r == 0 && connection->held.length)
        r = stream_send(&connection->stream, connection->held.data, connection->held.length);
    buffer_clear(&connection->held);
    return r;
}

uint64_t connection_idle_since(const struct connection *connection)
{
    return is_busy(connection) ? UINT64_MAX : connection->active_ns;
}

struct connection *connection_free(struct connection *connection)
{
    if (!connection)
        return NULL;
    for (size_t i = 0; i < REQUESTS; i++) {
        (void)resize_free(connection->requests[i].resize);
        (void)drive_waiter_free(connection->requests[i].drive);
        (void)drive_listing_free(connection->requests[i].listing);
    }
    loop_timer_stop(&connection->silence);
    stream_done(&connection->stream);
    buffer_done(&connection->held);
    free(connection);
    return NULL;
}
