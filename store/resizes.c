/* SPDX-License-Identifier: Apache-2.0 */
/* resizes.c - resizes: opened when a device exceeds what the hypervisor has, finished in sync.
 *
 * At most one is open per volume. If the device grows again meanwhile, the goal is raised. Its
 * state and reason are copies of the volume's, written by store_set_state() and by nobody else, so
 * the two can't differ. It survives a restart and a reboot, so an unfinished resize is continued.
 */
#include <stdio.h>

#include "store/internal.h"

static int add_resize(struct store *store, int64_t volume_id, uint64_t from_bytes,
                      uint64_t to_bytes)
{
    static const char insert[] =
        "INSERT INTO resizes (volume_id, sandbox_id, device, from_bytes, to_bytes, state, reason,"
        " detected_at) SELECT v.volume_id, s.sandbox_id, d.name, ?2, ?3, v.state, v.reason, ?4"
        " FROM volumes v LEFT JOIN devices d ON d.device_id = v.device_id"
        " LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL"
        " LEFT JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref WHERE v.volume_id = ?1";

    return sql_run(&store->connection, insert, NULL, sql_number(volume_id), sql_known(from_bytes),
                   sql_number((int64_t)to_bytes), sql_number(store->now_ms));
}

static int raise_resize(struct store *store, int64_t resize_id, uint64_t to_bytes)
{
    static const char raise[] =
        "UPDATE resizes SET to_bytes = ?2, error = NULL, hypervisor_at = NULL, guest_at = NULL"
        " WHERE resize_id = ?1";

    return sql_run(&store->connection, raise, NULL, sql_number(resize_id),
                   sql_number((int64_t)to_bytes));
}

/* The results of earlier attempts say nothing about a new goal. */
static int forget_reasons(struct store *store, struct store_volume *volume)
{
    static const char forget[] = "UPDATE mappings SET hypervisor_reason = NULL, guest_reason = NULL"
                                 " WHERE volume_id = ?1 AND until IS NULL";
    int r = 0;

    if (volume->hypervisor_reason != REASON_NONE || volume->guest_reason != REASON_NONE)
        r = sql_run(&store->connection, forget, NULL, sql_number(volume->volume_id));
    if (r == 0 && (volume->attempts || volume->next_attempt_ns))
        r = volume_clear_attempts(store, volume->volume_id);
    volume->hypervisor_reason = volume->guest_reason = REASON_NONE;
    volume->attempts = 0;
    volume->next_attempt_ns = 0;
    return r;
}

static int journal_goal(struct store *store, const struct store_volume *volume, const char *kind,
                        uint64_t from_bytes)
{
    return journal_write(store, &(struct journal_line){
                                    .kind = kind,
                                    .volume = volume,
                                    .detail = {{"from_bytes", sql_known(from_bytes)},
                                               {"to_bytes", sql_known(volume->resize_to_bytes)}}});
}

int store_open_resize(struct store *store, struct store_volume *volume, uint64_t from_bytes,
                      uint64_t to_bytes)
{
    bool is_open = volume->resize_id != 0;
    int r;

    if (is_open && volume->resize_to_bytes >= to_bytes)
        return 0;
    r = is_open ? raise_resize(store, volume->resize_id, to_bytes)
                : add_resize(store, volume->volume_id, from_bytes, to_bytes);
    if (r < 0)
        return r;
    if (!is_open)
        volume->resize_id = sqlite3_last_insert_rowid(store->connection.db);
    volume->resize_to_bytes = to_bytes;
    r = forget_reasons(store, volume);
    return r < 0 ? r
                 : journal_goal(store, volume, is_open ? "resize_raised" : "resize_opened",
                                from_bytes);
}

int store_get_reached_size(struct store *store, int64_t volume_id, uint64_t *ret_bytes)
{
    static const char find[] =
        "SELECT m.guest_synced_bytes FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        " AND v.device_id = m.device_id WHERE m.volume_id = ?1 ORDER BY m.mapping_id DESC LIMIT 1";
    int64_t bytes;
    int r = sql_find(&store->connection, find, &bytes, sql_number(volume_id));

    *ret_bytes = (uint64_t)bytes;
    return r < 0 ? r : 0;
}

int store_intend(struct store *store, const struct store_volume *volume, const char *act)
{
    static const char count[] =
        "UPDATE resizes SET attempts = attempts + 1 WHERE volume_id = ?1 AND finished_at IS NULL";
    char kind[STORE_NAME_BYTES];
    int r = sql_run(&store->connection, count, NULL, sql_number(volume->volume_id));

    (void)snprintf(kind, sizeof(kind), "%s_intended", act);
    return r < 0 ? r
                 : journal_write(store, &(struct journal_line){
                                            .kind = kind,
                                            .volume = volume,
                                            .detail = {{"bytes", sql_known(volume->device_bytes)}},
                                        });
}
