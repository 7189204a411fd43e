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
                            "(status <> 'removed' OR removed_at IS NULL)", false},
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

/* ---- queries ------------------------------------------------------------------------------- */

static int build(const struct store_query *query, const char *condition, struct buffer *text)
{
    const struct view *view = &views[query->view];
    bool last = query->last > 0;

    buffer_append_format(text, "%sSELECT * FROM %s WHERE 1", last ? "SELECT * FROM (" : "",
                         view->table);
    if (view->id)
        buffer_append_format(text, " AND %s BETWEEN ?1 AND ?2", view->id);
    if (query->live && view->live)
        buffer_append_format(text, " AND %s", view->live);
    buffer_append_format(text, "%s ORDER BY %s%s", condition, view->order,
                         last ? " DESC LIMIT ?3)" : "");
    if (last)
        buffer_append_format(text, " ORDER BY %s", view->order);
    return buffer_error(text);
}

static bool is_number(const char *text)
{
    return text[0] && strspn(text, "0123456789") == strlen(text);
}

/* "#3" is an id and nothing else. */
static bool is_id(const char *text)
{
    return text[0] == '#' && is_number(text + 1);
}

static void bind(sqlite3_stmt *statement, const struct store_query *query)
{
    int64_t from = query->after < INT64_MAX ? query->after + 1 : INT64_MAX;

    /* Binding a parameter that the text lacks fails, which is ignored on purpose. */
    (void)sqlite3_bind_int64(statement, 1, query->id && query->id > from ? query->id : from);
    (void)sqlite3_bind_int64(statement, 2, query->id ? query->id : INT64_MAX);
    (void)sqlite3_bind_int64(statement, 3, query->last);
    if (query->volume)
        (void)sqlite3_bind_text(statement, 4, query->volume + is_id(query->volume), -1,
                                SQLITE_STATIC);
}

static int open_next(struct row_cursor *cursor)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(4096);
    int code, r = build(cursor->query, cursor->conditions[cursor->next], &text);

    if (r < 0)
        return r;
    code = sqlite3_prepare_v2(cursor->connection->db, buffer_text(&text), -1, &cursor->statement,
                              NULL);
    if (code != SQLITE_OK)
        return sql_failed(cursor->connection, code);
    cursor->next++;
    bind(cursor->statement, cursor->query);
    return 0;
}

/* ---- conditions ---------------------------------------------------------------------------- */

/* The names by which an operator may call a volume, in this order; the first that matches anything
 * wins, and live volumes come before removed ones. */
#define LIVE_NAMES                                                                                 \
    " AND removed_at IS NULL AND target_path = ?4", " AND removed_at IS NULL AND key = ?4",        \
        " AND removed_at IS NULL AND (pv = ?4 OR volume_handle = ?4)"
#define REMOVED_NAMES                                                                              \
    " AND removed_at IS NOT NULL AND target_path = ?4",                                            \
        " AND removed_at IS NOT NULL AND key = ?4",                                                \
        " AND removed_at IS NOT NULL AND (pv = ?4 OR volume_handle = ?4)"

static const char *const everything[] = {""};
static const char *const names_of_volume[] = {LIVE_NAMES, REMOVED_NAMES};
/* A PV may be called "3", too: then both volumes answer, and nobody takes one for the other. */
#define NUMBER_OR_NAME                                                                             \
    "(volume_id = CAST(?4 AS INTEGER) OR key = ?4 OR pv = ?4 OR volume_handle = ?4)"
static const char *const number_or_name_of_volume[] = {
    " AND removed_at IS NULL AND " NUMBER_OR_NAME,
    " AND removed_at IS NOT NULL AND " NUMBER_OR_NAME};
static const char *const of_volume[] = {" AND volume_id = CAST(?4 AS INTEGER)"};
static const char *const sandbox_of_volume[] = {
    " AND sandbox_id = (SELECT v.sandbox_id FROM audit_volumes"
    " v WHERE v.volume_id = CAST(?4 AS INTEGER))"};

#define CHOOSE(cursor, list)                                                                       \
    ((cursor)->conditions = (list), (cursor)->condition_count = array_length(list))

static void choose_conditions(struct row_cursor *cursor)
{
    const struct store_query *query = cursor->query;

    if (!query->volume)
        CHOOSE(cursor, everything);
    else if (query->view == STORE_VIEW_SANDBOXES)
        CHOOSE(cursor, sandbox_of_volume);
    else if (query->view != STORE_VIEW_VOLUMES)
        CHOOSE(cursor, of_volume);
    else if (is_number(query->volume))
        CHOOSE(cursor, number_or_name_of_volume);
    else if (is_id(query->volume))
        CHOOSE(cursor, of_volume);
    else
        CHOOSE(cursor, names_of_volume);
}

static int check_query(const struct store_query *query, struct error *error)
{
    const struct view *view = &views[query->view];

    if ((query->id || query->after) && !view->id)
        return error_set(error, -EINVAL, "%s have no numbers", view->name);
    if (query->volume && query->view != STORE_VIEW_VOLUMES &&
        !((view->of_volumes || query->view == STORE_VIEW_SANDBOXES) && is_number(query->volume)))
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
    choose_conditions(cursor);
    return 0;
}

void row_cursor_done(struct row_cursor *cursor)
{
    (void)sqlite3_finalize(cursor->statement);
    cursor->statement = NULL;
}

static bool is_at_end(const struct row_cursor *cursor)
{
    return !cursor->statement && (cursor->rows > 0 || cursor->next == cursor->condition_count);
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
        int r = cursor->statement ? 0 : open_next(cursor);

        if (r == 0)
            r = read_row(cursor, json);
        if (r < 0)
            return r;
        if (until_ns != UINT64_MAX && clock_boottime() >= until_ns)
            return is_at_end(cursor) ? ROW_CURSOR_END : ROW_CURSOR_MORE;
    }
    return ROW_CURSOR_END;
}
