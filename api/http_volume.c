/* SPDX-License-Identifier: Apache-2.0 */
/* http_volume.c - the rows from which crustctl explain makes its sentences.
 *
 * The views are read one after another on the daemon's own connection, within one iteration of the
 * loop, so that all rows are of the same moment.
 */
#include "api/http_volume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "model/advice.h"
#include "store/read.h"

enum { JOURNAL_LINES = 8, ROW_BYTES = 1024 * 1024 };

static const struct json_limits limits = {ROW_BYTES, 12, 0};

/* Appends the content of "[{…}]" without the brackets. */
static int append_row(struct buffer *json, const struct buffer *rows)
{
    return rows->length <= strlen("[]") ? buffer_append_text(json, "null")
                                        : buffer_append(json, rows->data + 1, rows->length - 2);
}

static int read_volume(struct store_reader *reader, int64_t volume_id, struct buffer *rows,
                       struct error *error)
{
    const struct store_query query = {.view = STORE_VIEW_VOLUMES, .id = volume_id};
    int r = store_read_json(reader, &query, rows, error);

    return r == 0 && rows->length <= strlen("[]") ? HTTP_VOLUME_UNKNOWN : r;
}

int http_volume_write(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                      struct error *error)
{
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(ROW_BYTES);
    int r = read_volume(reader, volume_id, &rows, error);

    return r < 0 ? r : append_row(json, &rows);
}

/* ---- the explanation ---- */

static void append_advice(struct buffer *json, const struct advice *advice)
{
    json_append_member(json, "state_meaning", advice->state ? advice->state->meaning : NULL);
    json_append_member(json, "reason_meaning", advice->reason ? advice->reason->meaning : NULL);
    json_append_member(json, "missing", advice->missing);
    json_append_member(json, "resizable_meaning",
                       advice->resizable ? advice->resizable->meaning : NULL);
    buffer_append_text(json, ",\"remedies\":[");
    for (unsigned i = 0; i < advice->remedies; i++) {
        buffer_append_text(json, i ? "," : "");
        json_append_string(json, advice->remedy[i]);
    }
    buffer_append_text(json, "]");
}

/* The members that name the volume, and the explanation of its state. */
static void append_head(struct buffer *json, const cJSON *volume, const cJSON *layers)
{
    struct advice advice;
    uint64_t id = 0;

    (void)json_number(volume, "volume_id", &id);
    advice_collect(volume, layers, &advice);
    buffer_append_format(json, "{\"volume_id\":%" PRIu64, id);
    json_append_member(json, "target_path", json_string(volume, "target_path"));
    json_append_member(json, "state", json_string(volume, "state"));
    json_append_member(json, "reason", json_string(volume, "reason"));
    append_advice(json, &advice);
}

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

int http_volume_explain(struct store_reader *reader, int64_t volume_id, struct buffer *json,
                        struct error *error)
{
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(ROW_BYTES);
    cleanup(buffer_done) struct buffer layer_rows = BUFFER_INIT(ROW_BYTES);
    cleanup(json_deletep) cJSON *volume = NULL, *layers = NULL;
    char number[24];
    struct store_query query = {.view = STORE_VIEW_LAYERS, .volume = number};
    int r = read_volume(reader, volume_id, &rows, error);

    (void)snprintf(number, sizeof(number), "%" PRId64, volume_id);
    if (r == 0)
        r = store_read_json(reader, &query, &layer_rows, error);
    if (r == 0)
        r = json_parse(buffer_text(&rows), rows.length, limits, &volume, error);
    if (r == 0)
        r = json_parse(buffer_text(&layer_rows), layer_rows.length, limits, &layers, error);
    if (r < 0)
        return r;
    append_head(json, volume->child, layers);
    json_append_name(json, "volume");
    append_row(json, &rows);
    r = append_parts(reader, number, json, error);
    return r < 0 ? r : buffer_append_text(json, "}");
}
