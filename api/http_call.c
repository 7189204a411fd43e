/* SPDX-License-Identifier: Apache-2.0 */
/* http_call.c - stats, resizes and drives over HTTP: the same commands that gRPC's methods use,
 * answered in JSON. HTTP has no time limit of the client's, so a call ends after CALL_SECONDS, like
 * a gRPC call without grpc-timeout. */
#include "api/http_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/drive_asked.h"
#include "api/http_asked.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "model/advice.h"
#include "reconciler/command/command.h"
#include "store/read.h"

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

/* ---- http volume ---------------------------------------------------------------------------- */

/* One volume, and what crustctl explain prints.
 *
 * The views are read one after another on the daemon's own connection, within one iteration of the
 * loop, so that all rows are of the same moment.
 */

enum { JOURNAL_LINES = 8, ROW_BYTES = 1024 * 1024, ROWS_BYTES = 8 * ROW_BYTES };

/* Appends the content of "[{…}]" without the brackets. */
static int append_row(struct buffer *json, const struct buffer *rows)
{
    return rows->length <= strlen("[]") ? buffer_append_text(json, "null")
                                        : buffer_append(json, rows->data + 1, rows->length - 2);
}

int http_volume_write(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                      struct error *error)
{
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .id = volume_id};
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(ROW_BYTES);
    int r = store_read_json(reader, &query, &rows, error);

    if (r == 0 && rows.length <= strlen("[]"))
        return HTTP_VOLUME_UNKNOWN;
    return r < 0 ? r : append_row(json, &rows);
}

/* ---- the explanation ---- */

struct part {
    const char *name;
    enum store_view view;
    int64_t last;
    bool is_list;
};

static int append_part(struct store_reader *reader, const struct part *part, const char *volume,
                       struct buffer *json, struct error *error)
{
    const struct store_query query = {
        .view = part->view, .volume = volume, .last = part->last, .live = true};
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(ROW_BYTES);
    int r = store_read_json(reader, &query, &rows, error);

    if (r < 0)
        return r;
    json_append_name(json, part->name);
    return part->is_list ? buffer_append(json, rows.data, rows.length) : append_row(json, &rows);
}

static int append_parts(struct store_reader *reader, const char *volume, struct buffer *json,
                        struct error *error)
{
    static const struct part parts[] = {
        {"mapping", STORE_VIEW_MAPPINGS, 1, false},
        {"sandbox", STORE_VIEW_SANDBOXES, 1, false},
        {"resize", STORE_VIEW_RESIZES, 1, false},
        {"cleanup", STORE_VIEW_CLEANUPS, 1, false},
        {"layers", STORE_VIEW_LAYERS, 0, true},
        {"journal", STORE_VIEW_JOURNAL, JOURNAL_LINES, true},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(parts); i++)
        r = append_part(reader, &parts[i], volume, json, error);
    return r;
}

/* Null where nothing is looked for, or not yet. */
static int append_judged(struct reconciler *reconciler, int64_t volume_id, struct buffer *json)
{
    cleanup(buffer_done) struct buffer judged = BUFFER_INIT(ROW_BYTES);
    const bool is_judged = reconciler_gc(reconciler, true, volume_id, &judged, NULL) == STATUS_OK;

    json_append_name(json, "judged");
    return buffer_append_text(json, is_judged ? buffer_text(&judged) : "null");
}

/* The members that name the volume, and the explanation of its state. */
static int append_head(struct reconciler *reconciler, const cJSON *rows, int64_t volume_id,
                       struct buffer *json)
{
    static const char *const names[] = {"target_path", "state", "reason", "resizable",
                                        "resizable_reason"};
    struct reconciler_modes modes;

    reconciler_get_modes(reconciler, &modes);
    buffer_append_format(json, "{\"volume_id\":%" PRId64, volume_id);
    for (size_t i = 0; i < array_length(names); i++)
        json_append_member(json, names[i], json_string(json_member(rows, "volume"), names[i]));
    return advice_append(rows, modes.resize, json);
}

int http_volume_explain(struct reconciler *reconciler, int64_t volume_id, bool judge,
                        struct buffer *json, struct error *error)
{
    struct store_reader *reader = reconciler_reader(reconciler);
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(ROWS_BYTES);
    cleanup(json_deletep) cJSON *parsed = NULL;
    char number[24];
    int r;

    (void)snprintf(number, sizeof(number), "%" PRId64, volume_id);
    buffer_append_text(&rows, "{\"volume\":");
    r = http_volume_write(reader, volume_id, &rows, error);
    if (r == 0)
        r = append_parts(reader, number, &rows, error);
    if (r == 0 && judge)
        r = append_judged(reconciler, volume_id, &rows);
    if (r == 0)
        r = buffer_append_text(&rows, "}");
    if (r == 0)
        r = json_parse(rows.data, rows.length, (struct json_limits){ROWS_BYTES, 12, 0}, &parsed,
                       error);
    if (r == 0)
        r = append_head(reconciler, parsed, volume_id, json);
    if (r < 0)
        return r;
    buffer_append_text(json, ",");
    return buffer_append(json, rows.data + 1, rows.length - 1);
}
