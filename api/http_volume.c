/* SPDX-License-Identifier: Apache-2.0 */
/* http_volume.c - one volume, and what crustctl explain prints.
 *
 * The views are read one after another on the daemon's own connection, within one iteration of the
 * loop, so that all rows are of the same moment.
 */
#include "api/http_asked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "model/volume.h"
#include "reconciler/command/command.h"
#include "store/read.h"

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
