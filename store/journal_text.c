/* SPDX-License-Identifier: Apache-2.0 */
/* journal_text.c - see journal.h. */
#include "store/journal.h"

#include <inttypes.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "store/schema.h"
#include "store/store_internal.h"

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
        if (*row->detail)
            json_append_name(text, "detail");
        if (is_plain_json(row->detail))
            buffer_append_text(text, row->detail);
        else if (*row->detail)
            json_append_string(text, row->detail);
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

/* ---- journal lines -------------------------------------------------------------------------- */

int store_newest_journal_row(struct store *store, int64_t *ret_seq)
{
    *ret_seq = STORE_NUMBER(store, "SELECT max(seq) FROM journal");
    return STORE_RESULT(store);
}

int store_opening_journal_row(struct store *store, int64_t *ret_seq)
{
    /* A gap in history that was recorded just before belongs to it. */
    *ret_seq = STORE_NUMBER(
        store, "SELECT o.seq - EXISTS (SELECT 1 FROM journal g WHERE g.seq = o.seq - 1"
               " AND g.kind = 'history_missing') FROM journal o WHERE o.kind = 'store_opened'"
               " ORDER BY o.seq DESC LIMIT 1");
    return STORE_RESULT(store);
}

/* A row's own columns, and what is known now of the volume and the sandbox that it is about: no
 * state where the volume's row is gone, because history is trimmed. */
static const char after[] =
    "SELECT j.seq, j.at, j.volume_id, j.kind, j.sandbox_id, j.device, j.detail, e.pv, e.pod_uid,"
    " v.target_path, v.state, v.reason, v.state_since, " V_IS_STALLED ", s.pod_namespace,"
    " s.pod_name FROM journal j"
    " LEFT JOIN volumes v ON v.volume_id = j.volume_id"
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " LEFT JOIN sandboxes s ON s.sandbox_ref ="
    "  (SELECT max(x.sandbox_ref) FROM sandboxes x WHERE x.sandbox_id = j.sandbox_id)"
    " WHERE j.seq > ?1 ORDER BY j.seq LIMIT ?2";

int store_read_journal_lines(struct store *store, struct store_journal_lines *lines,
                             struct buffer *ret_text)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    struct journal_row row;
    int read = 0, r;

    if (!sqlite3_get_autocommit(store->connection.db))
        return STORE_RUNNING;
    r = STORE_QUERY(store, after, &rows, lines->seq, lines->most);
    while (r == 0 && (r = sql_next(&rows)) == SQL_ROW) {
        TAKE(&rows, row.seq, row.at, row.volume_id, row.kind, row.sandbox_id, row.device,
             row.detail, row.pv, row.pod_uid, row.target_path, row.state, row.reason,
             row.state_since, row.stalled, row.pod_namespace, row.pod_name);
        r = journal_text_append(ret_text, &row, lines->node, lines->line_bytes);
        if (r < 0)
            return STORE_NO_MEMORY;
        lines->seq = row.seq;
        read++;
    }
    return r < 0 ? r : read;
}
