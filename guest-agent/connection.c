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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-agent/guest_drive.h"
#include "guest-agent/guest_volume.h"
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

/* In progress. */
struct request {
    struct connection *connection; /* NULL: a free slot */
    uint32_t stream_id;
    struct resize *resize;
    struct task_waiter waiter; /* for a drive's task */
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

static bool is_busy(const struct connection *connection)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        if (connection->requests[i].connection)
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

static void note_loss(int r)
{
    if (r < 0)
        log_warning(NULL, "a reply could not be sent: %s", strerror(-r));
}

/* A peer that does not read its replies loses them. The loop reports the stream's end. */
static void answer(struct connection *connection, uint32_t stream_id, enum status_code code,
                   const char *text, const void *payload, size_t length)
{
    struct buffer frame = BUFFER_INIT(OUTPUT_BYTES);
    struct ttrpc_status status = {.code = (int)code};
    int r;

    if (code != STATUS_OK)
        (void)snprintf(status.message, sizeof(status.message), "%.*s",
                       (int)sizeof(status.message) - 1, text);
    r = ttrpc_append_response(&frame, stream_id, &status, payload, code == STATUS_OK ? length : 0);
    if (r == 0)
        r = connection->stream.handler
                ? stream_send(&connection->stream, frame.data, frame.length)
                : buffer_try_append(&connection->held, frame.data, frame.length);
    buffer_done(&frame);
    note_loss(r);
}

static void refuse(struct connection *connection, uint32_t stream_id, enum status_code code,
                   const char *text)
{
    answer(connection, stream_id, code, text, NULL, 0);
}

/* NULL: there is none, and the request was refused. */
static struct request *take_slot(struct connection *connection, uint32_t stream_id)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct request *request = &connection->requests[i];

        if (request->connection)
            continue;
        *request = (struct request){.connection = connection, .stream_id = stream_id};
        return request;
    }
    refuse(connection, stream_id, STATUS_RESOURCE_EXHAUSTED, "too many requests in progress");
    return NULL;
}

/* Answers the request, whose slot is free then. */
static void finish(struct request *request, enum status_code code, const char *text,
                   const void *payload, size_t length)
{
    struct connection *connection = request->connection;

    request->connection = NULL;
    note_activity(connection);
    answer(connection, request->stream_id, code, text, payload, length);
}

static void on_resized(struct resize *resize, enum status_code code, const char *text,
                       void *userdata)
{
    struct request *request = userdata;

    request->resize = resize_free(resize);
    finish(request, code, text, NULL, 0);
}

static void start_resize(struct connection *connection, uint32_t stream_id,
                         const struct buffer *payload, uint64_t timeout_ns)
{
    struct request *request;
    char path[AGENT_PATH_BYTES];
    uint64_t bytes;

    if (agent_parse_request(buffer_text(payload), payload->length, path, &bytes) < 0) {
        refuse(connection, stream_id, STATUS_INVALID_ARGUMENT, "not a ResizeVolumeRequest");
        return;
    }
    request = take_slot(connection, stream_id);
    if (request && resize_new(connection->loop, path, bytes, timeout_ns, on_resized, request,
                              &request->resize) < 0)
        finish(request, STATUS_RESOURCE_EXHAUSTED, "out of memory", NULL, 0);
}

static void answer_stats(struct connection *connection, uint32_t stream_id,
                         const struct buffer *payload)
{
    struct buffer reply = BUFFER_INIT(OUTPUT_BYTES);
    struct error error = {0};
    struct agent_stats stats;
    char path[AGENT_PATH_BYTES];
    enum status_code code;

    if (agent_parse_request(buffer_text(payload), payload->length, path, NULL) < 0) {
        refuse(connection, stream_id, STATUS_INVALID_ARGUMENT, "not a VolumeStatsRequest");
        return;
    }
    code = stats_read(path, &stats, &error);
    if (code == STATUS_OK && agent_append_stats(&reply, &stats) < 0)
        refuse(connection, stream_id, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    else
        answer(connection, stream_id, code, error.text, buffer_text(&reply), reply.length);
    buffer_done(&reply);
}

static void on_drive_done(struct task_waiter *waiter, const struct task_result *result)
{
    finish(container_of(waiter, struct request, waiter), drive_status(result->outcome),
           result->text, result->payload, result->length);
}

/* What is in progress is listed without a task, because no disk is read for it. */
static void start_drive_call(struct connection *connection, uint32_t stream_id,
                             const struct ttrpc_request *request, const struct buffer *payload)
{
    cleanup(freep) struct drive_call *call = malloc(sizeof(*call));
    cleanup(buffer_done) struct buffer reply = BUFFER_INIT(OUTPUT_BYTES);
    struct error error = {.text = "out of memory"};
    enum status_code code =
        call ? drive_call_parse(request->method, payload, call, &error) : STATUS_RESOURCE_EXHAUSTED;
    bool is_quick = code == STATUS_OK && call->kind == DRIVE_CALL_LIST && call->without_disks;
    struct request *slot;

    if (is_quick)
        code = drive_call_run(call, NULL, &reply, &error);
    if (is_quick || code != STATUS_OK) {
        answer(connection, stream_id, code, error.text, buffer_text(&reply), reply.length);
        return;
    }
    slot = take_slot(connection, stream_id);
    if (slot)
        code = drive_serve(connection->loop, call, request->timeout_ns, &slot->waiter,
                           on_drive_done, &error);
    if (code != STATUS_OK)
        finish(slot, code, error.text, NULL, 0);
}

static void dispatch(struct connection *connection, uint32_t stream_id,
                     const struct ttrpc_request *request, const struct buffer *payload)
{
    if (strcmp(request->service, DRIVE_SERVICE) == 0)
        start_drive_call(connection, stream_id, request, payload);
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
        note_loss(buffer_try_append(&connection->held, stream->output.data, stream->output.length));
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
        task_leave(&connection->requests[i].waiter);
    }
    loop_timer_stop(&connection->silence);
    stream_done(&connection->stream);
    buffer_done(&connection->held);
    free(connection);
    return NULL;
}
