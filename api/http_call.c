/* SPDX-License-Identifier: Apache-2.0 */
/* http_call.c - stats, resizes and drives over HTTP: the same commands that gRPC's methods use,
 * answered in JSON. HTTP has no time limit of the client's, so a call ends after CALL_SECONDS, like
 * a gRPC call without grpc-timeout. */
#include "api/http_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "api/drive_asked.h"
#include "api/http_asked_drive.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"

enum { CALL_SECONDS = 120, REPLY_BYTES = 32 * 1024 /* more than the longest drive */ };

struct http_call {
    struct operations *operations;
    const char *method;
    uint64_t began_ns;
    struct expansion *expansion;
    struct stats_call *stats;
    struct drive_wait *drive;
    struct loop_timer deadline;
    http_call_done *done;
    void *userdata;
};

/* ---- replies ---- */

static void append_usage(struct buffer *body, const char *before, uint64_t available,
                         uint64_t total, uint64_t used, unsigned unit)
{
    buffer_append_format(body,
                         "%s{\"available\":%" PRIu64 ",\"total\":%" PRIu64 ",\"used\":%" PRIu64
                         ",\"unit\":%u}",
                         before, available, total, used, unit);
}

/* Units: 1 bytes, 2 inodes. */
static void append_stats(struct buffer *body, const struct reconciler_stats *stats)
{
    buffer_append_text(body, "{\"usage\":[");
    if (stats->has_bytes)
        append_usage(body, "", stats->available, stats->total, stats->used, 1);
    if (stats->has_inodes)
        append_usage(body, stats->has_bytes ? "," : "", stats->available_inodes,
                     stats->total_inodes, stats->used_inodes, 2);
    buffer_append_format(body, "],\"volume_condition\":{\"abnormal\":%s",
                         stats->abnormal ? "true" : "false");
    json_append_member(body, "message", stats->condition);
    buffer_append_text(body, "}}\n");
}

/* If there is no memory for the reply, there is none for an error either, so that failure is
 * ignored. */
static void reply(struct http_call *call, enum status_code code, struct http_reply *body,
                  const struct error *error)
{
    http_call_done *done = call->done;
    void *userdata = call->userdata;

    if (code != STATUS_OK)
        (void)http_routes_refuse_code(body, code, error->text);
    operations_note(call->operations, call->method, code, call->began_ns);
    loop_timer_stop(&call->deadline);
    free(call);
    done(userdata, body);
}

static struct http_reply empty_reply(void)
{
    return (struct http_reply){
        .status = 200, .content_type = "application/json", .body = BUFFER_INIT(REPLY_BYTES)};
}

static void on_counted(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                       const struct error *error)
{
    struct http_reply body = empty_reply();

    if (code == STATUS_OK)
        append_stats(&body.body, stats);
    reply(userdata, code, &body, error);
}

static void on_expanded(void *userdata, enum status_code code,
                        const struct reconciler_capacity *capacity, const struct error *error)
{
    struct http_reply body = empty_reply();

    if (code == STATUS_OK)
        buffer_append_format(&body.body, "{\"capacity_bytes\":%" PRIu64 "%s}\n", capacity->bytes,
                             capacity->is_owed ? ",\"owed\":true" : "");
    reply(userdata, code, &body, error);
}

static void on_drive(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                     const struct error *error)
{
    struct http_reply body = empty_reply();

    if (code == STATUS_OK)
        (void)http_append_drive(&body.body, drive);
    (void)buffer_append_text(&body.body, "\n");
    reply(userdata, code, &body, error);
}

static void on_detached(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                        const struct error *error)
{
    struct http_reply body = empty_reply();

    (void)drive;
    (void)buffer_append_text(&body.body, "{}\n");
    reply(userdata, code, &body, error);
}

/* ---- a call begins and ends ---- */

static void drop_work(struct http_call *call)
{
    if (call->expansion)
        call->expansion = reconciler_expand_cancel(call->expansion);
    if (call->stats)
        call->stats = reconciler_stats_cancel(call->stats);
    if (call->drive)
        call->drive = reconciler_drive_cancel(call->drive);
}

static void on_deadline(struct loop_timer *timer)
{
    struct http_call *call = container_of(timer, struct http_call, deadline);
    struct http_reply body = empty_reply();
    struct error error;

    drop_work(call);
    (void)error_set(&error, 0, "not done within %d s; what was begun goes on", CALL_SECONDS);
    reply(call, STATUS_DEADLINE_EXCEEDED, &body, &error);
}

static enum status_code start_drive(struct http_call *call, struct reconciler *reconciler,
                                    const struct drive_asked *asked, struct error *error)
{
    const struct reconciler_drive_attach *attach = &asked->attach;

    switch (asked->call) {
    case DRIVE_ASKED_ATTACH:
        return reconciler_attach_drive(reconciler, attach, on_drive, call, &call->drive, error);
    case DRIVE_ASKED_DETACH:
        return reconciler_detach_drive(reconciler, attach->drive_id, on_detached, call,
                                       &call->drive, error);
    case DRIVE_ASKED_LIMITS:
        break;
    }
    return reconciler_limit_drive(reconciler, attach->drive_id, &attach->limits, on_drive, call,
                                  &call->drive, error);
}

static enum status_code start(struct http_call *call, struct reconciler *reconciler,
                              const struct http_asked *asked, struct error *error)
{
    if (asked->drive)
        return start_drive(call, reconciler, asked->drive, error);
    if (asked->resizes)
        return reconciler_expand(reconciler, &asked->expand, on_expanded, call, &call->expansion,
                                 error);
    return reconciler_ask_stats(reconciler, &asked->expand.target, on_counted, call, &call->stats,
                                error);
}

int http_call_begin(const struct http_call_options *options, const struct http_asked *asked,
                    http_call_done *done, void *userdata, struct http_reply *ret_reply,
                    struct http_call **ret_call)
{
    struct http_call *call = calloc(1, sizeof(*call));
    struct error error = {0};
    enum status_code code;

    if (!call)
        return -ENOMEM;
    *call = (struct http_call){.operations = options->operations,
                               .method = asked->method,
                               .began_ns = clock_boottime(),
                               .done = done,
                               .userdata = userdata};
    code = start(call, options->reconciler, asked, &error);
    if (code != STATUS_OK) {
        operations_note(call->operations, call->method, code, call->began_ns);
        free(call);
        return http_routes_refuse_code(ret_reply, code, error.text);
    }
    loop_timer_start(options->loop, &call->deadline, CALL_SECONDS * NSEC_PER_SEC, on_deadline);
    *ret_call = call;
    return HTTP_CALL_LATER;
}

struct http_call *http_call_cancel(struct http_call *call)
{
    if (!call)
        return NULL;
    drop_work(call);
    loop_timer_stop(&call->deadline);
    free(call);
    return NULL;
}
