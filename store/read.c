/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - readers, and what they answer as JSON: the audit views (row_cursor.c) and summaries.
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
#include "store/row_cursor.h"
#include "store/schema.h"

/* ---- readers ------------------------------------------------------------------------------- */

static int open_readonly(struct store_reader *reader, const char *path, unsigned wait_msec,
                         struct error *error)
{
    struct sql_connection *connection = &reader->own;
    int64_t application = 0, version = 0, minor = 0;
    int r = sql_open(connection, path, SQLITE_OPEN_READONLY);

    if (r == 0)
        (void)sqlite3_busy_timeout(connection->db, (int)wait_msec);
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

int store_reader_open(const char *path, unsigned wait_msec, struct store_reader **ret_reader,
                      struct error *error)
{
    struct store_reader *reader = calloc(1, sizeof(*reader));
    int r;

    if (!reader)
        return error_set_errno(error, -ENOMEM, "%s", path);
    reader->connection = &reader->own;
    r = open_readonly(reader, path, wait_msec, error);
    if (r < 0) {
        store_reader_free(reader);
        return r;
    }
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

/* ---- answers ------------------------------------------------------------------------------- */

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
    cleanup(row_cursor_done) struct row_cursor cursor = {0};
    int r = row_cursor_init(&cursor, reader->connection, query, error);

    if (r < 0)
        return r;
    r = buffer_append_text(ret_json, "[");
    if (r == 0)
        r = row_cursor_read(&cursor, UINT64_MAX, ret_json);
    if (r == 0)
        r = buffer_append_text(ret_json, "]");
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
    int code = sqlite3_prepare_v2(connection->db, text, -1, &statement, NULL);
    int r = code == SQLITE_OK ? buffer_append_text(json, "[") : sql_failed(connection, code);

    for (bool first = true; r == 0 && (code = sqlite3_step(statement)) == SQLITE_ROW; first = false)
        r = row_append(json, statement, first);
    if (r == 0 && code != SQLITE_DONE)
        r = sql_failed(connection, code);
    (void)sqlite3_finalize(statement);
    return r < 0 ? r : buffer_append_text(json, "]");
}

int store_read_abilities(struct store_reader *reader, struct buffer *ret_json, struct error *error)
{
    static const char abilities[] =
        "SELECT sandbox_id, boot_id, runtime, hypervisor, vmm_pid, vmm_version, control_socket, "
        "orphaned, "
        "pod_namespace, pod_name,"
        " companion_ability, agent_ability, shim_ability, helper_ability,"
        " (SELECT count(*) FROM mappings m WHERE m.sandbox_ref = s.sandbox_ref"
        "  AND m.until IS NULL) AS volumes,"
        " (SELECT count(*) FROM mappings m WHERE m.sandbox_ref = s.sandbox_ref"
        "  AND m.until IS NULL AND m.list > 0) AS attached,"
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
        "  AS not_resizable_names,"
        " (SELECT min(c.path) FROM sandbox_claims c WHERE c.sandbox_ref = s.sandbox_ref"
        "  AND (c.path GLOB '*/pods/*/etc-hosts' OR c.path GLOB '*/pods/*/containers/*'))"
        "  AS pod_path"
        " FROM sandboxes s WHERE gone_at IS NULL ORDER BY sandbox_ref";
    const struct buffer_mark before = buffer_mark(ret_json);

    return finish(reader, ret_json, before, append_array(reader->connection, abilities, ret_json),
                  error);
}
