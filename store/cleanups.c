/* SPDX-License-Identifier: Apache-2.0 */
/* cleanups.c - stale metadata, and the trash.
 *
 * A row of `cleanups` is history and is written once, except while it is `intended`: no view shows
 * it before it is decided. Work that is left to do is in `trash`, and only there. The redacted
 * mountInfo.json of a row is composed of the entry's columns, which were written without secrets.
 *
 * The last judgement of an entry is kept with the entry, so that an unchanged reason writes
 * nothing.
 */
#include "store/cleanups.h"

#include <stdio.h>
#include <string.h>

#include "lib/text.h"
#include "store/store_internal.h"

/* ---- what looks stale ---------------------------------------------------------------------- */

int store_each_entry_id(struct store *store, int64_t volume_id,
                        int (*callback)(void *userdata, int64_t entry_id), void *userdata)
{
    static const char all[] = "SELECT entry_id FROM entries WHERE gone = 0 AND layout <> 'none'"
                              " AND (?1 = 0 OR volume_id = ?1)";

    return STORE_EACH_NUMBER(store, all, callback, userdata, volume_id);
}

int store_get_suspect(struct store *store, int64_t entry_id, struct store_suspect *ret_suspect)
{
    static const char find[] =
        "SELECT e.volume_id, e.layout, e.key, v.target_path, e.device, e.volume_type,"
        " e.mount_info_sha256, e.problem IS NOT NULL, e.directory_device, e.directory_inode,"
        " (SELECT count(*) FROM entry_sandboxes n WHERE n.entry_id = e.entry_id),"
        " EXISTS (SELECT 1 FROM mappings m WHERE m.volume_id = v.volume_id AND m.until IS NULL)"
        " OR EXISTS (SELECT 1 FROM sandbox_claims c WHERE c.path = v.target_path)"
        " OR EXISTS (SELECT 1 FROM entries o JOIN entry_sandboxes n ON n.entry_id = o.entry_id"
        "  JOIN sandboxes s ON s.sandbox_id = n.sandbox_id AND s.gone_at IS NULL"
        "  WHERE o.volume_id = v.volume_id AND o.gone = 0),"
        " e.stale_reason, e.stale_fingerprint, e.stale_since_ns, e.restored, e.stale_held"
        " FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
        " WHERE e.entry_id = ?1 AND e.gone = 0";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, entry_id);

    if (r <= 0)
        return r < 0 ? r : STORE_NOT_FOUND;
    memset(ret_suspect, 0, sizeof(*ret_suspect));
    ret_suspect->entry_id = entry_id;
    ret_suspect->volume_id = sql_take_number(&rows);
    ret_suspect->layout = layout_from_name(sql_borrow_text(&rows));
    TAKE(&rows, ret_suspect->key, ret_suspect->target_path, ret_suspect->device_path,
         ret_suspect->volume_type, ret_suspect->mount_info_sha256, ret_suspect->invalid,
         ret_suspect->directory_device, ret_suspect->directory_inode, ret_suspect->named_sandboxes,
         ret_suspect->live);
    ret_suspect->stale_reason = stale_reason_from_name(sql_borrow_text(&rows));
    TAKE(&rows, ret_suspect->fingerprint, ret_suspect->since_ns, ret_suspect->restored,
         ret_suspect->held);
    return STORE_FOUND;
}

#define LAST_OF_ID                                                                                 \
    " LEFT JOIN sandboxes s ON s.sandbox_ref = (SELECT max(l.sandbox_ref) FROM sandboxes l"        \
    "  WHERE l.sandbox_id = u.sandbox_id AND l.boot_id = ?2)"
#define USER                                                                                       \
    "u.sandbox_id, s.sandbox_ref IS NOT NULL AND s.gone_at IS NULL, s.exit_seen, s.vmm_pid,"       \
    " s.vmm_start_ns"

int store_each_user(struct store *store, int64_t volume_id, int64_t entry_id,
                    int (*callback)(void *userdata, const struct store_user *user), void *userdata)
{
    static const char of_volume[] =
        "SELECT " USER ", NULL, 0 FROM ("
        " SELECT n.sandbox_id FROM entries e JOIN entry_sandboxes n ON n.entry_id = e.entry_id"
        "  WHERE e.volume_id = ?1 AND e.gone = 0"
        " UNION SELECT b.sandbox_id FROM mappings m JOIN sandboxes b"
        "  ON b.sandbox_ref = m.sandbox_ref WHERE m.volume_id = ?1 AND b.boot_id = ?2) "
        "u" LAST_OF_ID;
    static const char of_entry[] = "SELECT " USER ", u.stale_since_ns, u.restored"
                                   " FROM entry_sandboxes u" LAST_OF_ID " WHERE u.entry_id = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, entry_id ? of_entry : of_volume, &rows,
                        entry_id ? entry_id : volume_id, store->boot_id);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        char sandbox_id[STORE_SANDBOX_ID_BYTES];
        struct store_user user = {.sandbox_id = sandbox_id};

        TAKE(&rows, sandbox_id, user.alive, user.exit_seen, user.vmm_pid, user.vmm_start_ns,
             user.stale_since_ns, user.restored);
        r = callback(userdata, &user);
    }
    return r;
}

int store_note_exit(struct store *store, const char *sandbox_id, pid_t vmm_pid)
{
    static const char note[] = "UPDATE sandboxes SET exit_seen = 1 WHERE sandbox_id = ?1"
                               " AND vmm_pid = ?2 AND gone_at IS NULL AND exit_seen = 0";

    return STORE_RUN(store, note, sandbox_id, vmm_pid);
}

int store_count_volumes(struct store *store, uint64_t *ret_count)
{
    *ret_count = (uint64_t)STORE_NUMBER(store, "SELECT live_volumes FROM meta");
    return STORE_RESULT(store);
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* NULL for none. */
static struct sql_value sql_stale_reason(enum stale_reason reason)
{
    return sql_text(reason == STALE_REASON_NONE ? NULL : stale_reason_name(reason));
}

/* The line about a row; its kind is cleanup_ and the decision. */
static int journal_row(struct store *store, int64_t cleanup_id, const char *decision)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    char kind[32], key[STORE_KEY_BYTES], reason[STORE_NAME_BYTES];
    int64_t volume_id;

    if (STORE_FIRST(store, "SELECT volume_id, key, reason FROM cleanups WHERE cleanup_id = ?1",
                    &rows, cleanup_id) <= 0)
        return STORE_RESULT(store);
    TAKE(&rows, volume_id, key, reason);
    (void)snprintf(kind, sizeof(kind), "cleanup_%s", decision);
    count_cleanup(store, decision);
    return JOURNAL(store, kind, ABOUT(.volume_id = volume_id), "cleanup_id", cleanup_id, "key", key,
                   "reason", reason);
}

/* A row about the entry, and its line in the journal. Its number. */
static int64_t add_row(struct store *store, int64_t entry_id, const char *decision,
                       enum stale_reason reason, const char *evidence)
{
    static const char copy[] =
        "INSERT INTO cleanups (volume_id, key, target_path, decision, reason, evidence, mount_info,"
        " mount_info_sha256, at)"
        " SELECT e.volume_id, e.key, v.target_path, ?2, ?3, ?4,"
        " CASE WHEN e.device IS NOT NULL THEN json_patch('{}', json_object('volume-type',"
        "  e.volume_type, 'device', e.device, 'fstype', e.fs_type, 'metadata', json(e.metadata),"
        "  'options', json(e.options))) END, e.mount_info_sha256, ?5"
        " FROM entries e JOIN volumes v ON v.volume_id = e.volume_id WHERE e.entry_id = ?1";
    int64_t cleanup_id;

    STORE_RUN(store, copy, entry_id, decision, sql_stale_reason(reason), evidence, store->now_ms);
    cleanup_id = sqlite3_last_insert_rowid(store->connection.db);
    journal_row(store, cleanup_id, decision);
    return cleanup_id;
}

int store_note_stale(struct store *store, int64_t entry_id, const struct store_stale *stale)
{
    static const char note[] =
        "UPDATE entries" SET_IF_OTHER("stale_reason, stale_fingerprint, stale_since_ns, stale_held",
                                      "?2, ?3, ?4, ?5") " AND entry_id = ?1";
    static const char changed[] = "SELECT 1 FROM entries WHERE entry_id = ?1"
                                  " AND gone = 0 AND ?2 IS NOT NULL AND stale_reason IS NOT ?2";
    struct sql_value reason = sql_stale_reason(stale->reason);

    if (STORE_HAS(store, changed, entry_id, reason))
        add_row(store, entry_id, "kept", stale->reason, stale->evidence);
    return STORE_RUN(store, note, entry_id, reason, stale->fingerprint, sql_known(stale->since_ns),
                     stale->held);
}

int store_note_stale_file(struct store *store, int64_t entry_id, const char *file,
                          const struct store_stale *stale)
{
    static const char note[] = "UPDATE entry_sandboxes SET stale_since_ns = ?3 WHERE entry_id = ?1"
                               " AND sandbox_id = ?2 AND stale_since_ns IS NOT ?3";
    static const char newest[] =
        "SELECT 1 FROM entries e JOIN cleanups c ON c.cleanup_id = (SELECT max(l.cleanup_id)"
        "  FROM cleanups l WHERE l.volume_id = e.volume_id AND l.key = e.key"
        "  AND json_extract(l.evidence, '$.file') = ?2)"
        " WHERE e.entry_id = ?1 AND c.decision = 'kept' AND c.reason = ?3";

    STORE_RUN(store, note, entry_id, file, sql_known(stale->since_ns));
    if (stale->reason != STALE_REASON_NONE &&
        !STORE_HAS(store, newest, entry_id, file, sql_stale_reason(stale->reason)))
        add_row(store, entry_id, "kept", stale->reason, stale->evidence);
    return STORE_RESULT(store);
}

/* ---- the trash ----------------------------------------------------------------------------- */

static const char *const step_names[] = {
    [STORE_TRASH_INTENDED] = "intended", [STORE_TRASH_MOVED] = "moved",
    [STORE_TRASH_STORED] = "kept",       [STORE_TRASH_RESTORING] = "restoring",
    [STORE_TRASH_DELETING] = "deleting",
};

int store_intend_cleanup(struct store *store, int64_t entry_id,
                         const struct store_cleanup_intent *intent, int64_t *ret_cleanup_id)
{
    static const char add[] =
        "INSERT INTO trash (cleanup_id, volume_id, layout, key, file, directory, name, step,"
        " fingerprint, directory_device, directory_inode, directory_born_ns, since_ns)"
        " SELECT ?1, volume_id, layout, key, ?3, ?4, printf('%d-%d', ?6, ?1), 'intended', ?5,"
        " directory_device, directory_inode, directory_born_ns, ?7"
        " FROM entries WHERE entry_id = ?2";
    int64_t cleanup_id = add_row(store, entry_id, "intended", intent->reason, intent->evidence);

    STORE_RUN(store, add, cleanup_id, entry_id, intent->file, intent->directory,
              intent->fingerprint, store->now_ms, intent->now_ns);
    *ret_cleanup_id = cleanup_id;
    return STORE_RESULT(store);
}

int store_oldest_trash(struct store *store, uint64_t *ret_since_ns)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(
        store, "SELECT since_ns FROM trash WHERE step = 'kept' ORDER BY since_ns LIMIT 1", &rows);

    *ret_since_ns = r > 0 ? (uint64_t)sql_take_number(&rows) : UINT64_MAX;
    return STORE_RESULT(store);
}

int store_each_trash(struct store *store, int64_t kept_before_ns,
                     int (*callback)(void *userdata, int64_t cleanup_id), void *userdata)
{
    static const char all[] = "SELECT cleanup_id FROM trash WHERE step <> 'kept' OR since_ns <= ?1";

    return STORE_EACH_NUMBER(store, all, callback, userdata, kept_before_ns);
}

int store_get_trash(struct store *store, int64_t cleanup_id, struct store_trash *ret_trash)
{
    static const char find[] =
        "SELECT volume_id, layout, key, file, directory, name, step, fingerprint, since_ns"
        " FROM trash WHERE cleanup_id = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, cleanup_id);

    if (r <= 0)
        return r < 0 ? r : STORE_NOT_FOUND;
    memset(ret_trash, 0, sizeof(*ret_trash));
    ret_trash->cleanup_id = cleanup_id;
    ret_trash->volume_id = sql_take_number(&rows);
    ret_trash->layout = layout_from_name(sql_borrow_text(&rows));
    TAKE(&rows, ret_trash->key, ret_trash->file, ret_trash->directory, ret_trash->name);
    ret_trash->step = (enum store_trash_step)name_table_find(
        step_names, sizeof(*step_names), array_length(step_names), sql_borrow_text(&rows),
        STORE_TRASH_STORED);
    TAKE(&rows, ret_trash->fingerprint, ret_trash->since_ns);
    return STORE_FOUND;
}

int store_set_trash_step(struct store *store, int64_t cleanup_id, enum store_trash_step step,
                         uint64_t now_ns)
{
    static const char set[] = "UPDATE trash SET step = ?2, since_ns = ?3 WHERE cleanup_id = ?1"
                              " AND step <> ?2";

    return STORE_RUN(store, set, cleanup_id, step_names[step], now_ns);
}

/* No directory of the volume is being moved any more: a quarantined volume becomes removed. */
static int end_quarantine(struct store *store, int64_t cleanup_id)
{
    static const char end[] =
        "DELETE FROM trash WHERE cleanup_id = ?1;"
        "UPDATE volumes SET status = 'removed', last_changed = ?2 WHERE status = 'quarantined'"
        " AND volume_id = (SELECT volume_id FROM cleanups WHERE cleanup_id = ?1)"
        " AND NOT EXISTS (SELECT 1 FROM trash t WHERE t.volume_id = volumes.volume_id)";

    return STORE_RUN(store, end, cleanup_id, store->now_ms);
}

int store_finish_cleanup(struct store *store, int64_t cleanup_id, enum cleanup_decision decision,
                         enum stale_reason reason, uint64_t now_ns)
{
    static const char decide[] =
        "UPDATE cleanups SET decision = ?2, reason = coalesce(?3, reason), at = ?4"
        " WHERE cleanup_id = ?1 AND decision = 'intended';"
        "UPDATE entries SET stale_since_ns = NULL FROM trash t WHERE t.cleanup_id = ?1"
        " AND entries.key = t.key AND entries.layout = t.layout AND entries.gone = 0";

    STORE_RUN(store, decide, cleanup_id, cleanup_decision_name(decision), sql_stale_reason(reason),
              store->now_ms);
    journal_row(store, cleanup_id, cleanup_decision_name(decision));
    return decision == CLEANUP_REMOVED
               ? store_set_trash_step(store, cleanup_id, STORE_TRASH_STORED, now_ns)
               : end_quarantine(store, cleanup_id);
}

int store_drop_cleanup(struct store *store, int64_t cleanup_id)
{
    journal_row(store, cleanup_id, "dropped");
    end_quarantine(store, cleanup_id);
    return STORE_RUN(store, "DELETE FROM cleanups WHERE cleanup_id = ?1 AND decision = 'intended'",
                     cleanup_id);
}

int store_record_restore(struct store *store, int64_t cleanup_id, enum stale_reason reason)
{
    static const char copy[] =
        "INSERT INTO cleanups (volume_id, key, target_path, decision, reason, evidence, mount_info,"
        " mount_info_sha256, at) SELECT volume_id, key, target_path, 'restored', ?2,"
        " json_object('cleanup_id', cleanup_id), mount_info, mount_info_sha256, ?3"
        " FROM cleanups WHERE cleanup_id = ?1";
    static const char flag[] =
        "UPDATE entries SET restored = t.fingerprint, stale_reason = NULL, stale_since_ns = NULL,"
        " stale_held = 0"
        " FROM trash t WHERE t.cleanup_id = ?1 AND t.file IS NULL AND entries.key = t.key"
        " AND entries.layout = t.layout AND (entries.gone = 0 OR entries.volume_id = t.volume_id);"
        "UPDATE entry_sandboxes SET restored = 1, stale_since_ns = NULL"
        " WHERE (entry_id, sandbox_id)"
        " IN (SELECT e.entry_id, t.file FROM trash t JOIN entries e ON e.key = t.key"
        "  AND e.layout = t.layout AND e.gone = 0 WHERE t.cleanup_id = ?1)";

    STORE_RUN(store, copy, cleanup_id, sql_stale_reason(reason), store->now_ms);
    journal_row(store, sqlite3_last_insert_rowid(store->connection.db), "restored");
    STORE_RUN(store, flag, cleanup_id);
    return end_quarantine(store, cleanup_id);
}

int store_forget_trash(struct store *store, int64_t cleanup_id)
{
    journal_row(store, cleanup_id, "expired");
    return end_quarantine(store, cleanup_id);
}

int store_get_cleanup(struct store *store, int64_t cleanup_id,
                      char ret_decision[static STORE_NAME_BYTES])
{
    int r = STORE_FIND_TEXT(store, "SELECT decision FROM cleanups WHERE cleanup_id = ?1",
                            ret_decision, STORE_NAME_BYTES, cleanup_id);

    return r < 0 ? r : r > 0 ? STORE_FOUND : STORE_NOT_FOUND;
}
