/* SPDX-License-Identifier: Apache-2.0 */
/* journal_text.c - see journal_text.h. */
#include "store/journal_text.h"

#include <inttypes.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "store/internal.h"

/* What a line is shortened to until it fits. */
enum shape { SHAPE_WHOLE, SHAPE_WITHOUT_DETAIL, SHAPE_BARE, SHAPES };

static void put_text(struct buffer *text, const char *name, const char *value)
{
    if (value && *value)
        json_append_member(text, name, value);
}

static void put_time(struct buffer *text, const char *name, int64_t ms)
{
    char time[CLOCK_TEXT_BYTES];

    clock_text(ms, time);
    json_append_member(text, name, time);
}

static void put_subject(struct buffer *text, const struct journal_row *row)
{
    put_text(text, "pv", row->pv);
    put_text(text, "namespace", row->pod_namespace);
    put_text(text, "pod", row->pod_name);
    put_text(text, "pod_uid", row->pod_uid);
    put_text(text, "sandbox_id", row->sandbox_id);
    if (!*row->state)
        return;
    put_text(text, "state", row->state);
    put_text(text, "reason", row->reason);
    put_time(text, "state_since", row->state_since);
    json_append_name(text, "stalled");
    buffer_append_text(text, row->stalled ? "true" : "false");
}

/* JSON that stands on one line. */
static bool is_plain_json(const char *text)
{
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    return store_is_json(text);
}

static void put_detail(struct buffer *text, const char *detail)
{
    if (!*detail)
        return;
    json_append_name(text, "detail");
    if (is_plain_json(detail))
        buffer_append_text(text, detail);
    else
        json_append_string(text, detail);
}

static void put_line(struct buffer *text, const char *node, const struct journal_row *row,
                     enum shape shape)
{
    buffer_append_text(text, "{\"log\":\"journal\"");
    put_time(text, "at", row->at);
    buffer_append_format(text, ",\"seq\":%" PRId64, row->seq);
    put_text(text, "kind", row->kind);
    put_text(text, "node", node);
    if (row->volume_id)
        buffer_append_format(text, ",\"volume_id\":%" PRId64, row->volume_id);
    if (shape < SHAPE_BARE)
        put_subject(text, row);
    if (shape == SHAPE_WHOLE) {
        put_text(text, "device", row->device);
        put_text(text, "target_path", row->target_path);
        put_detail(text, row->detail);
    } else {
        buffer_append_text(text, ",\"cut\":true");
    }
    buffer_append_text(text, "}\n");
}

int journal_text_append(struct buffer *text, const struct journal_row *row, const char *node,
                        size_t line_bytes)
{
    const struct buffer_mark before = buffer_mark(text);
    int r = 0;

    for (enum shape shape = SHAPE_WHOLE; shape < SHAPES; shape++) {
        put_line(text, node, row, shape);
        r = buffer_error(text);
        if (r == 0 && text->length - before.length <= line_bytes)
            return 0;
        buffer_rewind(text, before);
    }
    return r < 0 ? r : BUFFER_FULL;
}
