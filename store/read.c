/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - rows of the audit views, written out as JSON.
 *
 * A query consists of the view's name, an interval of its order column and at most one condition.
 * Every part of the text is a constant from the table below; values from outside are always bound.
 * These statements are prepared per request and not kept: requests are rare, and a kept statement
 * over a view costs more memory than the page cache it reads.
 *
 * The daemon reads through its own connection and so sees its own pass; a separate reader opens the
 * file read-only and sees the last commit.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "store/internal.h"
#include "store/schema.h"

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
                            "status <> 'removed'", false},
    [STORE_VIEW_SANDBOXES] = {"sandboxes", "audit_sandboxes", NULL, "first_seen",
                              "status = 'alive'", false},
    [STORE_VIEW_DEVICES] = {"devices", "audit_devices", NULL, "first_seen", NULL, false},
    [STORE_VIEW_LAYERS] = {"layers", "audit_layers", "volume_id", "volume_id, position", NULL,
                           true},
    [STORE_VIEW_MAPPINGS] = {"mappings", "audit_mappings", "volume_id", "since", "until IS NULL",
                             true},
    [STORE_VIEW_RESIZES] = {"resizes", "audit_resizes", "resize_id", "resize_id", NULL, true},
    [STORE_VIEW_CLEANUPS] = {"cleanups", "audit_cleanups", "cleanup_id", "cleanup_id", NULL, true},
    [STORE_VIEW_JOURNAL] = {"journal", "audit_journal", "seq", "seq", NULL, true},
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

/* ---- readers ------------------------------------------------------------------------------- */

static int open_readonly(struct store_reader *reader, const char *path, struct error *error)
{
    struct sql_connection *connection = &reader->own;
    int64_t application = 0, version = 0, minor = 0;
    int r = sql_open(connection, path, SQLITE_OPEN_READONLY);

    if (r == 0)
        r = sql_pragma_number(connection, "PRAGMA application_id", &application);
    if (r == 0)
        r = sql_pragma_number(connection, "PRAGMA user_version", &version);
    if (r < 0 && r != STORE_DAMAGED)
        return error_set(error, r, "%s: %s", path, connection->error_text);
    if (r == STORE_DAMAGED || application != SCHEMA_APPLICATION_ID ||
        version != STORE_SCHEMA_VERSION)
        return error_set(error, -EINVAL, "%s is not a database of this version of crustd", path);
    r = schema_read_minor(connection, &minor);
    if (r < 0)
        return error_set(error, r, "%s: %s", path, connection->error_text);
    /* The database lacks the columns that are read, and may hold secrets. */
    if (minor < SCHEMA_MINOR_VERSION)
        return error_set(error, -EINVAL,
                         "%s was written by an older crustd: start this one, which upgrades it",
                         path);
    return 0;
}

int store_reader_open(const char *path, struct store_reader **ret_reader, struct error *error)
{
    struct store_reader *reader = calloc(1, sizeof(*reader));
    int r;

    if (!reader)
        return error_set_errno(error, -ENOMEM, "%s", path);
    reader->connection = &reader->own;
    r = open_readonly(reader, path, error);
    if (r < 0) {
        store_reader_free(reader);
        return r;
    }
    (void)sqlite3_busy_timeout(reader->own.db, 1000);
    *ret_reader = reader;
    return 0;
}

void store_reader_free(struct store_reader *reader)
{
    if (!reader)
        return;
    sql_close(&reader->own);
    free(reader);
}

struct store_reader *store_get_reader(struct store *store)
{
    return &store->reader;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static bool is_json_column(const char *name)
{
    static const char *const names[] = {"options", "metadata", "detail", "evidence"};

    for (size_t i = 0; i < array_length(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* The text was JSON when it was written; damage to the file since then must not break the answer.
 */
static bool is_json(const char *text)
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
        if (is_json_column(sqlite3_column_name(statement, column)) && is_json(text))
            return buffer_append_text(json, text);
        return json_append_string(json, text);
    }
}

static int append_row(struct buffer *json, sqlite3_stmt *statement, bool first)
{
    buffer_append_text(json, first ? "{" : ",{");
    for (int i = 0; i < sqlite3_column_count(statement); i++) {
        json_append_name(json, sqlite3_column_name(statement, i));
        append_value(json, statement, i);
    }
    return buffer_append_text(json, "}");
}

/* ---- queries ------------------------------------------------------------------------------- */

struct selection {
    const char *condition; /* " AND …" or "" */
    const char *text;      /* bound to ?4 */
};

static int build(const struct view *view, const struct store_query *query,
                 const struct selection *selection, struct buffer *text)
{
    bool last = query->last > 0;

    buffer_append_format(text, "%sSELECT * FROM %s WHERE 1", last ? "SELECT * FROM (" : "",
                         view->table);
    if (view->id)
        buffer_append_format(text, " AND %s BETWEEN ?1 AND ?2", view->id);
    if (query->live && view->live)
        buffer_append_format(text, " AND %s", view->live);
    buffer_append_format(text, "%s ORDER BY %s%s", selection->condition, view->order,
                         last ? " DESC LIMIT ?3)" : "");
    if (last)
        buffer_append_format(text, " ORDER BY %s", view->order);
    return buffer_error(text);
}

static void bind(sqlite3_stmt *statement, const struct store_query *query,
                 const struct selection *selection)
{
    int64_t from = query->after < INT64_MAX ? query->after + 1 : INT64_MAX;

    /* Binding a parameter that the text lacks fails, which is ignored on purpose. */
    (void)sqlite3_bind_int64(statement, 1, query->id && query->id > from ? query->id : from);
    (void)sqlite3_bind_int64(statement, 2, query->id ? query->id : INT64_MAX);
    (void)sqlite3_bind_int64(statement, 3, query->last);
    if (selection->text)
        (void)sqlite3_bind_text(statement, 4, selection->text, -1, SQLITE_STATIC);
}

static int append_rows(struct sql_connection *connection, sqlite3_stmt *statement,
                       struct buffer *json, unsigned *ret_rows)
{
    unsigned rows = 0;
    int code, r = 0;

    while (r == 0 && (code = sqlite3_step(statement)) == SQLITE_ROW)
        r = append_row(json, statement, rows++ == 0);
    if (r == 0 && code != SQLITE_DONE)
        r = sql_failed(connection, code);
    *ret_rows = rows;
    return r;
}

static int read_selection(struct store_reader *reader, const struct store_query *query,
                          const struct selection *selection, struct buffer *json,
                          unsigned *ret_rows)
{
    struct sql_connection *connection = reader->connection;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(4096);
    sqlite3_stmt *statement = NULL;
    int code, r = build(&views[query->view], query, selection, &text);

    if (r < 0)
        return r;
    code = sqlite3_prepare_v2(connection->db, buffer_text(&text), -1, &statement, NULL);
    if (code != SQLITE_OK)
        return sql_failed(connection, code);
    bind(statement, query, selection);
    r = append_rows(connection, statement, json, ret_rows);
    (void)sqlite3_finalize(statement);
    return r;
}

static bool is_number(const char *text)
{
    return text[0] && strspn(text, "0123456789") == strlen(text);
}

/* The names by which an operator may call a volume, in this order; the first that matches anything
 * wins, and live volumes come before removed ones. */
static int read_volume(struct store_reader *reader, const struct store_query *query,
                       struct buffer *json, unsigned *ret_rows)
{
    static const char *const conditions[] = {
        " AND removed_at IS NULL AND volume_id = CAST(?4 AS INTEGER)",
        " AND removed_at IS NULL AND target_path = ?4",
        " AND removed_at IS NULL AND key = ?4",
        " AND removed_at IS NULL AND (pv = ?4 OR volume_handle = ?4)",
        " AND removed_at IS NOT NULL AND volume_id = CAST(?4 AS INTEGER)",
        " AND removed_at IS NOT NULL AND target_path = ?4",
        " AND removed_at IS NOT NULL AND key = ?4",
        " AND removed_at IS NOT NULL AND (pv = ?4 OR volume_handle = ?4)",
    };
    bool by_id = is_number(query->volume);
    int r = 0;

    *ret_rows = 0;
    for (size_t i = 0; r == 0 && *ret_rows == 0 && i < array_length(conditions); i++) {
        struct selection selection = {conditions[i], query->volume};

        if (by_id || i % 4 != 0)
            r = read_selection(reader, query, &selection, json, ret_rows);
    }
    return r;
}

static int read_of_volume(struct store_reader *reader, const struct store_query *query,
                          struct buffer *json, unsigned *ret_rows)
{
    const struct selection of_volume = {" AND volume_id = CAST(?4 AS INTEGER)", query->volume};
    const struct selection its_sandbox = {
        " AND sandbox_id = (SELECT v.sandbox_id FROM audit_volumes"
        " v WHERE v.volume_id = CAST(?4 AS INTEGER))",
        query->volume};

    if (query->view == STORE_VIEW_VOLUMES)
        return read_volume(reader, query, json, ret_rows);
    if (query->view == STORE_VIEW_SANDBOXES)
        return read_selection(reader, query, &its_sandbox, json, ret_rows);
    return read_selection(reader, query, &of_volume, json, ret_rows);
}

static int read_all(struct store_reader *reader, const struct store_query *query,
                    struct buffer *json)
{
    static const struct selection everything = {"", NULL};
    unsigned rows;
    int r = buffer_append_text(json, "[");

    if (r == 0)
        r = query->volume ? read_of_volume(reader, query, json, &rows)
                          : read_selection(reader, query, &everything, json, &rows);
    return r < 0 ? r : buffer_append_text(json, "]");
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

/* Takes back a row that did not fit as a whole. */
static int finish(struct store_reader *reader, struct buffer *json, struct buffer_mark before,
                  int r, struct error *error)
{
    if (r == 0)
        return 0;
    buffer_rewind(json, before);
    if (r == BUFFER_FULL)
        return error_set(error, r, "the answer is too large; ask for fewer rows");
    return error_set_errno(error, r, "%s", reader->connection->error_text);
}

int store_read_json(struct store_reader *reader, const struct store_query *query,
                    struct buffer *ret_json, struct error *error)
{
    struct buffer_mark before = buffer_mark(ret_json);
    int r = check_query(query, error);

    return r < 0 ? r : finish(reader, ret_json, before, read_all(reader, query, ret_json), error);
}

int store_read_summary(struct store_reader *reader, struct buffer *ret_json, struct error *error)
{
    static const char summary[] =
        "SELECT json_object("
        "'volumes', (SELECT count(*) FROM volumes WHERE removed_at IS NULL),"
        "'by_state', (SELECT json_group_object(state, rows) FROM (SELECT state, count(*) AS rows"
        "  FROM volumes WHERE removed_at IS NULL GROUP BY state)),"
        "'invalid', (SELECT count(*) FROM volumes WHERE status = 'invalid'),"
        "'blocked', (SELECT count(*) FROM volumes WHERE removed_at IS NULL"
        "  AND state = 'blocked'),"
        "'stalled', (SELECT count(*) FROM volumes v WHERE " V_IS_STALLED "),"
        "'waiting', (SELECT count(*) FROM volumes WHERE next_attempt_ns IS NOT NULL),"
        "'sandboxes_alive', (SELECT count(*) FROM sandboxes WHERE gone_at IS NULL),"
        "'open_mappings', (SELECT count(*) FROM mappings WHERE until IS NULL),"
        "'open_resizes', (SELECT count(*) FROM resizes WHERE finished_at IS NULL),"
        "'looks_stale', (SELECT count(*) FROM entries WHERE gone = 0 AND stale_reason IS NOT NULL),"
        "'in_trash', (SELECT count(*) FROM trash),"
        "'journal_seq', (SELECT max(seq) FROM journal))";
    struct buffer_mark before = buffer_mark(ret_json);
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(reader->connection, summary, &rows, NULL, 0);

    if (r == 0)
        r = sql_next(&rows);
    if (r > 0)
        r = buffer_append_text(ret_json, sql_borrow_text(&rows));
    return finish(reader, ret_json, before, r, error);
}

static int append_array(struct sql_connection *connection, const char *text, struct buffer *json)
{
    sqlite3_stmt *statement = NULL;
    unsigned rows;
    int code = sqlite3_prepare_v2(connection->db, text, -1, &statement, NULL);
    int r = code == SQLITE_OK ? buffer_append_text(json, "[") : sql_failed(connection, code);

    if (r == 0)
        r = append_rows(connection, statement, json, &rows);
    (void)sqlite3_finalize(statement);
    return r < 0 ? r : buffer_append_text(json, "]");
}

int store_read_abilities(struct store_reader *reader, struct buffer *ret_json, struct error *error)
{
    static const char abilities[] =
        "SELECT sandbox_id, boot_id, runtime, hypervisor, vmm_pid, vmm_version, control_socket, "
        "pod_namespace, pod_name,"
        " companion_ability, agent_ability, shim_ability, helper_ability,"
        " (SELECT count(*) FROM mappings m WHERE m.sandbox_ref = s.sandbox_ref"
        "  AND m.until IS NULL) AS volumes,"
        " (SELECT group_concat(DISTINCT hypervisor_reason) FROM mappings m"
        "  WHERE m.sandbox_ref = s.sandbox_ref AND m.until IS NULL) AS hypervisor_reasons,"
        " (SELECT group_concat(DISTINCT guest_reason) FROM mappings m"
        "  WHERE m.sandbox_ref = s.sandbox_ref AND m.until IS NULL"
        "  AND guest_reason <> 'unverified') AS guest_reasons,"
        " (SELECT group_concat(name, ', ') FROM (SELECT coalesce(e.pv, 'volume ' || v.volume_id)"
        "  AS name FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        "  LEFT JOIN entries e ON e.entry_id = v.entry_id WHERE m.sandbox_ref = s.sandbox_ref"
        "  AND m.until IS NULL ORDER BY v.volume_id LIMIT 4)) AS volume_names,"
        " (SELECT count(*) FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        "  WHERE m.sandbox_ref = s.sandbox_ref AND m.until IS NULL AND " V_IS_NOT_RESIZABLE ")"
        "  AS not_resizable,"
        " (SELECT count(*) FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        "  WHERE m.sandbox_ref = s.sandbox_ref AND m.until IS NULL AND v.resizable = 'unknown')"
        "  AS resizable_unknown,"
        " (SELECT group_concat(name, ', ') FROM (SELECT coalesce(e.pv, 'volume ' || v.volume_id)"
        "  || ' (' || v.resizable_reason || ')' AS name FROM mappings m"
        "  JOIN volumes v ON v.volume_id = m.volume_id"
        "  LEFT JOIN entries e ON e.entry_id = v.entry_id WHERE m.sandbox_ref = s.sandbox_ref"
        "  AND m.until IS NULL AND " V_IS_NOT_RESIZABLE " ORDER BY v.volume_id LIMIT 4))"
        "  AS not_resizable_names"
        " FROM sandboxes s WHERE gone_at IS NULL ORDER BY sandbox_ref";
    const struct buffer_mark before = buffer_mark(ret_json);

    return finish(reader, ret_json, before, append_array(reader->connection, abilities, ret_json),
                  error);
}
