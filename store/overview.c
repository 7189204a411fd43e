/* SPDX-License-Identifier: Apache-2.0 */
/* overview.c - one statement per list. Counting 4,000 volumes is one walk over their table. */
#include "store/overview.h"

#include "store/internal.h"
#include "store/schema.h"

static int finish(struct store_reader *reader, int r, struct error *error)
{
    return r < 0 ? error_set_errno(error, r, "%s", reader->connection->error_text) : 0;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static int count_groups(struct store_reader *reader, const char *text, unsigned names,
                        store_group_callback *callback, void *userdata, struct error *error)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(reader->connection, text, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        const char *name[STORE_GROUP_NAMES] = {"", "", ""};

        for (unsigned i = 0; i < names; i++)
            name[i] = sql_borrow_text(&rows);
        r = callback(userdata, name, (uint64_t)sql_take_number(&rows));
    }
    return finish(reader, r, error);
}

int store_group_volumes(struct store_reader *reader, store_group_callback *callback, void *userdata,
                        struct error *error)
{
    static const char count[] =
        "SELECT CASE WHEN EXISTS (SELECT 1 FROM entries o WHERE o.volume_id = v.volume_id"
        " AND o.gone = 0 AND o.layout <> e.layout) THEN 'both' ELSE e.layout END AS layout_shown,"
        " v.state, v.reason, count(*)"
        " FROM volumes v LEFT JOIN entries e ON e.entry_id = v.entry_id"
        " WHERE v.removed_at IS NULL GROUP BY layout_shown, v.state, v.reason";

    return count_groups(reader, count, 3, callback, userdata, error);
}

int store_group_stalled(struct store_reader *reader, store_group_callback *callback, void *userdata,
                        struct error *error)
{
    static const char count[] = "SELECT v.state, v.reason, count(*) FROM volumes v"
                                " WHERE " V_IS_STALLED " GROUP BY v.state, v.reason";

    return count_groups(reader, count, 2, callback, userdata, error);
}

int store_group_stale(struct store_reader *reader, store_group_callback *callback, void *userdata,
                      struct error *error)
{
    static const char count[] = "SELECT stale_reason, count(*) FROM entries"
                                " WHERE gone = 0 AND stale_reason IS NOT NULL"
                                " GROUP BY stale_reason";

    return count_groups(reader, count, 1, callback, userdata, error);
}

int store_group_not_resizable(struct store_reader *reader, store_group_callback *callback,
                              void *userdata, struct error *error)
{
    static const char count[] = "SELECT v.resizable_reason, count(*) FROM volumes v"
                                " WHERE " V_IS_NOT_RESIZABLE " GROUP BY v.resizable_reason";

    return count_groups(reader, count, 1, callback, userdata, error);
}

int store_group_abnormal(struct store_reader *reader, store_group_callback *callback,
                         void *userdata, struct error *error)
{
    static const char count[] =
        "SELECT v.state, v.reason, " V_IS_STALLED " AS stalled, count(*) FROM volumes v"
        " WHERE v.removed_at IS NULL AND " V_IS_ABNORMAL_IN_GUEST
        " GROUP BY v.state, v.reason, stalled";

    return count_groups(reader, count, 3, callback, userdata, error);
}

int store_group_conditions(struct store_reader *reader, store_group_callback *callback,
                           void *userdata, struct error *error)
{
    static const char count[] =
        "SELECT coalesce(g.condition, 'unknown') AS said, count(*)"
        " FROM mappings m INDEXED BY mappings_open"
        " LEFT JOIN guest_stats g ON g.mapping_id = m.mapping_id WHERE m.until IS NULL"
        " GROUP BY said";

    return count_groups(reader, count, 1, callback, userdata, error);
}

int store_group_sandboxes(struct store_reader *reader, store_group_callback *callback,
                          void *userdata, struct error *error)
{
    static const char count[] = "SELECT runtime, hypervisor, count(*) FROM sandboxes"
                                " WHERE gone_at IS NULL GROUP BY runtime, hypervisor";

    return count_groups(reader, count, 2, callback, userdata, error);
}

int store_group_orphans(struct store_reader *reader, store_group_callback *callback, void *userdata,
                        struct error *error)
{
    static const char list[] =
        "SELECT s.sandbox_id, s.vmm_pid, coalesce((SELECT group_concat(name, ', ') FROM"
        "  (SELECT coalesce(e.pv, 'volume ' || v.volume_id) AS name FROM mappings m"
        "   JOIN volumes v ON v.volume_id = m.volume_id"
        "   LEFT JOIN entries e ON e.entry_id = v.entry_id"
        "   WHERE m.sandbox_ref = s.sandbox_ref" AND_IN_VM " LIMIT 4)), ''), 1"
        " FROM sandboxes s INDEXED BY sandboxes_orphaned"
        " WHERE s.orphaned = 1 AND s.gone_at IS NULL LIMIT 64";

    return count_groups(reader, list, 3, callback, userdata, error);
}

int store_group_drives(struct store_reader *reader, store_group_callback *callback, void *userdata,
                       struct error *error)
{
    static const char count[] = "SELECT state, count(*) FROM drive_mounts"
                                " WHERE ended_at IS NULL GROUP BY state";

    return count_groups(reader, count, 1, callback, userdata, error);
}

/* Not by the index of finished ones, which grows with history. */
int store_oldest_pending(struct store_reader *reader, int64_t *ret_ms, struct error *error)
{
    static const char find[] =
        "SELECT min(max(r.detected_at, coalesce(m.since, 0)))"
        " FROM resizes r INDEXED BY resizes_open"
        " JOIN volumes v ON v.volume_id = r.volume_id"
        " LEFT JOIN mappings m ON m.volume_id = r.volume_id AND m.until IS NULL"
        " WHERE r.finished_at IS NULL AND v.observed = 0"
        " AND v.state NOT IN ('unbound', 'detached', 'unmanaged')";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first_values(reader->connection, find, &rows, NULL, 0);

    if (r > 0)
        *ret_ms = sql_take_number(&rows);
    return finish(reader, r, error);
}

/* ---- lists --------------------------------------------------------------------------------- */

/* A PV that two pods of this node use is one device, and its guests see one file system. */
int store_list_usage(struct store_reader *reader, store_usage_line_callback *callback,
                     void *userdata, struct error *error)
{
    static const char list[] =
        "SELECT e.pv, min(" POD_NAMESPACE "), min(" E_CLAIM "),"
        " CASE WHEN min(s.pod_name) = max(s.pod_name) THEN min(s.pod_name) END,"
        " max(d.size_bytes), max(g.used_bytes) IS NOT NULL, max(g.used_bytes),"
        " max(g.available_bytes) FROM volumes v"
        " JOIN entries e ON e.entry_id = v.entry_id AND e.pv IS NOT NULL"
        " LEFT JOIN devices d ON d.device_id = v.device_id"
        " LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL"
        " LEFT JOIN guest_stats g ON g.mapping_id = m.mapping_id"
        " LEFT JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref"
        " WHERE v.removed_at IS NULL GROUP BY e.pv ORDER BY e.pv";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(reader->connection, list, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        struct store_usage_line line;

        line.pv = sql_borrow_text(&rows);
        line.namespace = sql_borrow_text(&rows);
        line.claim = sql_borrow_text(&rows);
        line.pod = sql_borrow_text(&rows);
        line.size_bytes = (uint64_t)sql_take_number(&rows);
        line.has_usage = sql_take_number(&rows) != 0;
        line.used_bytes = (uint64_t)sql_take_number(&rows);
        line.available_bytes = (uint64_t)sql_take_number(&rows);
        r = callback(userdata, &line);
    }
    return finish(reader, r, error);
}
