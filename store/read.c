/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - readers, and what they answer as JSON: the audit views and summaries.
 *
 * The daemon reads through its own connection and so sees its own pass; a separate reader opens the
 * file read-only and sees the last commit.
 *
 * A query over a view consists of the view's name, an interval of its order column and at most one
 * condition. Every part of the text is a constant from the tables below; values from outside are
 * always bound. These statements are prepared per request and not kept: requests are rare, and a
 * kept statement over a view costs more memory than the page cache it reads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/text.h"
#include "model/volume.h"
#include "store/schema.h"
#include "store/store_internal.h"

/* ---- readers ------------------------------------------------------------------------------- */

void store_reader_free(struct store_reader *reader)
{
    if (!reader)
        return;
    sql_close(&reader->own);
    free(reader);
}

static void reader_freep(struct store_reader **reader)
{
    store_reader_free(*reader);
}

int store_reader_open(const char *path, unsigned wait_msec, struct store_reader **ret_reader,
                      struct error *error)
{
    cleanup(reader_freep) struct store_reader *reader = calloc(1, sizeof(*reader));
    struct sql_connection *connection;
    int64_t application = 0, version = 0, minor = 0;
    int r;

    if (!reader)
        return error_set_errno(error, -ENOMEM, "%s", path);
    connection = reader->connection = &reader->own;
    r = sql_open(connection, path, SQLITE_OPEN_READONLY);
    if (r == 0)
        (void)sqlite3_busy_timeout(connection->db, (int)wait_msec);
    if (r == 0)
        r = sql_pragma_number(connection, "PRAGMA application_id", &application);
    if (r == 0)
        r = sql_pragma_number(connection, "PRAGMA user_version", &version);
    if (r == STORE_DAMAGED ||
        (r == 0 && (application != SCHEMA_APPLICATION_ID || version != STORE_SCHEMA_VERSION)))
        return error_set(error, -EINVAL, "%s is not a database of this version of crustd", path);
    if (r == 0)
        r = schema_read_minor(connection, &minor);
    if (r < 0)
        return error_set(error, r, "%s: %s", path, connection->error_text);
    /* The database lacks the columns that are read, and may hold secrets. */
    if (minor < SCHEMA_MINOR_VERSION)
        return error_set(error, -EINVAL,
                         "%s was written by an older crustd: start this one, which upgrades it",
                         path);
    *ret_reader = take_pointer(&reader);
    return 0;
}

struct store_reader *store_get_reader(struct store *store)
{
    return &store->reader;
}

/* ---- views --------------------------------------------------------------------------------- */

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

WORDS(store_view, enum store_view, views, STORE_VIEWS, STORE_VIEWS)

/* ---- rows ---------------------------------------------------------------------------------- */

/* The text was JSON when it was written; damage to the file since then must not break the answer.
 */
bool store_is_json(const char *text)
{
    cleanup(json_deletep) cJSON *value = NULL;

    return json_parse(text, strlen(text), JSON_LIMITS_HTTP, &value, NULL) == 0;
}

static int append_value(struct buffer *json, sqlite3_stmt *statement, int column)
{
    static const char *const json_names[] = {"options", "metadata", "detail", "evidence",
                                             "containers"};
    const unsigned names = array_length(json_names);
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
        if (name_table_find(json_names, sizeof(*json_names), names,
                            sqlite3_column_name(statement, column), names) < names &&
            store_is_json(text))
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
    if (query->not_resizable)
        buffer_append_text(text, " AND volume_id IN (SELECT v.volume_id FROM volumes v"
                                 " WHERE " V_IS_NOT_RESIZABLE ")");
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

static int check_query(const struct store_query *query, struct error *error)
{
    const struct view *view = &views[query->view];

    if ((query->id || query->after) && !view->id)
        return error_set(error, -EINVAL, "%s have no numbers", view->name);
    if (query->not_resizable && query->view != STORE_VIEW_VOLUMES)
        return error_set(error, -EINVAL, "%s are not resized", view->name);
    if (query->volume && query->view != STORE_VIEW_VOLUMES &&
        !((view->of_volumes || query->view == STORE_VIEW_SANDBOXES) &&
          read_number(query->volume) > 0))
        return error_set(error, -EINVAL, "%s can't be chosen by volume", view->name);
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int append_rows(struct buffer *json, struct sql_connection *connection, const char *text,
                       const struct store_query *query)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(connection->db, text, -1, &statement, NULL);
    int r = code == SQLITE_OK ? buffer_append_text(json, "[") : sql_failed(connection, code);

    if (r == 0 && query)
        bind(statement, query);
    for (bool first = true; r == 0 && (code = sqlite3_step(statement)) == SQLITE_ROW; first = false)
        r = append_row(json, statement, first);
    if (r == 0 && code != SQLITE_DONE)
        r = sql_failed(connection, code);
    (void)sqlite3_finalize(statement);
    return r < 0 ? r : buffer_append_text(json, "]");
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
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(4096);
    struct buffer_mark before = buffer_mark(ret_json);
    int r = check_query(query, error);

    if (r < 0)
        return r;
    r = build(query, &text);
    if (r == 0)
        r = append_rows(ret_json, reader->connection, buffer_text(&text), query);
    return finish(reader, ret_json, before, r, error);
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
    int r = sql_first_values(reader->connection, summary, &rows, NULL, 0);

    if (r > 0)
        r = buffer_append_text(ret_json, sql_borrow_text(&rows));
    return finish(reader, ret_json, before, r, error);
}

/* How many of the sandbox's volumes are such; a condition follows. */
#define BOUND                                                                                      \
    "(SELECT count(*) FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"                 \
    " JOIN entries e ON e.entry_id = v.entry_id"                                                   \
    " WHERE m.sandbox_ref = s.sandbox_ref AND m.until IS NULL AND "

int store_read_abilities(struct store_reader *reader, struct buffer *ret_json, struct error *error)
{
    static const char abilities[] =
        "SELECT sandbox_id, boot_id, runtime, hypervisor, vmm_pid, vmm_version, control_socket, "
        "orphaned, "
        "pod_namespace, pod_name,"
        " companion_ability, agent_ability, shim_ability, helper_ability,"
        " (SELECT count(*) FROM mappings m WHERE m.sandbox_ref = s.sandbox_ref"
        "  AND m.until IS NULL) AS volumes,"
        " " BOUND "e.layout <> 'none' AND m.list > 0) AS attached,"
        " " BOUND "e.layout = 'none') AS block_claims,"
        " " BOUND "e.grows_file_system = 0) AS raw_claims,"
        " (SELECT group_concat(DISTINCT hypervisor_reason) FROM mappings m"
        "  WHERE m.sandbox_ref = s.sandbox_ref AND m.until IS NULL) AS hypervisor_reasons,"
        " (SELECT group_concat(DISTINCT guest_reason) FROM mappings m"
        "  WHERE m.sandbox_ref = s.sandbox_ref AND m.until IS NULL"
        "  AND guest_reason <> 'unverified') AS guest_reasons,"
        " (SELECT group_concat(name, ', ') FROM (SELECT coalesce(e.pv, 'volume ' || v.volume_id)"
        "  AS name FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        "  LEFT JOIN entries e ON e.entry_id = v.entry_id WHERE m.sandbox_ref = "
        "s.sandbox_ref" AND_IN_VM " ORDER BY v.volume_id LIMIT 4)) AS volume_names,"
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
        "  AS not_resizable_names,"
        " (SELECT min(c.path) FROM sandbox_claims c WHERE c.sandbox_ref = s.sandbox_ref"
        "  AND (c.path GLOB '*/pods/*/etc-hosts' OR c.path GLOB '*/pods/*/containers/*'))"
        "  AS pod_path"
        " FROM sandboxes s WHERE gone_at IS NULL ORDER BY sandbox_ref";
    const struct buffer_mark before = buffer_mark(ret_json);

    return finish(reader, ret_json, before,
                  append_rows(ret_json, reader->connection, abilities, NULL), error);
}

/* ---- overview ------------------------------------------------------------------------------- */

static int finish_reading(struct store_reader *reader, int r, struct error *error)
{
    return r < 0 ? error_set_errno(error, r, "%s", reader->connection->error_text) : 0;
}

/* Counting 4,000 volumes is one walk over their table. */
static const struct {
    unsigned names; /* of each row, before its number */
    const char *text;
} groups[STORE_GROUPS] = {
    [STORE_GROUP_VOLUMES] =
        {3, "SELECT CASE WHEN EXISTS (SELECT 1 FROM entries o WHERE o.volume_id = v.volume_id"
            " AND o.gone = 0 AND o.layout <> e.layout) THEN 'both' ELSE e.layout END"
            " AS layout_shown, v.state, v.reason, count(*)"
            " FROM volumes v LEFT JOIN entries e ON e.entry_id = v.entry_id"
            " WHERE v.removed_at IS NULL GROUP BY layout_shown, v.state, v.reason"},
    [STORE_GROUP_STALLED] = {2, "SELECT v.state, v.reason, count(*) FROM volumes v"
                                " WHERE " V_IS_STALLED " GROUP BY v.state, v.reason"},
    [STORE_GROUP_NOT_RESIZABLE] = {1, "SELECT v.resizable_reason, count(*) FROM volumes v"
                                      " WHERE " V_IS_NOT_RESIZABLE " GROUP BY v.resizable_reason"},
    [STORE_GROUP_ABNORMAL] = {3, "SELECT v.state, v.reason, " V_IS_STALLED
                                 " AS stalled, count(*) FROM volumes v"
                                 " WHERE v.removed_at IS NULL AND " V_IS_ABNORMAL_IN_GUEST
                                 " GROUP BY v.state, v.reason, stalled"},
    [STORE_GROUP_CONDITIONS] =
        {1, "SELECT coalesce(g.condition, 'unknown') AS said, count(*)"
            " FROM mappings m INDEXED BY mappings_open LEFT JOIN guest_stats g"
            " ON g.mapping_id = m.mapping_id WHERE m.until IS NULL GROUP BY said"},
    [STORE_GROUP_STALE] = {1, "SELECT stale_reason, count(*) FROM entries WHERE gone = 0"
                              " AND stale_reason IS NOT NULL GROUP BY stale_reason"},
    [STORE_GROUP_SANDBOXES] = {2, "SELECT runtime, hypervisor, count(*) FROM sandboxes"
                                  " WHERE gone_at IS NULL GROUP BY runtime, hypervisor"},
    [STORE_GROUP_ORPHANS] =
        {3, "SELECT s.sandbox_id, s.vmm_pid, coalesce((SELECT group_concat(name, ', ') FROM"
            "  (SELECT coalesce(e.pv, 'volume ' || v.volume_id) AS name FROM mappings m"
            "   JOIN volumes v ON v.volume_id = m.volume_id"
            "   LEFT JOIN entries e ON e.entry_id = v.entry_id"
            "   WHERE m.sandbox_ref = s.sandbox_ref" AND_IN_VM " LIMIT 4)), ''), 1"
            " FROM sandboxes s INDEXED BY sandboxes_orphaned"
            " WHERE s.orphaned = 1 AND s.gone_at IS NULL LIMIT 64"},
    [STORE_GROUP_DRIVES] = {1, "SELECT state, count(*) FROM drive_mounts"
                               " WHERE ended_at IS NULL GROUP BY state"},
};

int store_each_group(struct store_reader *reader, enum store_group group,
                     store_group_callback *callback, void *userdata, struct error *error)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(reader->connection, groups[group].text, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        const char *name[STORE_GROUP_NAMES] = {"", "", ""};

        for (unsigned i = 0; i < groups[group].names; i++)
            name[i] = sql_borrow_text(&rows);
        r = callback(userdata, name, (uint64_t)sql_take_number(&rows));
    }
    return finish_reading(reader, r, error);
}

/* Not by the index of finished ones, which grows with history. */
int store_oldest_pending(struct store_reader *reader, int64_t *ret_ms, struct error *error)
{
    static const char find[] =
        "SELECT min(max(r.detected_at, coalesce(m.since, 0)))"
        " FROM resizes r INDEXED BY resizes_open"
        " JOIN volumes v ON v.volume_id = r.volume_id"
        " LEFT JOIN mappings m ON m.volume_id = r.volume_id AND m.until IS NULL"
        " WHERE r.finished_at IS NULL AND v.observed = 0"
        " AND v.state NOT IN ('unbound', 'detached', 'unmanaged')";

    *ret_ms = sql_number_values(reader->connection, find, NULL, 0);
    return finish_reading(reader, reader->connection->failure, error);
}

/* A PV that two pods of this node use is one device, and its guests see one file system. */
int store_list_usage(struct store_reader *reader, store_usage_line_callback *callback,
                     void *userdata, struct error *error)
{
    static const char list[] =
        "SELECT e.pv, min(" E_KIND "), min(" POD_NAMESPACE "), min(" E_CLAIM "),"
        " CASE WHEN min(s.pod_name) = max(s.pod_name) THEN min(s.pod_name) END,"
        " max(d.size_bytes), min(m.hypervisor_bytes), max(g.used_bytes) IS NOT NULL,"
        " max(g.used_bytes), max(g.available_bytes) FROM volumes v"
        " JOIN entries e ON e.entry_id = v.entry_id AND e.pv IS NOT NULL"
        " LEFT JOIN devices d ON d.device_id = v.device_id"
        " LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL"
        " LEFT JOIN guest_stats g ON g.mapping_id = m.mapping_id"
        " LEFT JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref"
        " WHERE v.removed_at IS NULL GROUP BY e.pv ORDER BY e.pv";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(reader->connection, list, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        struct store_usage_line line;

        TAKE(&rows, line.pv, line.kind, line.namespace, line.claim, line.pod, line.size_bytes,
             line.vm_bytes, line.has_usage, line.used_bytes, line.available_bytes);
        r = callback(userdata, &line);
    }
    return finish_reading(reader, r, error);
}
