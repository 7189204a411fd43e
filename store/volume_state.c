/* SPDX-License-Identifier: Apache-2.0 */
/* volume_state.c - the decision about a volume, in the published words, and when it is tried again.
 * An unfinished resize follows its volume's state.
 */
#include <stdio.h>
#include <string.h>

#include "store/schema.h"
#include "store/store_internal.h"

/* ---- state --------------------------------------------------------------------------------- */

static int write_state(struct store *store, const struct store_volume *volume,
                       enum volume_state state, enum volume_reason reason)
{
    static const char set[] =
        "UPDATE volumes SET state = ?2, reason = ?3, state_since = ?4 WHERE volume_id = ?1";
    char before[2 * STORE_NAME_BYTES], after[2 * STORE_NAME_BYTES];
    int r = STORE_RUN(store, set, volume->volume_id, state_name(state), reason_name(reason),
                      store->now_ms);

    (void)snprintf(before, sizeof(before), "%s/%s", state_name(volume->state),
                   reason_name(volume->reason));
    (void)snprintf(after, sizeof(after), "%s/%s", state_name(state), reason_name(reason));
    return r < 0 ? r
                 : JOURNAL(store, "state_changed", ABOUT(.volume = volume), "from", before, "to",
                           after);
}

static int follow_state(struct store *store, const struct store_volume *volume,
                        enum volume_state state, enum volume_reason reason, bool finish)
{
    static const char follow[] = "UPDATE resizes SET state = ?2, reason = ?3, finished_at = ?4"
                                 " WHERE volume_id = ?1 AND finished_at IS NULL"
                                 " AND (?4 IS NOT NULL OR (state, reason) IS NOT (?2, ?3))";
    int changes = 0;
    int r = STORE_CHANGE(store, follow, &changes, volume->volume_id, state_name(state),
                         reason_name(reason), finish ? sql_number(store->now_ms) : sql_known(0));

    if (r == 0 && changes)
        r = count_resize(store, volume->volume_id, state, reason, finish);
    if (r < 0 || !finish || !changes)
        return r;
    return JOURNAL(store, "resize_finished", ABOUT(.volume = volume), "state", state_name(state));
}

int store_set_state(struct store *store, struct store_volume *volume, enum volume_state state,
                    enum volume_reason reason, bool *ret_changed)
{
    bool changed = volume->state != state || volume->reason != reason || volume->has_unknown_words;
    bool finish =
        volume->status == STORE_REMOVED || state == STATE_IN_SYNC || state == STATE_UNMANAGED;
    int r = 0;

    if (changed)
        r = write_state(store, volume, state, reason);
    /* Then the sandbox's VM does not have the volume's device. */
    if (r == 0 && changed && (state == STATE_DETACHED || reason == REASON_BYPASSED))
        r = guest_stats_forget(store, volume->volume_id);
    if (r == 0 && volume->resize_id)
        r = follow_state(store, volume, state, reason, finish);
    if (r < 0)
        return r;
    volume->state = state;
    volume->reason = reason;
    volume->has_unknown_words = false;
    if (finish)
        volume->resize_id = 0;
    if (ret_changed)
        *ret_changed = changed;
    return 0;
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
    int r;

    if (ret_changed)
        *ret_changed = changed;
    if (!changed)
        return 0;
    r = STORE_RUN(store, set, volume->volume_id, resizable, sql_reason(reason));
    if (r < 0 || (strcmp(volume->resizable, "no") != 0 && strcmp(answer, "no") != 0))
        return r;
    format_resizable(volume->resizable, volume->resizable_reason, before);
    format_resizable(answer, reason, after);
    return JOURNAL(store, "resizable_changed", ABOUT(.volume_id = volume->volume_id), "from",
                   before, "to", after);
}

int store_set_evidence(struct store *store, struct store_volume *volume, const char *evidence)
{
    int r =
        *evidence || volume->has_evidence
            ? STORE_RUN(
                  store,
                  "UPDATE volumes SET evidence = ?2 WHERE volume_id = ?1 AND evidence IS NOT ?2",
                  volume->volume_id, evidence)
            : 0;

    if (r == 0)
        volume->has_evidence = *evidence != '\0';
    return r;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int store_next_attempt(struct store *store, uint64_t after_ns, uint64_t *ret_ns)
{
    int64_t next_ns;
    int r = STORE_FIND(store, "SELECT min(next_attempt_ns) FROM volumes WHERE next_attempt_ns > ?1",
                       &next_ns, after_ns);

    *ret_ns = next_ns ? (uint64_t)next_ns : UINT64_MAX;
    return r < 0 ? r : 0;
}

bool store_awaits_stillness(struct store *store)
{
    static const char find[] = "SELECT 1 FROM volumes WHERE next_attempt_ns IS NOT NULL"
                               " AND attempts = 0 AND removed_at IS NULL LIMIT 1";

    return STORE_FIND(store, find, NULL) > 0;
}

int store_forget_waiting(struct store *store)
{
    static const char volumes[] =
        "UPDATE volumes SET attempts = 0, next_attempt_ns = NULL, next_attempt_ms = NULL"
        " WHERE attempts <> 0 OR next_attempt_ns IS NOT NULL";
    static const char sandboxes[] =
        "UPDATE sandboxes SET companion_ability = NULL, agent_ability = NULL,"
        " shim_ability = NULL, helper_ability = NULL"
        " WHERE gone_at IS NULL AND coalesce(companion_ability, agent_ability, shim_ability,"
        " helper_ability) IS NOT NULL";
    static const char mappings[] =
        "UPDATE mappings SET undone = 0 WHERE until IS NULL AND undone <> 0";
    int r = STORE_RUN(store, volumes);

    if (r == 0)
        r = STORE_RUN(store, sandboxes);
    if (r == 0)
        r = STORE_RUN(store, mappings);
    return r < 0 ? r : store_want_list(store, 0);
}

int store_forget_waiting_of(struct store *store, int64_t sandbox_ref)
{
    static const char volumes[] =
        "UPDATE volumes SET attempts = 0, next_attempt_ns = NULL, next_attempt_ms = NULL"
        " WHERE volume_id IN (SELECT volume_id FROM mappings WHERE sandbox_ref = ?1"
        "  AND until IS NULL) AND (attempts <> 0 OR next_attempt_ns IS NOT NULL)";

    return STORE_RUN(store, volumes, sandbox_ref);
}

/* ---- volume lifetime ------------------------------------------------------------------------ */

/* A volume begins with its first entry and ends with its last one. */

int store_find_volume(struct store *store, const char *target_path, int64_t *ret_volume_id)
{
    int r = STORE_FIND(
        store, "SELECT volume_id FROM volumes WHERE target_path = ?1 AND removed_at IS NULL",
        ret_volume_id, target_path);

    return r < 0 ? r : 0;
}

int volume_find(struct store *store, const char *target_path, const char *key,
                int64_t *ret_volume_id)
{
    return target_path ? store_find_volume(store, target_path, ret_volume_id)
                       : unresolved_find(store, key, ret_volume_id);
}

int volume_count(struct store *store)
{
    static const char count[] = "UPDATE meta SET live_volumes = live_volumes + 1"
                                " WHERE one = 1 AND live_volumes < ?1";
    int counted = 0;
    int r = STORE_CHANGE(store, count, &counted, STORE_VOLUMES);

    return r == 0 && !counted ? STORE_TOO_MANY : r;
}

int volume_add(struct store *store, const struct store_entry *entry, int64_t device_id,
               int64_t *ret_volume_id)
{
    static const char insert[] =
        "INSERT INTO volumes (target_path, path_sha256, entry_id, status, device_id, state, reason,"
        " state_since, first_seen, last_changed)"
        " VALUES (?1, ?2, (SELECT coalesce(max(entry_id), 0) + 1 FROM entries), 'present', ?4,"
        "  'unknown', 'none', ?3, ?3, ?3)";
    char hash[SHA256_HEX_BYTES];
    int r = STORE_RUN(store, insert, entry->target_path, hash_path(entry->target_path, hash),
                      store->now_ms, sql_known(device_id));

    if (r < 0)
        return r;
    store->has_no_unnamed = store->has_no_unnamed && entry->target_path;
    *ret_volume_id = sqlite3_last_insert_rowid(store->connection.db);
    return JOURNAL(store, "volume_added", ABOUT(.volume_id = *ret_volume_id, .is_complete = true),
                   "target_path", entry->target_path, "layout", layout_name(entry->layout), "key",
                   entry->key);
}

/* Subqueries, because UPDATE … FROM would build a table for its one row. */
#define LIVE_ENTRIES "FROM entries WHERE volume_id = ?1 AND gone = 0"

int volume_refresh(struct store *store, int64_t volume_id)
{
    static const char refresh[] =
        "UPDATE volumes SET last_changed = ?2,"
        " entry_id = coalesce((SELECT min(entry_id) " LIVE_ENTRIES " AND layout = 'kata'),"
        "  (SELECT min(entry_id) " LIVE_ENTRIES ")),"
        " status = CASE WHEN EXISTS (SELECT 1 " LIVE_ENTRIES " AND problem IS NOT NULL)"
        "  THEN 'invalid' ELSE 'present' END WHERE volume_id = ?1";

    return STORE_RUN(store, refresh, volume_id, store->now_ms);
}

int volume_end(struct store *store, int64_t volume_id)
{
    static const char end[] =
        "UPDATE volumes SET status = CASE WHEN EXISTS (SELECT 1 FROM trash t"
        "  WHERE t.volume_id = ?1 AND t.file IS NULL) THEN 'quarantined' ELSE 'removed' END,"
        " device_id = NULL, attempts = 0,"
        " next_attempt_ns = NULL, next_attempt_ms = NULL, last_changed = ?2, removed_at = ?2"
        " WHERE volume_id = ?1";
    struct store_volume volume = {.volume_id = volume_id};
    /* It names the sandbox while the binding is open. */
    int r = JOURNAL(store, "volume_removed", ABOUT(.volume_id = volume_id));

    if (r == 0)
        r = store_close_binding(store, volume_id);
    if (r == 0)
        r = STORE_RUN(store, end, volume_id, store->now_ms);
    if (r == 0)
        r = STORE_RUN(store, "UPDATE meta SET live_volumes = live_volumes - 1 WHERE one = 1");
    if (r == 0)
        r = store_reload_volume(store, &volume);
    return r < 0 ? r : store_set_state(store, &volume, STATE_UNMANAGED, REASON_NONE, NULL);
}

int store_find_unstaged(struct store *store, int64_t volume_id,
                        char ret_sandbox_id[static STORE_SANDBOX_ID_BYTES])
{
    static const char find[] = "SELECT s.sandbox_id FROM volumes v"
                               " JOIN mappings k ON k.mapping_id = " V_UNSTAGED_MAPPING
                               " JOIN sandboxes s ON s.sandbox_ref = k.sandbox_ref"
                               " WHERE v.volume_id = ?1";
    int r = STORE_FIND_TEXT(store, find, ret_sandbox_id, STORE_SANDBOX_ID_BYTES, volume_id);

    return r < 0 ? r : 0;
}

/* ---- resizes -------------------------------------------------------------------------------- */

/* Resizes: opened when a device exceeds what the hypervisor has, finished in sync.
 *
 * At most one is open per volume. If the device grows again meanwhile, the goal is raised. Its
 * state and reason are copies of the volume's, written when it is opened and then by
 * store_set_state() alone, so the two can't differ. It survives a restart and a reboot, so an
 * unfinished resize is continued.
 */

static int add_resize(struct store *store, int64_t volume_id, uint64_t from_bytes,
                      uint64_t to_bytes)
{
    static const char insert[] =
        "INSERT INTO resizes (volume_id, sandbox_id, device, from_bytes, to_bytes, state, reason,"
        " detected_at) SELECT v.volume_id, s.sandbox_id, d.name, ?2, ?3, v.state, v.reason, ?4"
        " FROM volumes v LEFT JOIN devices d ON d.device_id = v.device_id"
        " LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL"
        " LEFT JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref WHERE v.volume_id = ?1";

    return STORE_RUN(store, insert, volume_id, sql_known(from_bytes), to_bytes, store->now_ms);
}

/* The results of earlier attempts say nothing about a new goal. */
static int forget_reasons(struct store *store, struct store_volume *volume)
{
    static const char forget[] = "UPDATE mappings SET hypervisor_reason = NULL, guest_reason = NULL"
                                 " WHERE volume_id = ?1 AND until IS NULL";
    int r = 0;

    if (volume->hypervisor_reason != REASON_NONE || volume->guest_reason != REASON_NONE)
        r = STORE_RUN(store, forget, volume->volume_id);
    if (r == 0 && (volume->attempts || volume->next_attempt_ns))
        r = volume_clear_attempts(store, volume->volume_id);
    volume->hypervisor_reason = volume->guest_reason = REASON_NONE;
    volume->attempts = 0;
    volume->next_attempt_ns = 0;
    return r;
}

int store_open_resize(struct store *store, struct store_volume *volume, uint64_t from_bytes,
                      uint64_t to_bytes)
{
    static const char raise[] =
        "UPDATE resizes SET to_bytes = ?2, error = NULL, hypervisor_at = NULL, guest_at = NULL"
        " WHERE resize_id = ?1";
    bool is_open = volume->resize_id != 0;
    int r;

    if (is_open && volume->resize_to_bytes >= to_bytes)
        return 0;
    r = is_open ? STORE_RUN(store, raise, volume->resize_id, to_bytes)
                : add_resize(store, volume->volume_id, from_bytes, to_bytes);
    if (r < 0)
        return r;
    if (!is_open)
        volume->resize_id = sqlite3_last_insert_rowid(store->connection.db);
    volume->resize_to_bytes = to_bytes;
    r = forget_reasons(store, volume);
    return r < 0 ? r
                 : JOURNAL(store, is_open ? "resize_raised" : "resize_opened",
                           ABOUT(.volume = volume), "from_bytes", sql_known(from_bytes), "to_bytes",
                           sql_known(volume->resize_to_bytes));
}

int store_get_reached_size(struct store *store, int64_t volume_id, uint64_t *ret_bytes)
{
    static const char find[] =
        "SELECT m.guest_synced_bytes FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        " AND v.device_id = m.device_id WHERE m.volume_id = ?1 ORDER BY m.mapping_id DESC LIMIT 1";
    int64_t bytes;
    int r = STORE_FIND(store, find, &bytes, volume_id);

    *ret_bytes = (uint64_t)bytes;
    return r < 0 ? r : 0;
}

int store_intend(struct store *store, const struct store_volume *volume, const char *act)
{
    static const char count[] =
        "UPDATE resizes SET attempts = attempts + 1 WHERE volume_id = ?1 AND finished_at IS NULL";
    char kind[STORE_NAME_BYTES];
    int r = STORE_RUN(store, count, volume->volume_id);

    (void)snprintf(kind, sizeof(kind), "%s_intended", act);
    return r < 0 ? r
                 : JOURNAL(store, kind, ABOUT(.volume = volume), "bytes",
                           sql_known(volume->device_bytes));
}
