/* SPDX-License-Identifier: Apache-2.0 */
/* volume_lifetime.c - a volume begins with its first entry and ends with its last one. */
#include "store/internal.h"
#include "store/schema.h"

int store_find_volume(struct store *store, const char *target_path, int64_t *ret_volume_id)
{
    static const char by_path[] =
        "SELECT volume_id FROM volumes WHERE target_path = ?1 AND removed_at IS NULL";
    int r = sql_find(&store->connection, by_path, ret_volume_id, sql_text(target_path));

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
    int r = sql_run(&store->connection, count, &counted, sql_number(STORE_VOLUMES));

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
    int r = sql_run(&store->connection, insert, NULL, sql_text(entry->target_path),
                    sql_text(hash_path(entry->target_path, hash)), sql_number(store->now_ms),
                    sql_known((uint64_t)device_id));

    if (r < 0)
        return r;
    store->has_no_unnamed = store->has_no_unnamed && entry->target_path;
    *ret_volume_id = sqlite3_last_insert_rowid(store->connection.db);
    return journal_write(
        store, &(struct journal_line){.kind = "volume_added",
                                      .volume_id = *ret_volume_id,
                                      .is_complete = true,
                                      .detail = {{"target_path", sql_text(entry->target_path)},
                                                 {"layout", sql_text(layout_name(entry->layout))},
                                                 {"key", sql_text(entry->key)}}});
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

    return sql_run(&store->connection, refresh, NULL, sql_number(volume_id),
                   sql_number(store->now_ms));
}

int volume_end(struct store *store, int64_t volume_id)
{
    static const char end[] =
        "UPDATE volumes SET status = CASE WHEN EXISTS (SELECT 1 FROM trash t"
        "  WHERE t.volume_id = ?1 AND t.file IS NULL) THEN 'quarantined' ELSE 'removed' END,"
        " device_id = NULL, attempts = 0,"
        " next_attempt_ns = NULL, next_attempt_ms = NULL, last_changed = ?2, removed_at = ?2"
        " WHERE volume_id = ?1";
    static const char discount[] = "UPDATE meta SET live_volumes = live_volumes - 1 WHERE one = 1";
    struct store_volume volume = {.volume_id = volume_id};
    /* It names the sandbox while the binding is open. */
    int r = journal_write(store,
                          &(struct journal_line){.kind = "volume_removed", .volume_id = volume_id});

    if (r == 0)
        r = store_close_binding(store, volume_id);
    if (r == 0)
        r = sql_run(&store->connection, end, NULL, sql_number(volume_id),
                    sql_number(store->now_ms));
    if (r == 0)
        r = sql_run_values(&store->connection, discount, NULL, NULL, 0);
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
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, find, &rows, sql_number(volume_id));

    ret_sandbox_id[0] = '\0';
    if (r <= 0)
        return r;
    sql_take_text(&rows, ret_sandbox_id, STORE_SANDBOX_ID_BYTES);
    return 0;
}
