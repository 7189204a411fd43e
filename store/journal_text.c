/* SPDX-License-Identifier: Apache-2.0 */
/* journal_text.c - see journal_text.h. */
#include "store/journal_text.h"

#include <inttypes.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "store/internal.h"
#include "store/schema.h"

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

/* ---- journal lines -------------------------------------------------------------------------- */

/* A line has the row's own columns, and what is known now of the volume and the sandbox that it is
 * about.
 */

static int read_seq(struct store *store, const char *text, int64_t *ret_seq)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(&store->connection, text, &rows, NULL, 0);

    if (r == 0)
        r = sql_next(&rows);
    if (r < 0)
        return r;
    *ret_seq = r == SQL_ROW ? sql_take_number(&rows) : 0;
    return 0;
}

int store_newest_journal_row(struct store *store, int64_t *ret_seq)
{
    static const char newest[] = "SELECT max(seq) FROM journal";

    return read_seq(store, newest, ret_seq);
}

int store_opening_journal_row(struct store *store, int64_t *ret_seq)
{
    static const char opening[] =
        "SELECT seq FROM journal WHERE kind = 'store_opened' ORDER BY seq DESC LIMIT 1";

    return read_seq(store, opening, ret_seq);
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Without state where the volume's row is gone: history is trimmed. */
static const char after[] =
    "SELECT j.seq, j.at, j.volume_id, j.kind, j.sandbox_id, j.device, j.detail, e.pv, e.pod_uid,"
    " v.target_path, v.state, v.reason, v.state_since, " V_IS_STALLED ", s.pod_namespace,"
    " s.pod_name FROM journal j"
    " LEFT JOIN volumes v ON v.volume_id = j.volume_id"
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " LEFT JOIN sandboxes s ON s.sandbox_ref ="
    "  (SELECT max(x.sandbox_ref) FROM sandboxes x WHERE x.sandbox_id = j.sandbox_id)"
    " WHERE j.seq > ?1 ORDER BY j.seq LIMIT ?2";

/* In the order of the query's columns. */
static void take_row(struct sql_rows *rows, struct journal_row *row)
{
    row->seq = sql_take_number(rows);
    row->at = sql_take_number(rows);
    row->volume_id = sql_take_number(rows);
    row->kind = sql_borrow_text(rows);
    row->sandbox_id = sql_borrow_text(rows);
    row->device = sql_borrow_text(rows);
    row->detail = sql_borrow_text(rows);
    row->pv = sql_borrow_text(rows);
    row->pod_uid = sql_borrow_text(rows);
    row->target_path = sql_borrow_text(rows);
    row->state = sql_borrow_text(rows);
    row->reason = sql_borrow_text(rows);
    row->state_since = sql_take_number(rows);
    row->stalled = sql_take_number(rows);
    row->pod_namespace = sql_borrow_text(rows);
    row->pod_name = sql_borrow_text(rows);
}

int store_read_journal_lines(struct store *store, struct store_journal_lines *lines,
                             struct buffer *ret_text)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    struct journal_row row;
    int read = 0, r;

    if (!sqlite3_get_autocommit(store->connection.db))
        return STORE_RUNNING;
    r = sql_query(&store->connection, after, &rows, sql_number(lines->seq),
                  sql_number(lines->most));
    while (r == 0 && (r = sql_next(&rows)) == SQL_ROW) {
        take_row(&rows, &row);
        r = journal_text_append(ret_text, &row, lines->node, lines->line_bytes);
        if (r < 0)
            return STORE_NO_MEMORY;
        lines->seq = row.seq;
        read++;
    }
    return r < 0 ? r : read;
}
