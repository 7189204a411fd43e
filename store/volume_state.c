/* SPDX-License-Identifier: Apache-2.0 */
/* volume_state.c - the decision about a volume, in the published words, and when it is tried again.
 * An unfinished resize follows its volume's state.
 */
#include <stdio.h>
#include <string.h>

#include "store/internal.h"

/* ---- state --------------------------------------------------------------------------------- */

static int write_state(struct store *store, const struct store_volume *volume,
                       enum volume_state state, enum volume_reason reason)
{
    static const char set[] =
        "UPDATE volumes SET state = ?2, reason = ?3, state_since = ?4 WHERE volume_id = ?1";
    char before[2 * STORE_NAME_BYTES], after[2 * STORE_NAME_BYTES];
    int r = sql_run(&store->connection, set, NULL, sql_number(volume->volume_id),
                    sql_text(state_name(state)), sql_text(reason_name(reason)),
                    sql_number(store->now_ms));

    (void)snprintf(before, sizeof(before), "%s/%s", state_name(volume->state),
                   reason_name(volume->reason));
    (void)snprintf(after, sizeof(after), "%s/%s", state_name(state), reason_name(reason));
    return r < 0
               ? r
               : journal_write(store, &(struct journal_line){.kind = "state_changed",
                                                             .volume = volume,
                                                             .detail = {{"from", sql_text(before)},
                                                                        {"to", sql_text(after)}}});
}

static int follow_state(struct store *store, const struct store_volume *volume,
                        enum volume_state state, enum volume_reason reason, bool finish)
{
    static const char follow[] = "UPDATE resizes SET state = ?2, reason = ?3, finished_at = ?4"
                                 " WHERE volume_id = ?1 AND finished_at IS NULL"
                                 " AND (?4 IS NOT NULL OR (state, reason) IS NOT (?2, ?3))";
    int changes = 0;
    int r = sql_run(&store->connection, follow, &changes, sql_number(volume->volume_id),
                    sql_text(state_name(state)), sql_text(reason_name(reason)),
                    finish ? sql_number(store->now_ms) : sql_known(0));

    if (r == 0 && changes)
        r = count_resize(store, volume->volume_id, state, reason, finish);
    if (r < 0 || !finish || !changes)
        return r;
    return journal_write(
        store, &(struct journal_line){.kind = "resize_finished",
                                      .volume = volume,
                                      .detail = {{"state", sql_text(state_name(state))}}});
}

/* The sandbox's VM does not have the volume's device. */
static bool is_without_device(enum volume_state state, enum volume_reason reason)
{
    return state == STATE_DETACHED || reason == REASON_BYPASSED;
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
    if (r == 0 && changed && is_without_device(state, reason))
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
    static const char set[] =
        "UPDATE volumes SET observed = ?2 WHERE volume_id = ?1 AND observed <> ?2";

    return sql_run(&store->connection, set, NULL, sql_number(volume_id), sql_number(observed));
}

/* ---- resizable ----------------------------------------------------------------------------- */

/* "no/monitor_missing", "yes"; "" nobody uses it. */
static void format_resizable(const char *resizable, enum volume_reason reason,
                             char ret_text[static 2 * STORE_NAME_BYTES])
{
    (void)snprintf(ret_text, 2 * STORE_NAME_BYTES, "%s%s%s", resizable, reason ? "/" : "",
                   reason ? reason_name(reason) : "");
}

static int journal_resizable(struct store *store, const struct store_volume *volume,
                             const char *resizable, enum volume_reason reason)
{
    char before[2 * STORE_NAME_BYTES], after[2 * STORE_NAME_BYTES];

    if (strcmp(volume->resizable, "no") != 0 && strcmp(resizable, "no") != 0)
        return 0;
    format_resizable(volume->resizable, volume->resizable_reason, before);
    format_resizable(resizable, reason, after);
    return journal_write(store, &(struct journal_line){
                                    .kind = "resizable_changed",
                                    .volume_id = volume->volume_id,
                                    .detail = {{"from", sql_text(*before ? before : NULL)},
                                               {"to", sql_text(*after ? after : NULL)}},
                                });
}

int store_set_resizable(struct store *store, const struct store_volume *volume,
                        const char *resizable, enum volume_reason reason, bool *ret_changed)
{
    static const char set[] =
        "UPDATE volumes SET resizable = ?2, resizable_reason = ?3 WHERE volume_id = ?1";
    const char *answer = resizable ? resizable : "";
    bool changed = strcmp(volume->resizable, answer) != 0 || volume->resizable_reason != reason;
    int r;

    if (ret_changed)
        *ret_changed = changed;
    if (!changed)
        return 0;
    r = sql_run(&store->connection, set, NULL, sql_number(volume->volume_id), sql_text(resizable),
                sql_reason(reason));
    return r < 0 ? r : journal_resizable(store, volume, answer, reason);
}

int store_set_evidence(struct store *store, struct store_volume *volume, const char *evidence)
{
    static const char set[] =
        "UPDATE volumes SET evidence = ?2 WHERE volume_id = ?1 AND evidence IS NOT ?2";
    int r = *evidence || volume->has_evidence
                ? sql_run(&store->connection, set, NULL, sql_number(volume->volume_id),
                          sql_text(evidence))
                : 0;

    if (r == 0)
        volume->has_evidence = *evidence != '\0';
    return r;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int store_set_attempts(struct store *store, int64_t volume_id, uint32_t attempts,
                       uint64_t next_attempt_ns, int64_t next_attempt_ms)
{
    static const char set[] =
        "UPDATE volumes SET attempts = ?2, next_attempt_ns = ?3, next_attempt_ms = ?4"
        " WHERE volume_id = ?1"
        " AND (attempts, next_attempt_ns, next_attempt_ms) IS NOT (?2, ?3, ?4)";
    uint64_t shown_ms = next_attempt_ns ? (uint64_t)next_attempt_ms : 0;

    return sql_run(&store->connection, set, NULL, sql_number(volume_id), sql_number(attempts),
                   sql_known(next_attempt_ns), sql_known(shown_ms));
}

int volume_clear_attempts(struct store *store, int64_t volume_id)
{
    return store_set_attempts(store, volume_id, 0, 0, 0);
}

int store_next_attempt(struct store *store, uint64_t after_ns, uint64_t *ret_ns)
{
    static const char next[] =
        "SELECT min(next_attempt_ns) FROM volumes WHERE next_attempt_ns > ?1";
    int64_t next_ns;
    int r = sql_find(&store->connection, next, &next_ns, sql_number((int64_t)after_ns));

    *ret_ns = next_ns ? (uint64_t)next_ns : UINT64_MAX;
    return r < 0 ? r : 0;
}

bool store_awaits_stillness(struct store *store)
{
    static const char find[] = "SELECT 1 FROM volumes WHERE next_attempt_ns IS NOT NULL"
                               " AND attempts = 0 AND removed_at IS NULL LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};

    return sql_query_values(&store->connection, find, &rows, NULL, 0) == 0 && sql_next(&rows) > 0;
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
    static const char *const steps[] = {volumes, sandboxes, mappings};
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(steps); i++)
        r = sql_run_values(&store->connection, steps[i], NULL, NULL, 0);
    return r < 0 ? r : store_want_list(store, 0);
}

int store_forget_waiting_of(struct store *store, int64_t sandbox_ref)
{
    static const char volumes[] =
        "UPDATE volumes SET attempts = 0, next_attempt_ns = NULL, next_attempt_ms = NULL"
        " WHERE volume_id IN (SELECT volume_id FROM mappings WHERE sandbox_ref = ?1"
        "  AND until IS NULL) AND (attempts <> 0 OR next_attempt_ns IS NOT NULL)";

    return sql_run(&store->connection, volumes, NULL, sql_number(sandbox_ref));
}
