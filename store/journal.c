/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - history: a line for each change, and the bounds that keep history finite.
 *
 * Lines are written by the functions that change something, in the same transaction, so that the
 * journal and the tables never disagree. The detail's JSON leaves out members that are NULL, which
 * is how an unknown number or an empty reason is left out.
 *
 * Trimming removes what is older than keep_days of counted time (store.c) or further back
 * than max_rows, never what is live: open resizes and mappings, live sandboxes, volumes that are
 * not removed or that a live sandbox still has, devices that anything points to. Children go before
 * their parents; a parent that still has children waits for the next time. The journal's newest
 * line stays, so that its numbers are never used twice.
 */
#include <inttypes.h>

#include "lib/json.h"
#include "store/internal.h"
#include "store/journal.h"
#include "store/schema.h"

enum { TRIM_ROWS = 500 }; /* per table and call: well below a millisecond each */

#define SANDBOX_OF_VOLUME                                                                          \
    "(SELECT s.sandbox_id FROM mappings m JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref"       \
    " JOIN volumes v ON v.volume_id = m.volume_id WHERE m.volume_id = ?3" AND_IN_VM ")"
#define DEVICE_OF_VOLUME                                                                           \
    "(SELECT d.name FROM volumes v JOIN devices d ON d.device_id = v.device_id"                    \
    " WHERE v.volume_id = ?3)"

#define INSERT "INSERT INTO journal (at, kind, volume_id, sandbox_id, device, detail) VALUES"

static const char insert[] = INSERT " (?1, ?2, ?3, coalesce(?4, " SANDBOX_OF_VOLUME
                                    "), coalesce(?5, " DEVICE_OF_VOLUME "), ?6)";
static const char insert_complete[] = INSERT " (?1, ?2, ?3, ?4, ?5, ?6)";

/* The members that are known, as a JSON object; NULL if none is. */
static const char *write_detail(struct buffer *buffer, const struct journal_member *members)
{
    buffer_clear(buffer);
    buffer_append(buffer, "{", 1);
    for (size_t i = 0; i < JOURNAL_MEMBERS; i++) {
        const struct sql_value *value = &members[i].value;

        if (!members[i].name || value->type == SQL_NULL)
            continue;
        json_append_name(buffer, members[i].name);
        if (value->type == SQL_TEXT)
            json_append_string(buffer, value->text);
        else
            buffer_append_format(buffer, "%" PRId64, value->number);
    }
    buffer_append(buffer, "}", 1);
    return buffer->length > 2 ? buffer_text(buffer) : NULL;
}

/* The sandbox is the open binding's; one that the row does not name is looked up. */
static struct journal_line complete(const struct journal_line *line)
{
    const struct store_volume *volume = line->volume;
    bool is_here = volume->binding_id && volume->binding_sandbox_ref == volume->sandbox_ref;
    struct journal_line of_volume = *line;

    of_volume.volume_id = volume->volume_id;
    of_volume.sandbox_id = is_here ? volume->sandbox_id : NULL;
    of_volume.device = volume->device_name;
    of_volume.is_complete = is_here || !volume->binding_id;
    return of_volume;
}

static int put_line(struct store *store, const struct journal_line *line, const char *detail)
{
    const char *put = line->is_complete || !line->volume_id ? insert_complete : insert;

    return sql_run(&store->connection, put, NULL, sql_number(store->now_ms), sql_text(line->kind),
                   sql_known((uint64_t)line->volume_id), sql_text(line->sandbox_id),
                   sql_text(line->device), sql_text(detail));
}

int journal_write(struct store *store, const struct journal_line *line)
{
    const char *detail = write_detail(&store->detail, line->detail);
    struct journal_line of_volume;

    if (buffer_error(&store->detail) < 0)
        return sql_failed(&store->connection, SQLITE_NOMEM);
    if (!line->volume)
        return put_line(store, line, detail);
    of_volume = complete(line);
    return put_line(store, &of_volume, detail);
}

int store_journal(struct store *store, const char *kind, int64_t volume_id, const char *sandbox_id,
                  const char *device, const char *detail)
{
    return put_line(
        store,
        &(struct journal_line){
            .kind = kind, .volume_id = volume_id, .sandbox_id = sandbox_id, .device = device},
        detail);
}

/* clang-format off */
/* Of what is too old one sweep takes a part: whatever makes all history look old, somebody has time
 * to see it. ?1 the oldest time kept, ?2 how many rows, ?3 how many to remove at most. */
#define SHARE(table) \
    "min(?3, (SELECT (count(*) + 15) / 16 FROM (SELECT 1 FROM " table " LIMIT 16 * ?3)))"
#define TRIM(table, id, ended, and) \
    "DELETE FROM " table " WHERE " id " IN (SELECT " id " FROM " table " WHERE " ended " < ?1" and \
    " ORDER BY " ended " LIMIT " SHARE(table) ") OR " id " IN (SELECT " id " FROM " table \
    " WHERE " id " <= (SELECT max(" id ") FROM " table ") - ?2 AND " ended " IS NOT NULL" and \
    " LIMIT ?3)"

static const char trim_journal[] =
    "DELETE FROM journal WHERE seq < (SELECT max(seq) FROM journal) AND (seq IN (SELECT seq FROM"
    " (SELECT seq, at FROM journal ORDER BY seq LIMIT " SHARE("journal") ") WHERE at < ?1)"
    " OR seq IN (SELECT seq FROM journal WHERE seq <= (SELECT max(seq) FROM journal) - ?2"
    "  ORDER BY seq LIMIT ?3))";
/* clang-format on */
static const char trim_cleanups[] =
    TRIM("cleanups", "cleanup_id", "at",
         " AND NOT EXISTS (SELECT 1 FROM trash t WHERE t.cleanup_id = cleanups.cleanup_id)");
static const char trim_resizes[] = TRIM("resizes", "resize_id", "finished_at", "");
static const char trim_bindings[] =
    TRIM("mappings", "mapping_id", "until",
         " AND NOT EXISTS (SELECT 1 FROM volumes v WHERE v.volume_id = mappings.volume_id"
         "  AND mappings.mapping_id = " V_UNSTAGED_MAPPING ")");
static const char trim_drive_mounts[] = TRIM("drive_mounts", "drive_ref", "ended_at", "");
static const char trim_sandboxes[] = TRIM(
    "sandboxes", "sandbox_ref", "gone_at",
    " AND NOT EXISTS (SELECT 1 FROM mappings m WHERE m.sandbox_ref = sandboxes.sandbox_ref)"
    " AND NOT EXISTS (SELECT 1 FROM drive_mounts d WHERE d.sandbox_ref = sandboxes.sandbox_ref)");
static const char trim_volumes[] =
    TRIM("volumes", "volume_id", "removed_at",
         " AND NOT EXISTS (SELECT 1 FROM mappings m WHERE m.volume_id = volumes.volume_id)"
         " AND NOT EXISTS (SELECT 1 FROM resizes r WHERE r.volume_id = volumes.volume_id)"
         " AND NOT EXISTS (SELECT 1 FROM trash t WHERE t.volume_id = volumes.volume_id)");
static const char trim_devices[] =
    TRIM("devices", "device_id", "last_changed",
         " AND NOT EXISTS (SELECT 1 FROM mappings m WHERE m.device_id = devices.device_id)"
         " AND NOT EXISTS (SELECT 1 FROM volumes v WHERE v.device_id = devices.device_id)"
         " AND NOT EXISTS (SELECT 1 FROM layers l WHERE l.layer_id = devices.device_id"
         " AND l.device_id <> l.layer_id)");

int store_trim(struct store *store, bool by_age)
{
    static const char *const steps[] = {trim_journal,  trim_cleanups,     trim_resizes,
                                        trim_bindings, trim_drive_mounts, trim_sandboxes,
                                        trim_volumes,  trim_devices};
    int64_t limit_ms = INT64_MIN;
    bool more = false;
    int r = by_age ? counted_time_find_limit(store, &limit_ms) : 0;

    if (r == 0)
        r = counted_time_keep(store);
    if (r < 0)
        return r;
    for (size_t i = 0; i < array_length(steps); i++) {
        int removed = 0;

        r = sql_run(&store->connection, steps[i], &removed, sql_number(limit_ms),
                    sql_number(store_rows_kept(store)), sql_number(TRIM_ROWS));
        if (r < 0)
            return r;
        /* The newest line is spared, which may be one of those that were picked. */
        more = more || removed >= TRIM_ROWS - 1;
    }
    return more ? STORE_TRIM_MORE : STORE_TRIMMED;
}

/* ---- event rows ----------------------------------------------------------------------------- */

/* A volume whose resize fails is tried again, and goes from one state to another and back. So a row
 * is compared with those of the same volume since its size or its sandbox last changed, within a
 * bound on the rows that are looked at.
 */

/* clang-format off */
#define DETAIL(name)                                                                               \
    "CASE WHEN json_valid(j.detail) THEN json_extract(j.detail, '$." name "') END"

#define EARLIER(name)                                                                              \
    name ".volume_id = j.volume_id AND " name ".seq < j.seq AND " name ".seq > j.seq - 10000"
#define BEGINNING                                                                                  \
    "coalesce((SELECT b.seq FROM journal b WHERE " EARLIER("b") " AND b.kind IN ('resize_opened'," \
    " 'resize_raised', 'resize_finished', 'mapping_opened') ORDER BY b.seq DESC LIMIT 1), 0)"
#define IS_REPEATED                                                                                \
    "CASE WHEN j.kind = 'state_changed' THEN EXISTS (SELECT 1 FROM journal p WHERE " EARLIER("p")  \
    " AND p.kind = 'state_changed' AND p.seq > " BEGINNING                                         \
    " AND json_valid(p.detail) AND json_extract(p.detail, '$.to') = " DETAIL("to") ") END"

static const char rows_after[] =
    "SELECT j.seq, j.at, j.kind, coalesce(" DETAIL("to") ", " DETAIL("state") "), " DETAIL("message") ", " DETAIL("reason") ","
    " e.pv, " E_CLAIM_NAMESPACE ", " E_CLAIM ", s.pod_namespace, s.pod_name, e.pod_uid,"
    " v.target_path, " DETAIL("to") " = v.state || '/' || v.reason, " V_IS_STALLED ","
    " " IS_REPEATED ", r.from_bytes, r.to_bytes"
    " FROM journal j JOIN volumes v ON v.volume_id = j.volume_id"
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " LEFT JOIN sandboxes s ON s.sandbox_ref = (SELECT m.sandbox_ref FROM mappings m"
    "  WHERE m.volume_id = j.volume_id ORDER BY m.mapping_id DESC LIMIT 1)"
    " LEFT JOIN resizes r ON r.resize_id = (SELECT max(x.resize_id) FROM resizes x"
    "  WHERE x.volume_id = j.volume_id)"
    " WHERE j.seq > ?1 AND j.seq <= ?2 AND j.kind IN ('resize_finished', 'state_changed',"
    " 'guest_condition_changed', 'cleanup_removed') ORDER BY j.seq";
/* clang-format on */

static void take_row(struct sql_rows *rows, struct store_event_row *row)
{
    row->seq = sql_take_number(rows);
    row->at = sql_take_number(rows);
    row->kind = sql_borrow_text(rows);
    row->to = sql_borrow_text(rows);
    row->message = sql_borrow_text(rows);
    row->cause = sql_borrow_text(rows);
    row->pv = sql_borrow_text(rows);
    row->claim_namespace = sql_borrow_text(rows);
    row->claim_name = sql_borrow_text(rows);
    row->pod_namespace = sql_borrow_text(rows);
    row->pod_name = sql_borrow_text(rows);
    row->pod_uid = sql_borrow_text(rows);
    row->target_path = sql_borrow_text(rows);
    row->is_current = sql_take_number(rows);
    row->is_stalled = sql_take_number(rows);
    row->is_repeated = sql_take_number(rows);
    row->from_bytes = sql_take_number(rows);
    row->to_bytes = sql_take_number(rows);
}

int store_each_event_row(struct store *store, int64_t *seq, int64_t newest, unsigned most,
                         store_event_callback *callback, void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int64_t last = newest - *seq > most ? *seq + most : newest;
    struct store_event_row row;
    int r;

    if (!sqlite3_get_autocommit(store->connection.db))
        return STORE_RUNNING;
    r = sql_query(&store->connection, rows_after, &rows, sql_number(*seq), sql_number(last));
    while (r == 0 && (r = sql_next(&rows)) == SQL_ROW) {
        take_row(&rows, &row);
        callback(userdata, &row);
        *seq = row.seq;
        r = 0;
    }
    if (r == SQL_END)
        *seq = last;
    return r;
}
