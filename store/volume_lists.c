/* SPDX-License-Identifier: Apache-2.0 */
/* volume_lists.c - which volumes a device, a sandbox, a directory or a point in time concerns. */
#include "store/internal.h"

#define EACH_VOLUME(store, text, callback, userdata, ...)                                          \
    each_volume(store, text, callback, userdata, SQL_VALUES(__VA_ARGS__))

static int each_volume(struct store *store, const char *text, store_volume_callback *callback,
                       void *userdata, const struct sql_value *values, size_t count)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(&store->connection, text, &rows, values, count);

    while (r == 0 && (r = sql_next(&rows)) > 0)
        r = callback(userdata, sql_take_number(&rows));
    return r;
}

int store_each_volume_of_device(struct store *store, uint32_t major, uint32_t minor,
                                store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT v.volume_id FROM devices d JOIN volumes v ON v.device_id = d.device_id"
        " WHERE d.kind = 'block' AND d.major = ?1 AND d.minor = ?2 AND d.boot_id = ?3"
        " AND v.removed_at IS NULL"
        " UNION ALL SELECT v.volume_id FROM devices d JOIN layers l ON l.layer_id = d.device_id"
        " JOIN volumes v ON v.device_id = l.device_id"
        " WHERE d.kind = 'block' AND d.major = ?1 AND d.minor = ?2 AND d.boot_id = ?3"
        " AND v.removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_number(major), sql_number(minor),
                       sql_text(store->boot_id));
}

int store_each_volume_of_file(struct store *store, uint64_t file_device, uint64_t inode,
                              store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT v.volume_id FROM devices d JOIN volumes v ON v.device_id = d.device_id"
        " WHERE d.kind <> 'block' AND d.inode = ?1 AND d.file_device = ?2 AND d.boot_id = ?3"
        " AND v.removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_number((int64_t)inode),
                       sql_number((int64_t)file_device), sql_text(store->boot_id));
}

int store_each_volume_of_device_id(struct store *store, int64_t device_id,
                                   store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM volumes WHERE device_id = ?1 AND removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_number(device_id));
}

int store_each_volume_beside(struct store *store, const char *key, store_volume_callback *callback,
                             void *userdata)
{
    static const char text[] =
        "SELECT w.volume_id FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
        " JOIN volumes w ON w.device_id = v.device_id AND w.volume_id <> v.volume_id"
        " WHERE e.key = ?1 AND e.gone = 0 AND w.removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_text(key));
}

#define VOLUMES_OF_SANDBOX                                                                         \
    "SELECT e.volume_id FROM entry_sandboxes n JOIN entries e ON e.entry_id = n.entry_id"          \
    " WHERE n.sandbox_id = ?1 AND e.gone = 0"                                                      \
    " UNION SELECT m.volume_id FROM sandboxes s JOIN mappings m"                                   \
    " ON m.sandbox_ref = s.sandbox_ref AND m.until IS NULL"                                        \
    " WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"                                               \
    " UNION SELECT v.volume_id FROM sandboxes s JOIN sandbox_claims c"                             \
    " ON c.sandbox_ref = s.sandbox_ref JOIN volumes v ON v.target_path = c.path"                   \
    " AND v.removed_at IS NULL WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"

int store_each_volume_of_sandbox(struct store *store, const char *sandbox_id,
                                 store_volume_callback *callback, void *userdata)
{
    /* And those on a device that an orphaned VMM has open. */
    static const char text[] =
        VOLUMES_OF_SANDBOX " UNION SELECT v.volume_id FROM sandboxes s"
                           " JOIN sandbox_drives h ON h.sandbox_ref = s.sandbox_ref"
                           " JOIN devices d ON d.kind = 'block' AND d.major = h.major"
                           "  AND d.minor = h.minor AND d.boot_id = s.boot_id"
                           " JOIN volumes v ON v.device_id = d.device_id AND v.removed_at IS NULL"
                           " WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL AND s.orphaned = 1";

    return EACH_VOLUME(store, text, callback, userdata, sql_text(sandbox_id));
}

int store_each_bypassed_volume(struct store *store, const char *sandbox_id,
                               store_volume_callback *callback, void *userdata)
{
    /* Every path above a claim, each once: rtrim() takes the last part off. */
    static const char text[] =
        "WITH RECURSIVE above (path) AS (SELECT c.path FROM sandboxes s JOIN sandbox_claims c"
        " ON c.sandbox_ref = s.sandbox_ref WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"
        " UNION SELECT rtrim(rtrim(path, replace(path, '/', '')), '/') FROM above WHERE path <> '')"
        " SELECT v.volume_id FROM above a JOIN volumes v ON v.target_path = a.path"
        " AND v.removed_at IS NULL"
        " UNION SELECT e.volume_id FROM above a JOIN entries e ON e.subpaths = a.path"
        " AND e.gone = 0"
        " UNION SELECT volume_id FROM volumes WHERE state = 'blocked' AND reason = 'bypassed'";

    return EACH_VOLUME(store, text, callback, userdata, sql_text(sandbox_id));
}

int store_each_volume(struct store *store, store_volume_callback *callback, void *userdata)
{
    static const char text[] = "SELECT volume_id FROM volumes WHERE removed_at IS NULL";

    return each_volume(store, text, callback, userdata, NULL, 0);
}

int store_each_bound_volume(struct store *store, store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM mappings WHERE until IS NULL"
        " UNION SELECT volume_id FROM volumes WHERE state = 'blocked' AND removed_at IS NULL";

    return each_volume(store, text, callback, userdata, NULL, 0);
}

int store_each_volume_without_device(struct store *store, store_volume_callback *callback,
                                     void *userdata)
{
    static const char text[] = "SELECT volume_id FROM volumes"
                               " WHERE device_id IS NULL AND removed_at IS NULL"
                               " AND status = 'present'";

    return each_volume(store, text, callback, userdata, NULL, 0);
}

int store_each_mounted_file_system(struct store *store,
                                   int (*callback)(void *userdata, const char *fs_type),
                                   void *userdata)
{
    static const char find[] =
        "SELECT DISTINCT e.fs_type FROM mappings m JOIN volumes v ON v.volume_id = m.volume_id"
        " JOIN entries e ON e.entry_id = v.entry_id"
        " WHERE m.guest_bytes IS NOT NULL AND e.fs_type IS NOT NULL";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(&store->connection, find, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0)
        r = callback(userdata, sql_borrow_text(&rows));
    return r;
}

int store_each_volume_due(struct store *store, uint64_t now_ns, store_volume_callback *callback,
                          void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM volumes WHERE next_attempt_ns <= ?1 AND removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_number((int64_t)now_ns));
}
