/* SPDX-License-Identifier: Apache-2.0 */
/* volume_state.c - the decision about a volume, in the published words, and when it is tried again.
 * An unfinished resize follows its volume's state.
 */
#include <stdio.h>
#include <string.h>

#include "store/schema.h"
#include "store/store_internal.h"

/* ---- state --------------------------------------------------------------------------------- */

static void follow_state(struct store *store, const struct store_volume *volume,
                         enum volume_state state, enum volume_reason reason, bool finish)
{
    static const char follow[] = "UPDATE resizes SET state = ?2, reason = ?3, finished_at = ?4"
                                 " WHERE volume_id = ?1 AND finished_at IS NULL"
                                 " AND (?4 IS NOT NULL OR (state, reason) IS NOT (?2, ?3))";

    if (STORE_CHANGE(store, follow, volume->volume_id, state_name(state), reason_name(reason),
                     finish ? sql_number(store->now_ms) : sql_known(0)) <= 0)
        return;
    count_resize(store, volume->volume_id, state, reason, finish);
    if (finish)
        JOURNAL(store, "resize_finished", ABOUT(.volume = volume), "state", state_name(state));
}

int store_set_state(struct store *store, struct store_volume *volume, enum volume_state state,
                    enum volume_reason reason, bool *ret_changed)
{
    static const char set[] =
        "UPDATE volumes SET state = ?2, reason = ?3, state_since = ?4 WHERE volume_id = ?1";
    char before[2 * STORE_NAME_BYTES], after[2 * STORE_NAME_BYTES];
    bool changed = volume->state != state || volume->reason != reason || volume->has_unknown_words;
    bool finish =
        volume->status == STORE_REMOVED || state == STATE_IN_SYNC || state == STATE_UNMANAGED;

    if (changed) {
        STORE_RUN(store, set, volume->volume_id, state_name(state), reason_name(reason),
                  store->now_ms);
        (void)snprintf(before, sizeof(before), "%s/%s", state_name(volume->state),
                       reason_name(volume->reason));
        (void)snprintf(after, sizeof(after), "%s/%s", state_name(state), reason_name(reason));
        JOURNAL(store, "state_changed", ABOUT(.volume = volume), "from", before, "to", after);
    }
    /* Then the sandbox's VM does not have the volume's device, and the guest's answers were not
     * about it, or no longer are. */
    if (changed && (state == STATE_DETACHED || reason == REASON_BYPASSED))
        STORE_RUN(store,
                  "DELETE FROM guest_stats WHERE mapping_id ="
                  " (SELECT mapping_id FROM mappings WHERE volume_id = ?1 AND until IS NULL)",
                  volume->volume_id);
    if (volume->resize_id)
        follow_state(store, volume, state, reason, finish);
    volume->state = state;
    volume->reason = reason;
    volume->has_unknown_words = false;
    if (finish)
        volume->resize_id = 0;
    if (ret_changed)
        *ret_changed = changed;
    return STORE_RESULT(store);
}

int store_set_observed(struct store *store, int64_t volume_id, bool observed)
{
    return STORE_RUN(store,
                     "UPDATE volumes SET observed = ?2 WHERE volume_id = ?1 AND observed <> ?2",
                     volume_id, observed);
}

/* ---- resizable ----------------------------------------------------------------------------- */

/* "no/monitor_missing", "yes"; "" nobody uses it. */
static void format_resizable(const char *resizable, enum volume_reason reason,
                             char ret_text[static 2 * STORE_NAME_BYTES])
{
    (void)snprintf(ret_text, 2 * STORE_NAME_BYTES, "%s%s%s", resizable, reason ? "/" : "",
                   reason ? reason_name(reason) : "");
}

int store_set_resizable(struct store *store, const struct store_volume *volume,
                        const char *resizable, enum volume_reason reason, bool *ret_changed)
{
    static const char set[] =
        "UPDATE volumes SET resizable = ?2, resizable_reason = ?3 WHERE volume_id = ?1";
    const char *answer = resizable ? resizable : "";
    char before[2 * STORE_NAME_BYTES], after[2 * STORE_NAME_BYTES];
    bool changed = strcmp(volume->resizable, answer) != 0 || volume->resizable_reason != reason;

    if (ret_changed)
        *ret_changed = changed;
    if (!changed)
        return 0;
    STORE_RUN(store, set, volume->volume_id, resizable, sql_reason(reason));
    if (strcmp(volume->resizable, "no") != 0 && strcmp(answer, "no") != 0)
        return STORE_RESULT(store);
    format_resizable(volume->resizable, volume->resizable_reason, before);
    format_resizable(answer, reason, after);
    return JOURNAL(store, "resizable_changed", ABOUT(.volume_id = volume->volume_id), "from",
                   before, "to", after);
}

int store_set_evidence(struct store *store, struct store_volume *volume, const char *evidence)
{
    if (*evidence || volume->has_evidence)
        STORE_RUN(store,
                  "UPDATE volumes SET evidence = ?2 WHERE volume_id = ?1 AND evidence IS NOT ?2",
                  volume->volume_id, evidence);
    volume->has_evidence = *evidence != '\0';
    return STORE_RESULT(store);
}

/* ---- waiting ------------------------------------------------------------------------------- */

int store_next_attempt(struct store *store, uint64_t after_ns, uint64_t *ret_ns)
{
    int64_t next_ns = STORE_NUMBER(
        store, "SELECT min(next_attempt_ns) FROM volumes WHERE next_attempt_ns > ?1", after_ns);

    *ret_ns = next_ns ? (uint64_t)next_ns : UINT64_MAX;
    return STORE_RESULT(store);
}

bool store_awaits_stillness(struct store *store)
{
    return STORE_HAS(store, "SELECT 1 FROM volumes WHERE next_attempt_ns IS NOT NULL"
                            " AND attempts = 0 AND removed_at IS NULL LIMIT 1");
}

#define FORGET_ATTEMPTS                                                                            \
    "UPDATE volumes SET attempts = 0, next_attempt_ns = NULL, next_attempt_ms = NULL WHERE "

int store_forget_waiting(struct store *store)
{
    static const char forget[] = FORGET_ATTEMPTS
        "(attempts <> 0 OR next_attempt_ns IS NOT NULL);"
        "UPDATE sandboxes SET companion_ability = NULL, agent_ability = NULL,"
        " shim_ability = NULL, helper_ability = NULL"
        " WHERE gone_at IS NULL AND coalesce(companion_ability, agent_ability, shim_ability,"
        " helper_ability) IS NOT NULL;"
        "UPDATE mappings SET undone = 0 WHERE until IS NULL AND undone <> 0";

    STORE_RUN(store, forget);
    return store_want_list(store, 0);
}

int store_forget_waiting_of(struct store *store, int64_t sandbox_ref)
{
    static const char forget[] =
        FORGET_ATTEMPTS "volume_id IN (SELECT volume_id FROM mappings WHERE sandbox_ref = ?1"
                        "  AND until IS NULL) AND (attempts <> 0 OR next_attempt_ns IS NOT NULL)";

    return STORE_RUN(store, forget, sandbox_ref);
}

/* ---- resizes -------------------------------------------------------------------------------- */

/* Resizes: opened when a device exceeds what the hypervisor has, finished in sync.
 *
 * At most one is open per volume. If the device grows again meanwhile, the goal is raised. Its
 * state and reason are copies of the volume's, written when it is opened and then by
 * store_set_state() alone, so the two can't differ. It survives a restart and a reboot, so an
 * unfinished resize is continued.
 */

/* The results of earlier attempts say nothing about a new goal. */
static void forget_reasons(struct store *store, struct store_volume *volume)
{
    static const char forget[] = "UPDATE mappings SET hypervisor_reason = NULL, guest_reason = NULL"
                                 " WHERE volume_id = ?1 AND until IS NULL";

    if (volume->hypervisor_reason != REASON_NONE || volume->guest_reason != REASON_NONE)
        STORE_RUN(store, forget, volume->volume_id);
    if (volume->attempts || volume->next_attempt_ns)
        store_set_attempts(store, volume->volume_id, 0, 0, 0);
    volume->hypervisor_reason = volume->guest_reason = REASON_NONE;
    volume->attempts = 0;
    volume->next_attempt_ns = 0;
}

int store_open_resize(struct store *store, struct store_volume *volume, uint64_t from_bytes,
                      uint64_t to_bytes)
{
    static const char raise[] =
        "UPDATE resizes SET to_bytes = ?2, error = NULL, hypervisor_at = NULL, guest_at = NULL"
        " WHERE resize_id = ?1";
    static const char open[] =
        "INSERT INTO resizes (volume_id, sandbox_id, device, from_bytes, to_bytes, state, reason,"
        " detected_at) SELECT v.volume_id, s.sandbox_id, d.name, ?2, ?3, v.state, v.reason, ?4"
        " FROM volumes v LEFT JOIN devices d ON d.device_id = v.device_id"
        " LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL"
        " LEFT JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref WHERE v.volume_id = ?1";
    bool is_open = volume->resize_id != 0;

    if (is_open && volume->resize_to_bytes >= to_bytes)
        return 0;
    if (is_open)
        STORE_RUN(store, raise, volume->resize_id, to_bytes);
    else if (STORE_RUN(store, open, volume->volume_id, sql_known(from_bytes), to_bytes,
                       store->now_ms) == 0)
        volume->resize_id = sqlite3_last_insert_rowid(store->connection.db);
    volume->resize_to_bytes = to_bytes;
    forget_reasons(store, volume);
    return JOURNAL(store, is_open ? "resize_raised" : "resize_opened", ABOUT(.volume = volume),
                   "from_bytes", sql_known(from_bytes), "to_bytes",
                   sql_known(volume->resize_to_bytes));
}

int store_get_reached_size(struct store *store, int64_t volume_id, uint64_t *ret_bytes)
{
    static const char find[] =
        "SELECT m.guest_synced_bytes FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        " AND v.device_id = m.device_id WHERE m.volume_id = ?1 ORDER BY m.mapping_id DESC LIMIT 1";

    *ret_bytes = (uint64_t)STORE_NUMBER(store, find, volume_id);
    return STORE_RESULT(store);
}

int store_intend(struct store *store, const struct store_volume *volume, const char *act)
{
    static const char count[] =
        "UPDATE resizes SET attempts = attempts + 1 WHERE volume_id = ?1 AND finished_at IS NULL";
    char kind[STORE_NAME_BYTES];

    STORE_RUN(store, count, volume->volume_id);
    (void)snprintf(kind, sizeof(kind), "%s_intended", act);
    return JOURNAL(store, kind, ABOUT(.volume = volume), "bytes", sql_known(volume->device_bytes));
}

/* ---- lists ----------------------------------------------------------------------------------- */

#define VOLUMES      "SELECT v.volume_id FROM volumes v WHERE v.removed_at IS NULL"
#define LIVE_VOLUMES " JOIN volumes v ON v.removed_at IS NULL AND "

/* Of a search's name ?1, major ?2, minor ?3, file_device ?5, inode ?6, device_id ?7 and time ?8; ?4
 * is the boot. */
static const char *const lists[] = {
    [STORE_VOLUMES_ALL] = VOLUMES,
    [STORE_VOLUMES_OF_DEVICE] =
        "SELECT v.volume_id FROM devices d" LIVE_VOLUMES "v.device_id = d.device_id"
        " WHERE d.kind = 'block' AND d.major = ?2 AND d.minor = ?3 AND d.boot_id = ?4"
        " UNION ALL SELECT v.volume_id FROM devices d JOIN layers l ON l.layer_id = "
        "d.device_id" LIVE_VOLUMES "v.device_id = l.device_id"
        " WHERE d.kind = 'block' AND d.major = ?2 AND d.minor = ?3 AND d.boot_id = ?4",
    [STORE_VOLUMES_OF_FILE] =
        "SELECT v.volume_id FROM devices d" LIVE_VOLUMES "v.device_id = d.device_id"
        " WHERE d.kind <> 'block' AND d.inode = ?6 AND d.file_device = ?5 AND d.boot_id = ?4",
    [STORE_VOLUMES_OF_DEVICE_ID] = VOLUMES " AND v.device_id = ?7",
    [STORE_VOLUMES_BESIDE] =
        "SELECT v.volume_id FROM entries e JOIN volumes o ON o.volume_id = e.volume_id" LIVE_VOLUMES
        "v.device_id = o.device_id AND v.volume_id <> o.volume_id"
        " WHERE e.key = ?1 AND e.gone = 0",
    /* The last: those on a device that an orphaned VMM has open. */
    [STORE_VOLUMES_OF_SANDBOX] =
        "SELECT e.volume_id FROM entry_sandboxes n JOIN entries e ON e.entry_id = n.entry_id"
        " WHERE n.sandbox_id = ?1 AND e.gone = 0"
        " UNION SELECT m.volume_id FROM sandboxes s JOIN mappings m"
        " ON m.sandbox_ref = s.sandbox_ref AND m.until IS NULL"
        " WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"
        " UNION SELECT v.volume_id FROM sandboxes s JOIN sandbox_claims c"
        " ON c.sandbox_ref = s.sandbox_ref" LIVE_VOLUMES "v.target_path = c.path"
        " WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"
        " UNION SELECT v.volume_id FROM sandboxes s"
        " JOIN sandbox_drives h ON h.sandbox_ref = s.sandbox_ref"
        " JOIN devices d ON d.kind = 'block' AND d.major = h.major AND d.minor = h.minor"
        "  AND d.boot_id = s.boot_id" LIVE_VOLUMES "v.device_id = d.device_id"
        " WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL AND s.orphaned = 1",
    /* Every path above a claim, each once: rtrim() takes the last part off. */
    [STORE_VOLUMES_BYPASSED] =
        "WITH RECURSIVE above (path) AS (SELECT c.path FROM sandboxes s JOIN sandbox_claims c"
        " ON c.sandbox_ref = s.sandbox_ref WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"
        " UNION SELECT rtrim(rtrim(path, replace(path, '/', '')), '/') FROM above WHERE path <> '')"
        " SELECT v.volume_id FROM above a" LIVE_VOLUMES "v.target_path = a.path"
        " UNION SELECT e.volume_id FROM above a JOIN entries e ON e.subpaths = a.path"
        " AND e.gone = 0"
        " UNION SELECT volume_id FROM volumes WHERE state = 'blocked' AND reason = 'bypassed'",
    [STORE_VOLUMES_BOUND] = "SELECT volume_id FROM mappings WHERE until IS NULL"
                            " UNION " VOLUMES " AND v.state = 'blocked'",
    [STORE_VOLUMES_WITHOUT_DEVICE] = VOLUMES " AND v.device_id IS NULL AND v.status = 'present'",
    [STORE_VOLUMES_DUE] = VOLUMES " AND v.next_attempt_ns <= ?8",
};

int store_each_volume(struct store *store, const struct store_search *search,
                      store_volume_callback *callback, void *userdata)
{
    return STORE_EACH_NUMBER(store, lists[search->of], callback, userdata, search->name,
                             search->major, search->minor, store->boot_id, search->file_device,
                             search->inode, search->device_id, search->time_ns);
}

int store_each_mounted_file_system(struct store *store,
                                   int (*callback)(void *userdata, const char *fs_type),
                                   void *userdata)
{
    static const char find[] =
        "SELECT DISTINCT e.fs_type FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        " JOIN entries e ON e.entry_id = v.entry_id"
        " WHERE m.guest_bytes IS NOT NULL AND e.fs_type IS NOT NULL";

    return STORE_EACH_TEXT(store, find, callback, userdata);
}
