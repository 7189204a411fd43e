/* SPDX-License-Identifier: Apache-2.0 */
/* bindings.c - which sandbox has a volume, and how far a resize got there.
 *
 * A binding (table mappings, view audit_mappings) is one stay of a volume in one sandbox; at most
 * one per volume is open. It carries what was learned during that stay: the sizes that the
 * hypervisor and the guest are known to have, and why the last call failed. Closing it ends all of
 * that: the next sandbox is asked anew. The result of an act is written here and, for auditors,
 * into the open resize.
 */
#include <string.h>

#include "store/store_internal.h"

/* ---- attempts, which count anew for each binding --------------------------------------------- */

int store_set_attempts(struct store *store, int64_t volume_id, uint32_t attempts,
                       uint64_t next_attempt_ns, int64_t next_attempt_ms)
{
    static const char set[] = "UPDATE volumes" SET_IF_OTHER(
        "attempts, next_attempt_ns, next_attempt_ms", "?2, ?3, ?4") " AND volume_id = ?1";

    return STORE_RUN(store, set, volume_id, attempts, sql_known(next_attempt_ns),
                     sql_known(next_attempt_ns ? (uint64_t)next_attempt_ms : 0));
}

/* ---- opening and closing ------------------------------------------------------------------- */

int store_close_binding(struct store *store, int64_t volume_id)
{
    if (!STORE_HAS(store, "SELECT 1 FROM mappings WHERE volume_id = ?1 AND until IS NULL",
                   volume_id))
        return STORE_RESULT(store);
    /* The journal's line comes first: it takes the sandbox from the binding while that is open. */
    JOURNAL(store, "mapping_closed", ABOUT(.volume_id = volume_id));
    STORE_RUN(store, "UPDATE mappings SET until = ?2 WHERE volume_id = ?1 AND until IS NULL",
              volume_id, store->now_ms);
    return store_set_attempts(store, volume_id, 0, 0, 0);
}

int store_open_binding(struct store *store, const struct store_binding *binding)
{
    /* A person who put the directory back did so for this sandbox. */
    static const char open[] =
        "UPDATE entries SET restored = NULL WHERE volume_id = ?1 AND restored IS NOT NULL;"
        "INSERT INTO mappings (volume_id, sandbox_ref, device_id, drive_id, guest_path, source,"
        " first_bytes, largest_bytes, guest_synced_bytes, record, since)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9, ?10);"
        "UPDATE resizes SET sandbox_id = (SELECT sandbox_id FROM sandboxes WHERE sandbox_ref = ?2)"
        " WHERE volume_id = ?1 AND finished_at IS NULL AND sandbox_id IS NULL";

    store_close_binding(store, binding->volume_id);
    STORE_RUN(store, open, binding->volume_id, binding->sandbox_ref, sql_known(binding->device_id),
              binding->drive_id, binding->guest_path, binding->source,
              sql_known(binding->device_bytes), sql_known(binding->guest_synced_bytes),
              binding->record, store->now_ms);
    store_set_attempts(store, binding->volume_id, 0, 0, 0);
    return JOURNAL(store, "mapping_opened", ABOUT(.volume_id = binding->volume_id), "source",
                   binding->source, "drive_id", binding->drive_id, "guest_path",
                   binding->guest_path);
}

bool store_is_binding_open(struct store *store, int64_t binding_id)
{
    return STORE_HAS(store, "SELECT 1 FROM mappings WHERE mapping_id = ?1 AND until IS NULL",
                     binding_id);
}

int store_describe_binding(struct store *store, int64_t volume_id, const char *drive_id,
                           const char *guest_path, const char *source)
{
    static const char describe[] =
        "UPDATE mappings" SET_IF_OTHER("drive_id, guest_path, source",
                                       "coalesce(?2, drive_id), coalesce(?3, guest_path), "
                                       "coalesce(?4, source)") " AND volume_id = ?1 AND until IS "
                                                               "NULL";

    if (STORE_CHANGE(store, describe, volume_id, drive_id, guest_path, source) <= 0)
        return STORE_RESULT(store);
    return JOURNAL(store, "mapping_described", ABOUT(.volume_id = volume_id), "source", source,
                   "drive_id", drive_id, "guest_path", guest_path);
}

int store_note_size(struct store *store, int64_t volume_id, uint64_t device_bytes)
{
    static const char note[] = "UPDATE mappings SET largest_bytes = ?2, undone = 0"
                               " WHERE volume_id = ?1 AND until IS NULL"
                               " AND coalesce(largest_bytes, 0) < ?2";

    return STORE_RUN(store, note, volume_id, device_bytes);
}

/* ---- the VMM's list ------------------------------------------------------------------------ */

int store_renew_record(struct store *store, int64_t volume_id, uint64_t record)
{
    static const char renew[] = "UPDATE mappings SET record = ?2, list = NULL,"
                                " hypervisor_reason = NULL, obstacle = NULL"
                                " WHERE volume_id = ?1 AND until IS NULL";

    STORE_RUN(store, renew, volume_id, record);
    return store_set_attempts(store, volume_id, 0, 0, 0);
}

#define WANT_LIST                                                                                  \
    "UPDATE mappings SET list = CASE WHEN list > 0 THEN 2 END"                                     \
    " WHERE until IS NULL AND list IS NOT NULL AND list <> 2"

int store_want_list(struct store *store, int64_t volume_id)
{
    static const char of_all[] = WANT_LIST, of_one[] = WANT_LIST " AND volume_id = ?1";

    return STORE_RUN(store, volume_id ? of_one : of_all, volume_id);
}

int store_want_lists_in_turn(struct store *store, unsigned turn, unsigned turns,
                             int64_t resized_since_ms)
{
    static const char want[] =
        "UPDATE mappings SET list = 2 WHERE until IS NULL AND list = 1 AND (volume_id % ?2 = ?1"
        " OR volume_id IN (SELECT volume_id FROM resizes WHERE finished_at >= ?3))";

    return STORE_RUN(store, want, turn, turns, resized_since_ms);
}

/* list_error stays until the list has the drive. An answer that belongs to older records is
 * ignored. The size in a VMM that has lost the drive is no longer known; a resize goes on counting
 * from the last one. */
static int put_list(struct store *store, const struct store_hypervisor_result *result)
{
    static const char has[] = "UPDATE mappings SET list = 1, list_error = NULL,"
                              " obstacle = coalesce(?3, obstacle)"
                              " WHERE volume_id = ?1 AND until IS NULL AND record IS ?2"
                              " AND (list, obstacle) IS NOT (1, coalesce(?3, obstacle))";
    static const char lacks[] =
        "UPDATE mappings SET list = CASE WHEN list < 0 THEN max(list - 1, -1000) ELSE -1 END,"
        " list_error = ?3,"
        " first_bytes = coalesce(hypervisor_bytes, first_bytes),"
        " hypervisor_bytes = NULL, obstacle = NULL, drive_id = ?4, guest_path = ?5"
        " WHERE volume_id = ?1 AND until IS NULL AND record IS ?2";
    static const char other[] = "UPDATE mappings SET list_error = ?2"
                                " WHERE volume_id = ?1 AND until IS NULL AND list_error IS NOT ?2";
    struct sql_value record = sql_number((int64_t)result->record);

    if (result->list == STORE_LIST_HAS)
        return STORE_RUN(store, has, result->volume_id, record,
                         result->obstacle_known ? reason_name(result->obstacle) : NULL);
    if (result->list == STORE_LIST_LACKS)
        return STORE_RUN(store, lacks, result->volume_id, record, result->error,
                         result->recorded_drive, result->recorded_guest_path);
    return result->reason == REASON_IDENTITY_MISMATCH
               ? STORE_RUN(store, other, result->volume_id, result->error)
               : 0;
}

/* ---- results of acts ----------------------------------------------------------------------- */

#define GUEST_FAILED                                                                               \
    "EXISTS (SELECT 1 FROM mappings m WHERE m.volume_id = ?1 AND m.until IS NULL"                  \
    " AND m.guest_reason IS NOT NULL)"

/* Updates the open resize. told_bytes, synced_bytes: the size that the hypervisor, the guest now
 * has; 0: it was not told. A VMM's success does not clear the guest's error. Whether a resize is
 * open and the answer changed it. */
static bool follow_in_resize(struct store *store, int64_t volume_id, const char *error,
                             uint64_t told_bytes, uint64_t synced_bytes)
{
    static const char follow[] =
        "UPDATE resizes SET error = CASE WHEN ?2 IS NULL AND ?4 IS NULL AND " GUEST_FAILED
        " THEN error ELSE ?2 END,"
        " hypervisor_at = CASE WHEN ?3 >= to_bytes THEN ?5 ELSE hypervisor_at END,"
        " guest_at = CASE WHEN ?4 >= to_bytes THEN ?5 ELSE guest_at END"
        " WHERE volume_id = ?1 AND finished_at IS NULL AND (coalesce(?3, ?4)"
        "  OR (error IS NOT ?2 AND NOT (?2 IS NULL AND " GUEST_FAILED ")))";

    return STORE_CHANGE(store, follow, volume_id, error, sql_known(told_bytes),
                        sql_known(synced_bytes), store->now_ms) > 0;
}

/* A path replaces an address, and a new one of either kind an old one. */
#define NEW_GUEST_PATH                                                                             \
    "CASE WHEN guest_path LIKE '/%' AND ?5 NOT LIKE '/%' THEN guest_path"                          \
    " ELSE coalesce(?5, guest_path) END"

#define HYPERVISOR_ERROR "CASE WHEN ?2 IS NOT NULL THEN ?6 END"

/* An answer is journaled if it changes something or reports a failure. */
int store_put_hypervisor_result(struct store *store, const struct store_hypervisor_result *result)
{
    static const char put[] =
        "UPDATE mappings SET hypervisor_reason = ?2, hypervisor_error = " HYPERVISOR_ERROR ","
        " source = CASE WHEN drive_id IS NULL AND ?3 IS NOT NULL AND source <> 'api'"
        "  THEN 'hypervisor' ELSE source END,"
        " drive_id = coalesce(?3, drive_id), hypervisor_bytes = coalesce(?4, hypervisor_bytes),"
        " undone = undone + ?7, guest_path = " NEW_GUEST_PATH
        " WHERE volume_id = ?1 AND until IS NULL"
        " AND (hypervisor_reason, hypervisor_error, drive_id, hypervisor_bytes, guest_path)"
        " IS NOT (?2, " HYPERVISOR_ERROR ", coalesce(?3, drive_id),"
        "  coalesce(?4, hypervisor_bytes), " NEW_GUEST_PATH ")";
    bool changed = STORE_CHANGE(store, put, result->volume_id, sql_reason(result->reason),
                                result->drive_id, sql_known(result->bytes), result->guest_path,
                                result->error, result->undone) > 0;

    put_list(store, result);
    changed |= follow_in_resize(store, result->volume_id, result->error,
                                result->told ? result->bytes : 0, 0);
    if (!changed && !result->told && result->reason == REASON_NONE)
        return STORE_RESULT(store);
    return JOURNAL(store, "hypervisor_answered",
                   ABOUT(.volume_id = result->volume_id, .sandbox_id = result->sandbox_id,
                         .device = result->device),
                   "bytes", sql_known(result->bytes), "reason", sql_reason(result->reason), "error",
                   result->error);
}

int store_put_guest_result(struct store *store, const struct store_guest_result *result)
{
    static const char put[] = "UPDATE mappings" SET_IF_OTHER(
        "guest_reason, guest_synced_bytes, guest_bytes, guest_proven",
        "?2, coalesce(?3, guest_synced_bytes),"
        " coalesce(?4, guest_bytes), ?3 IS NOT NULL") " AND volume_id = ?1 AND until IS NULL";
    /* The guest's answer about this file system holds for the next binding, too. */
    static const char note_filled[] =
        "UPDATE volumes SET filled_bytes = ?2, filled_device_id = (SELECT device_id FROM mappings"
        "  WHERE volume_id = ?1 AND until IS NULL) WHERE volume_id = ?1";
    bool changed =
        STORE_CHANGE(store, put, result->volume_id, sql_reason(result->reason),
                     sql_known(result->synced_bytes), sql_known(result->guest_bytes)) > 0;

    if (result->synced_bytes && result->guest_bytes)
        STORE_RUN(store, note_filled, result->volume_id, result->synced_bytes);
    changed |= follow_in_resize(store, result->volume_id, result->error, 0, result->synced_bytes);
    if (!changed && result->reason == REASON_NONE)
        return STORE_RESULT(store);
    return JOURNAL(store, "guest_answered",
                   ABOUT(.volume_id = result->volume_id, .sandbox_id = result->sandbox_id,
                         .device = result->device),
                   "bytes", sql_known(result->guest_bytes), "reason", sql_reason(result->reason),
                   "error", result->error);
}

/* ---- guest stats ---------------------------------------------------------------------------- */

/* Usage and condition of file systems, as guests report them.
 *
 * One row per binding, because one guest's answer says nothing about the next guest. The rows are
 * small and in a table of their own: usage changes all the time, and a poll of thousands of volumes
 * then dirties few pages.
 */

enum { FAILURES_COUNTED = 8 };

int store_put_guest_stats(struct store *store, int64_t volume_id,
                          const struct store_guest_stats *stats, bool *ret_changed)
{
    /* The guest speaks of the volume: the binding is still open, and the VM is not known to lack
     * the volume's device. */
    static const char find[] =
        "SELECT g.condition, g.read_at FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        " LEFT JOIN guest_stats g ON g.mapping_id = m.mapping_id"
        " WHERE m.mapping_id = ?1 AND m.until IS NULL"
        " AND v.state <> 'detached' AND v.reason <> 'bypassed'";
    static const char put[] =
        "INSERT INTO guest_stats (mapping_id, used_bytes, available_bytes, condition, message,"
        " read_at, failures) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)"
        " ON CONFLICT (mapping_id) DO UPDATE SET used_bytes = ?2, available_bytes = ?3,"
        " condition = ?4, message = ?5, read_at = ?6, failures = 0";
    static const char set_total[] = "UPDATE mappings SET guest_bytes = ?2 WHERE mapping_id = ?1"
                                    " AND guest_bytes IS NOT ?2";
    cleanup(sql_end) struct sql_rows rows = {0};
    const char *condition = stats->abnormal ? "abnormal" : "normal";
    const int64_t read_ms = store->now_ms - stats->age_ms;
    char old_condition[16];
    int64_t old_ms;
    bool is_open = STORE_FIRST(store, find, &rows, stats->binding_id) > 0;

    TAKE(&rows, old_condition, old_ms);
    *ret_changed = false;
    /* A poll and a resize are asked on connections of their own: what was counted before the growth
     * can arrive after its result. A moment in the future is of a clock that was set back since. */
    if (!is_open || (old_ms <= store->now_ms && read_ms < old_ms))
        return STORE_RESULT(store);
    STORE_RUN(store, put, stats->binding_id,
              stats->has_bytes ? sql_number((int64_t)stats->used) : sql_text(NULL),
              stats->has_bytes ? sql_number((int64_t)stats->available) : sql_text(NULL), condition,
              stats->message, read_ms);
    if (stats->has_bytes && stats->total)
        STORE_RUN(store, set_total, stats->binding_id, stats->total);
    *ret_changed = old_condition[0] ? strcmp(old_condition, condition) != 0 : stats->abnormal;
    if (!*ret_changed)
        return STORE_RESULT(store);
    return JOURNAL(store, "guest_condition_changed", ABOUT(.volume_id = volume_id), "from",
                   old_condition, "to", condition, "message", stats->message);
}

int store_note_guest_silent(struct store *store, int64_t volume_id)
{
    static const char note[] =
        "INSERT INTO guest_stats (mapping_id, failures)"
        " SELECT mapping_id, 1 FROM mappings WHERE volume_id = ?1 AND until IS NULL"
        " ON CONFLICT (mapping_id) DO UPDATE SET failures = failures + 1 WHERE failures < ?2";

    return STORE_RUN(store, note, volume_id, FAILURES_COUNTED);
}

int store_each_guest(struct store *store, store_guest_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT m.volume_id, m.mapping_id, g.failures FROM mappings m INDEXED BY mappings_open"
        " LEFT JOIN guest_stats g ON g.mapping_id = m.mapping_id WHERE m.until IS NULL";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, text, &rows);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        int64_t volume_id = sql_take_number(&rows), binding_id = sql_take_number(&rows);

        r = callback(userdata, volume_id, binding_id, (uint32_t)sql_take_number(&rows));
    }
    return r;
}
