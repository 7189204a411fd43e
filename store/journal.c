/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - history: a line for each change, and the bounds that keep history finite.
 *
 * Lines are written by the functions that change something, in the same transaction, so that the
 * journal and the tables never disagree. The detail's JSON leaves out members that are NULL, which
 * is how an unknown number or an empty reason is left out.
 *
 * Trimming removes what is older than keep_days or further back than max_rows, never what is live:
 * open resizes and mappings, live sandboxes, volumes that are not removed or that a live sandbox
 * still has, devices that anything points to. Children go before their parents; a parent that still
 * has children waits for the next time. The journal's newest line stays, so that its numbers are
 * never used twice.
 */
#include <inttypes.h>
#include <stdio.h>

#include "lib/json.h"
#include "store/journal.h"
#include "store/schema.h"
#include "store/store_internal.h"

enum {
    TRIM_ROWS = 500, /* per table and call: well below a millisecond each */
    COUNTED_ROWS = 1000 * 1000,
};

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
static const char *write_detail(struct buffer *buffer, const struct sql_value *members,
                                size_t count)
{
    buffer_clear(buffer);
    buffer_append(buffer, "{", 1);
    for (size_t i = 0; i + 1 < count; i += 2) {
        const struct sql_value *value = &members[i + 1];

        if (value->type == SQL_NULL)
            continue;
        json_append_name(buffer, members[i].text);
        if (value->type == SQL_TEXT)
            json_append_string(buffer, value->text);
        else
            buffer_append_format(buffer, "%" PRId64, value->number);
    }
    buffer_append(buffer, "}", 1);
    return buffer->length > 2 ? buffer_text(buffer) : NULL;
}

static int put_line(struct store *store, const char *kind, const struct journal_subject *subject,
                    const char *detail)
{
    const struct store_volume *volume = subject->volume;
    struct journal_subject of_volume;

    if (volume) {
        /* The sandbox is the open binding's; one that the row does not name is looked up. */
        bool is_here = volume->binding_id && volume->binding_sandbox_ref == volume->sandbox_ref;

        of_volume = (struct journal_subject){.volume_id = volume->volume_id,
                                             .sandbox_id = is_here ? volume->sandbox_id : NULL,
                                             .device = volume->device_name,
                                             .is_complete = is_here || !volume->binding_id};
        subject = &of_volume;
    }
    return STORE_RUN(store, subject->is_complete || !subject->volume_id ? insert_complete : insert,
                     store->now_ms, kind, sql_known(subject->volume_id), subject->sandbox_id,
                     subject->device, detail);
}

int journal_write(struct store *store, const char *kind, const struct journal_subject *subject,
                  const struct sql_value *members, size_t count)
{
    const char *detail = write_detail(&store->detail, members, count);

    if (buffer_error(&store->detail) < 0)
        return sql_failed(&store->connection, SQLITE_NOMEM);
    return put_line(store, kind, subject, detail);
}

int store_journal(struct store *store, const char *kind, int64_t volume_id, const char *sandbox_id,
                  const char *device, const char *detail)
{
    return put_line(store, kind,
                    ABOUT(.volume_id = volume_id, .sandbox_id = sandbox_id, .device = device),
                    detail);
}

/* clang-format off */
/* ?1 the oldest time kept, ?2 how many rows, ?3 how many to remove at most, ?4 of these because of
 * their age. */
#define TRIM(table, id, ended, and) \
    "DELETE FROM " table " WHERE " id " IN (SELECT " id " FROM " table " WHERE " ended " < ?1" and \
    " ORDER BY " ended " LIMIT ?4) OR " id " IN (SELECT " id " FROM " table \
    " WHERE " id " <= (SELECT max(" id ") FROM " table ") - ?2 AND " ended " IS NOT NULL" and \
    " LIMIT ?3)"

static const char trim_journal[] =
    "DELETE FROM journal WHERE seq < (SELECT max(seq) FROM journal) AND (seq IN (SELECT seq FROM"
    " (SELECT seq, at FROM journal ORDER BY seq LIMIT ?4) WHERE at < ?1)"
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

static const struct {
    const char *table, *trim;
} trimmed[TRIMMED_TABLES] = {{"journal", trim_journal},           {"cleanups", trim_cleanups},
                             {"resizes", trim_resizes},           {"mappings", trim_bindings},
                             {"drive_mounts", trim_drive_mounts}, {"sandboxes", trim_sandboxes},
                             {"volumes", trim_volumes},           {"devices", trim_devices}};

/* At most a tenth of each table goes in a day because of its age: a clock that is set ahead makes
 * all history look old, and somebody has time to see it. Within a boot the day is counted by the
 * clock that nobody sets. A restart forgets what is left of the day's tenth. */
static int begin_day(struct store *store)
{
    static const char same_day[] =
        "SELECT 1 FROM clock_spans WHERE span_id = (SELECT max(span_id) FROM clock_spans)"
        " AND CASE boot_id WHEN ?1 THEN ?3 - uptime_from ELSE abs(?2 - wall_from) END < ?4";
    static const char begin[] =
        "DELETE FROM clock_spans;"
        "INSERT INTO clock_spans (boot_id, counted_from, wall_from, uptime_from, counted_until)"
        " VALUES (?1, 0, ?2, ?3, 0)";
    char count[128];
    int r = 0;

    if (STORE_HAS(store, same_day, store->boot_id, store->now_ms, store->uptime_ms, MSEC_PER_DAY))
        return 0;
    STORE_RUN(store, begin, store->boot_id, store->now_ms, store->uptime_ms);
    for (size_t i = 0; r >= 0 && i < TRIMMED_TABLES; i++) {
        (void)snprintf(count, sizeof(count),
                       "SELECT (count(*) + 9) / 10 FROM (SELECT 1 FROM %s LIMIT %d)",
                       trimmed[i].table, COUNTED_ROWS);
        r = sql_pragma_number(&store->connection, count, &store->old_rows_left[i]);
    }
    return r < 0 ? r : STORE_RESULT(store);
}

int store_trim(struct store *store, bool by_age)
{
    bool more = false;
    int r = by_age ? begin_day(store) : 0;

    for (size_t i = 0; r >= 0 && i < TRIMMED_TABLES; i++) {
        int64_t *left = &store->old_rows_left[i];

        r = STORE_CHANGE(store, trimmed[i].trim, store->now_ms - store->keep_ms,
                         store_rows_kept(store), TRIM_ROWS, *left < TRIM_ROWS ? *left : TRIM_ROWS);
        if (r > 0)
            *left = *left > r ? *left - r : 0;
        /* The newest line is spared, which may be one of those that were picked. */
        more = more || r >= TRIM_ROWS - 1;
    }
    return r < 0 ? r : more ? STORE_TRIM_MORE : STORE_TRIMMED;
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
    " " IS_REPEATED ", r.from_bytes, r.to_bytes, NOT e.grows_file_system"
    " FROM journal j JOIN volumes v ON v.volume_id = j.volume_id"
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " LEFT JOIN sandboxes s ON s.sandbox_ref = (SELECT m.sandbox_ref FROM mappings m"
    "  WHERE m.volume_id = j.volume_id ORDER BY m.mapping_id DESC LIMIT 1)"
    " LEFT JOIN resizes r ON r.resize_id = (SELECT max(x.resize_id) FROM resizes x"
    "  WHERE x.volume_id = j.volume_id)"
    " WHERE j.seq > ?1 AND j.seq <= ?2 AND j.kind IN ('resize_finished', 'state_changed',"
    " 'guest_condition_changed', 'cleanup_removed') ORDER BY j.seq";
/* clang-format on */

int store_each_event_row(struct store *store, int64_t *seq, int64_t newest, unsigned most,
                         store_event_callback *callback, void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int64_t last = newest - *seq > most ? *seq + most : newest;
    struct store_event_row row;
    int r;

    if (!sqlite3_get_autocommit(store->connection.db))
        return STORE_RUNNING;
    r = STORE_QUERY(store, rows_after, &rows, *seq, last);
    while (r == 0 && (r = sql_next(&rows)) == SQL_ROW) {
        TAKE(&rows, row.seq, row.at, row.kind, row.to, row.message, row.cause, row.pv,
             row.claim_namespace, row.claim_name, row.pod_namespace, row.pod_name, row.pod_uid,
             row.target_path, row.is_current, row.is_stalled, row.is_repeated, row.from_bytes,
             row.to_bytes, row.is_raw);
        callback(userdata, &row);
        *seq = row.seq;
        r = 0;
    }
    if (r == SQL_END)
        *seq = last;
    return r;
}
