/* SPDX-License-Identifier: Apache-2.0 */
/* guest_stats.c - usage and condition of file systems, as guests report them.
 *
 * One row per binding, because one guest's answer says nothing about the next guest. The rows are
 * small and in a table of their own: usage changes all the time, and a poll of thousands of volumes
 * then dirties few pages.
 */
#include <string.h>

#include "store/internal.h"

enum { FAILURES_COUNTED = 8 };

/* Whether the guest of this binding speaks of the volume: the binding is still open, and the VM is
 * not known to lack the volume's device. */
static int find_binding(struct store *store, int64_t binding_id, bool *ret_found)
{
    static const char find[] =
        "SELECT 1 FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        " WHERE m.mapping_id = ?1 AND m.until IS NULL"
        " AND v.state <> 'detached' AND v.reason <> 'bypassed'";
    int r = sql_find(&store->connection, find, NULL, sql_number(binding_id));

    *ret_found = r > 0;
    return r < 0 ? r : 0;
}

int guest_stats_forget(struct store *store, int64_t volume_id)
{
    static const char forget[] =
        "DELETE FROM guest_stats WHERE mapping_id ="
        " (SELECT mapping_id FROM mappings WHERE volume_id = ?1 AND until IS NULL)";

    return sql_run(&store->connection, forget, NULL, sql_number(volume_id));
}

struct known_answer {
    char condition[16]; /* "" unknown */
    int64_t read_ms;    /* 0 never */
};

static int find_answer(struct store *store, int64_t binding_id, struct known_answer *ret_known)
{
    static const char find[] = "SELECT condition, read_at FROM guest_stats WHERE mapping_id = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, find, &rows, sql_number(binding_id));

    *ret_known = (struct known_answer){0};
    if (r > 0) {
        TAKE_TEXT(&rows, ret_known->condition);
        ret_known->read_ms = sql_take_number(&rows);
    }
    return r < 0 ? r : 0;
}

static int64_t read_ms_of(const struct store *store, const struct store_guest_stats *stats)
{
    return store->now_ms - stats->age_ms;
}

/* A poll and a resize are asked on connections of their own: what was counted before the growth can
 * arrive after its result. A moment in the future is a clock's that was set back since. */
static bool is_outdated(const struct store *store, const struct store_guest_stats *stats,
                        const struct known_answer *known)
{
    return known->read_ms <= store->now_ms && read_ms_of(store, stats) < known->read_ms;
}

static const char *condition_of(const struct store_guest_stats *stats)
{
    return stats->abnormal ? "abnormal" : "normal";
}

static int write_stats(struct store *store, const struct store_guest_stats *stats)
{
    static const char put[] =
        "INSERT INTO guest_stats (mapping_id, used_bytes, available_bytes, condition, message,"
        " read_at, failures) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)"
        " ON CONFLICT (mapping_id) DO UPDATE SET used_bytes = ?2, available_bytes = ?3,"
        " condition = ?4, message = ?5, read_at = ?6, failures = 0";
    const struct sql_value unknown = sql_known(0);

    return sql_run(&store->connection, put, NULL, sql_number(stats->binding_id),
                   stats->has_bytes ? sql_number((int64_t)stats->used) : unknown,
                   stats->has_bytes ? sql_number((int64_t)stats->available) : unknown,
                   sql_text(condition_of(stats)), sql_text(stats->message),
                   sql_number(read_ms_of(store, stats)));
}

/* The file system's total, which the binding has too. */
static int write_total(struct store *store, const struct store_guest_stats *stats)
{
    static const char set[] = "UPDATE mappings SET guest_bytes = ?2 WHERE mapping_id = ?1"
                              " AND guest_bytes IS NOT ?2";

    return stats->has_bytes && stats->total
               ? sql_run(&store->connection, set, NULL, sql_number(stats->binding_id),
                         sql_number((int64_t)stats->total))
               : 0;
}

static int journal_condition(struct store *store, int64_t volume_id, const struct known_answer *old,
                             const struct store_guest_stats *stats)
{
    return journal_write(store,
                         &(struct journal_line){.kind = "guest_condition_changed",
                                                .volume_id = volume_id,
                                                .detail = {{"from", sql_text(old->condition)},
                                                           {"to", sql_text(condition_of(stats))},
                                                           {"message", sql_text(stats->message)}}});
}

int store_put_guest_stats(struct store *store, int64_t volume_id,
                          const struct store_guest_stats *stats, bool *ret_changed)
{
    struct known_answer old;
    bool found = false;
    int r = find_binding(store, stats->binding_id, &found);

    *ret_changed = false;
    if (r < 0 || !found)
        return r;
    r = find_answer(store, stats->binding_id, &old);
    if (r < 0 || is_outdated(store, stats, &old))
        return r;
    r = write_stats(store, stats);
    if (r == 0)
        r = write_total(store, stats);
    if (r < 0)
        return r;
    *ret_changed =
        old.condition[0] ? strcmp(old.condition, condition_of(stats)) != 0 : stats->abnormal;
    return *ret_changed ? journal_condition(store, volume_id, &old, stats) : 0;
}

int store_note_guest_silent(struct store *store, int64_t volume_id)
{
    static const char note[] =
        "INSERT INTO guest_stats (mapping_id, failures)"
        " SELECT mapping_id, 1 FROM mappings WHERE volume_id = ?1 AND until IS NULL"
        " ON CONFLICT (mapping_id) DO UPDATE SET failures = failures + 1 WHERE failures < ?2";

    return sql_run(&store->connection, note, NULL, sql_number(volume_id),
                   sql_number(FAILURES_COUNTED));
}

int store_each_guest(struct store *store, store_guest_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT m.volume_id, m.mapping_id, g.failures FROM mappings m INDEXED BY mappings_open"
        " LEFT JOIN guest_stats g ON g.mapping_id = m.mapping_id WHERE m.until IS NULL";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(&store->connection, text, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        int64_t volume_id = sql_take_number(&rows), binding_id = sql_take_number(&rows);

        r = callback(userdata, volume_id, binding_id, (uint32_t)sql_take_number(&rows));
    }
    return r;
}
