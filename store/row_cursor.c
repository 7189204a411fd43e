/* SPDX-License-Identifier: Apache-2.0 */
/* row_cursor.c - queries over the audit views.
 *
 * A query consists of the view's name, an interval of its order column and at most one condition.
 * Every part of the text is a constant from the tables below; values from outside are always bound.
 * These statements are prepared per request and not kept: requests are rare, and a kept statement
 * over a view costs more memory than the page cache it reads.
 */
#include "store/row_cursor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "lib/json.h"

struct view {
    const char *name;
    const char *table;
    const char *id;    /* the first column, if it is a number */
    const char *order; /* rows come in this order */
    const char *live;  /* condition for query.live; NULL: everything is */
    bool of_volumes;   /* has a volume_id */
};

static const struct view views[STORE_VIEWS] = {
    [STORE_VIEW_VOLUMES] = {"volumes", "audit_volumes", "volume_id", "volume_id",
                            "(status <> 'removed' OR reason = 'unstaged')", false},
    [STORE_VIEW_SANDBOXES] = {"sandboxes", "audit_sandboxes", NULL, "first_seen",
                              "status <> 'gone'", false},
    [STORE_VIEW_DEVICES] = {"devices", "audit_devices", NULL, "first_seen", NULL, false},
    [STORE_VIEW_LAYERS] = {"layers", "audit_layers", "volume_id", "volume_id, position", NULL,
                           true},
    [STORE_VIEW_MAPPINGS] = {"mappings", "audit_mappings", "volume_id", "since", "until IS NULL",
                             true},
    [STORE_VIEW_RESIZES] = {"resizes", "audit_resizes", "resize_id", "resize_id", NULL, true},
    [STORE_VIEW_CLEANUPS] = {"cleanups", "audit_cleanups", "cleanup_id", "cleanup_id", NULL, true},
    [STORE_VIEW_JOURNAL] = {"journal", "audit_journal", "seq", "seq", NULL, true},
    [STORE_VIEW_DRIVES] = {"drives", "audit_drives", NULL, "requested_at", "ended_at IS NULL",
                           false},
};

int store_view_from_name(const char *name, enum store_view *ret_view)
{
    for (size_t i = 0; i < STORE_VIEWS; i++)
        if (strcmp(name, views[i].name) == 0) {
            *ret_view = (enum store_view)i;
            return 0;
        }
    return -EINVAL;
}

const char *store_view_name(enum store_view view)
{
    return views[view].name;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static bool is_json_column(const char *name)
{
    static const char *const names[] = {"options", "metadata", "detail", "evidence", "containers"};

    for (size_t i = 0; i < array_length(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* The text was JSON when it was written; damage to the file since then must not break the answer.
 */
bool is_json_text(const char *text)
{
    cleanup(json_deletep) cJSON *value = NULL;

    return json_parse(text, strlen(text), JSON_LIMITS_HTTP, &value, NULL) == 0;
}

static int append_value(struct buffer *json, sqlite3_stmt *statement, int column)
{
    const char *text;

    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_NULL:
        return buffer_append_text(json, "null");
    case SQLITE_INTEGER:
        return buffer_append_format(json, "%" PRId64,
                                    (int64_t)sqlite3_column_int64(statement, column));
    default:
        text = (const char *)sqlite3_column_text(statement, column);
        if (!text)
            return buffer_fail(json, -ENOMEM);
        if (is_json_column(sqlite3_column_name(statement, column)) && is_json_text(text))
            return buffer_append_text(json, text);
        return json_append_string(json, text);
    }
}

int row_append(struct buffer *json, sqlite3_stmt *statement, bool first)
{
    buffer_append_text(json, first ? "{" : ",{");
    for (int i = 0; i < sqlite3_column_count(statement); i++) {
        json_append_name(json, sqlite3_column_name(statement, i));
        append_value(json, statement, i);
    }
    return buffer_append_text(json, "}");
}

/* ---- conditions ---------------------------------------------------------------------------- */

/* The number in "3" and "#3"; 0: there is none, and no row has it. */
static int64_t read_number(const char *volume)
{
    const char *digits = volume[0] == '#' ? volume + 1 : volume;

    return strspn(digits, "0123456789") == strlen(digits) ? strtoll(digits, NULL, 10) : 0;
}

/* ?4 is a name and ?5 its number. A PV may be called "3": then the volume of this name and the one
 * of this id are both answered, and the client has to choose. Removed volumes are left out where
 * one that is there has the name. */
#define HAS_NAME "(target_path = ?4 OR key = ?4 OR pv = ?4 OR volume_handle = ?4)"

static const char everything[] = "";
static const char by_name_or_number[] =
    " AND (" HAS_NAME " OR volume_id = ?5) AND (removed_at IS NULL) >="
    " (SELECT coalesce(max(removed_at IS NULL), 0) FROM audit_volumes WHERE " HAS_NAME ")";
static const char by_number[] = " AND volume_id = ?5";
static const char sandbox_by_number[] =
    " AND sandbox_id = (SELECT v.sandbox_id FROM audit_volumes v WHERE v.volume_id = ?5)";

static const char *choose_condition(const struct store_query *query)
{
    if (!query->volume)
        return everything;
    if (query->view == STORE_VIEW_SANDBOXES)
        return sandbox_by_number;
    return query->view == STORE_VIEW_VOLUMES && query->volume[0] != '#' ? by_name_or_number
                                                                        : by_number;
}

/* ---- queries ------------------------------------------------------------------------------- */

static int build(const struct store_query *query, struct buffer *text)
{
    const struct view *view = &views[query->view];
    bool last = query->last > 0;

    buffer_append_format(text, "%sSELECT * FROM %s WHERE 1", last ? "SELECT * FROM (" : "",
                         view->table);
    if (view->id)
        buffer_append_format(text, " AND %s BETWEEN ?1 AND ?2", view->id);
    if (query->live && view->live)
        buffer_append_format(text, " AND %s", view->live);
    buffer_append_format(text, "%s ORDER BY %s%s", choose_condition(query), view->order,
                         last ? " DESC LIMIT ?3)" : "");
    if (last)
        buffer_append_format(text, " ORDER BY %s", view->order);
    return buffer_error(text);
}

static void bind(sqlite3_stmt *statement, const struct store_query *query)
{
    int64_t from = query->after < INT64_MAX ? query->after + 1 : INT64_MAX;

    /* Binding a parameter that the text lacks fails, which is ignored on purpose. */
    (void)sqlite3_bind_int64(statement, 1, query->id && query->id > from ? query->id : from);
    (void)sqlite3_bind_int64(statement, 2, query->id ? query->id : INT64_MAX);
    (void)sqlite3_bind_int64(statement, 3, query->last);
    if (query->volume) {
        (void)sqlite3_bind_text(statement, 4, query->volume, -1, SQLITE_STATIC);
        (void)sqlite3_bind_int64(statement, 5, read_number(query->volume));
    }
}

static int open_statement(struct row_cursor *cursor)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(4096);
    int code, r = build(cursor->query, &text);

    if (r < 0)
        return r;
    code = sqlite3_prepare_v2(cursor->connection->db, buffer_text(&text), -1, &cursor->statement,
                              NULL);
    if (code != SQLITE_OK)
        return sql_failed(cursor->connection, code);
    cursor->opened = true;
    bind(cursor->statement, cursor->query);
    return 0;
}

static int check_query(const struct store_query *query, struct error *error)
{
    const struct view *view = &views[query->view];

    if ((query->id || query->after) && !view->id)
        return error_set(error, -EINVAL, "%s have no numbers", view->name);
    if (query->volume && query->view != STORE_VIEW_VOLUMES &&
        !((view->of_volumes || query->view == STORE_VIEW_SANDBOXES) &&
          read_number(query->volume) > 0))
        return error_set(error, -EINVAL, "%s can't be chosen by volume", view->name);
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

int row_cursor_init(struct row_cursor *cursor, struct sql_connection *connection,
                    const struct store_query *query, struct error *error)
{
    int r = check_query(query, error);

    if (r < 0)
        return r;
    *cursor = (struct row_cursor){.query = query, .connection = connection};
    return 0;
}

void row_cursor_done(struct row_cursor *cursor)
{
    (void)sqlite3_finalize(cursor->statement);
    cursor->statement = NULL;
}

static bool is_at_end(const struct row_cursor *cursor)
{
    return cursor->opened && !cursor->statement;
}

static int read_row(struct row_cursor *cursor, struct buffer *json)
{
    int code = sqlite3_step(cursor->statement);

    if (code == SQLITE_ROW)
        return row_append(json, cursor->statement, cursor->rows++ == 0);
    row_cursor_done(cursor);
    return code == SQLITE_DONE ? 0 : sql_failed(cursor->connection, code);
}

int row_cursor_read(struct row_cursor *cursor, uint64_t until_ns, struct buffer *json)
{
    while (!is_at_end(cursor)) {
        int r = cursor->statement ? 0 : open_statement(cursor);

        if (r == 0)
            r = read_row(cursor, json);
        if (r < 0)
            return r;
        if (until_ns != UINT64_MAX && clock_boottime() >= until_ns)
            return is_at_end(cursor) ? ROW_CURSOR_END : ROW_CURSOR_MORE;
    }
    return ROW_CURSOR_END;
}
