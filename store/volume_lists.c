/* SPDX-License-Identifier: Apache-2.0 */
/* volume_lists.c - which volumes a device, a sandbox, a directory or a point in time concerns. */
#include <string.h>

#include "store/store_internal.h"

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

    return STORE_EACH_NUMBER(store, text, callback, userdata, major, minor, store->boot_id);
}

int store_each_volume_of_file(struct store *store, uint64_t file_device, uint64_t inode,
                              store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT v.volume_id FROM devices d JOIN volumes v ON v.device_id = d.device_id"
        " WHERE d.kind <> 'block' AND d.inode = ?1 AND d.file_device = ?2 AND d.boot_id = ?3"
        " AND v.removed_at IS NULL";

    return STORE_EACH_NUMBER(store, text, callback, userdata, inode, file_device, store->boot_id);
}

int store_each_volume_of_device_id(struct store *store, int64_t device_id,
                                   store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM volumes WHERE device_id = ?1 AND removed_at IS NULL";

    return STORE_EACH_NUMBER(store, text, callback, userdata, device_id);
}

int store_each_volume_beside(struct store *store, const char *key, store_volume_callback *callback,
                             void *userdata)
{
    static const char text[] =
        "SELECT w.volume_id FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
        " JOIN volumes w ON w.device_id = v.device_id AND w.volume_id <> v.volume_id"
        " WHERE e.key = ?1 AND e.gone = 0 AND w.removed_at IS NULL";

    return STORE_EACH_NUMBER(store, text, callback, userdata, key);
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

    return STORE_EACH_NUMBER(store, text, callback, userdata, sandbox_id);
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

    return STORE_EACH_NUMBER(store, text, callback, userdata, sandbox_id);
}

int store_each_volume(struct store *store, store_volume_callback *callback, void *userdata)
{
    static const char text[] = "SELECT volume_id FROM volumes WHERE removed_at IS NULL";

    return STORE_EACH_NUMBER(store, text, callback, userdata);
}

int store_each_bound_volume(struct store *store, store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM mappings WHERE until IS NULL"
        " UNION SELECT volume_id FROM volumes WHERE state = 'blocked' AND removed_at IS NULL";

    return STORE_EACH_NUMBER(store, text, callback, userdata);
}

int store_each_volume_without_device(struct store *store, store_volume_callback *callback,
                                     void *userdata)
{
    static const char text[] = "SELECT volume_id FROM volumes"
                               " WHERE device_id IS NULL AND removed_at IS NULL"
                               " AND status = 'present'";

    return STORE_EACH_NUMBER(store, text, callback, userdata);
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

int store_each_volume_due(struct store *store, uint64_t now_ns, store_volume_callback *callback,
                          void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM volumes WHERE next_attempt_ns <= ?1 AND removed_at IS NULL";

    return STORE_EACH_NUMBER(store, text, callback, userdata, now_ns);
}

/* ---- unresolved names ----------------------------------------------------------------------- */

/* Volumes whose directory's name is a hash of their path.
 *
 * A hash cannot be reversed, but a path can be hashed: every volume keeps the hash of its path, so
 * that names are found by index in either direction. A hash never stands for another path, so a
 * path once known stays known, and a directory that comes back needs no search.
 */

enum { CLAIMED_PATHS = 64 };

const char *hash_path(const char *path, char ret_hash[static SHA256_HEX_BYTES])
{
    ret_hash[0] = '\0';
    if (path)
        sha256_hex(path, strlen(path), ret_hash);
    return ret_hash;
}

int volume_set_path(struct store *store, int64_t volume_id, const char *path)
{
    char hash[SHA256_HEX_BYTES];

    return STORE_RUN(store,
                     "UPDATE volumes SET target_path = ?2, path_sha256 = ?3 WHERE volume_id = ?1",
                     volume_id, path, hash_path(path, hash));
}

int store_has_unresolved(struct store *store, bool *ret_has)
{
    static const char find[] =
        "SELECT 1 FROM volumes v JOIN entries e ON e.volume_id = v.volume_id AND e.gone = 0"
        " WHERE v.target_path IS NULL AND v.removed_at IS NULL"
        " AND length(e.key) = 64 AND e.key NOT GLOB '*[^0-9a-f]*' LIMIT 1";
    int r = STORE_FIND(store, find, NULL);

    *ret_has = r > 0;
    return r < 0 ? r : 0;
}

int store_path_of_hash(struct store *store, const char *hash,
                       char ret_path[static STORE_TARGET_BYTES])
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, "SELECT target_path FROM volumes WHERE path_sha256 = ?1 LIMIT 1",
                        &rows, hash);

    if (r < 0)
        return r;
    ret_path[0] = '\0';
    if (r > 0)
        sql_take_text(&rows, ret_path, STORE_TARGET_BYTES);
    return 0;
}

int unresolved_find(struct store *store, const char *key, int64_t *ret_volume_id)
{
    static const char find[] =
        "SELECT e.volume_id FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
        " WHERE e.key = ?1 AND e.gone = 0 AND v.target_path IS NULL AND v.removed_at IS NULL";
    int r = STORE_FIND(store, find, ret_volume_id, key);

    return r < 0 ? r : 0;
}

/* Nearly always there is none, and each path that appears asks. */
static int has_unnamed(struct store *store)
{
    static const char find[] =
        "SELECT 1 FROM volumes WHERE target_path IS NULL AND removed_at IS NULL LIMIT 1";
    int r;

    if (store->has_no_unnamed)
        return SQL_END;
    r = STORE_FIND(store, find, NULL);
    store->has_no_unnamed = r == SQL_END;
    return r;
}

int store_learn_path(struct store *store, const char *path, const char *source,
                     char ret_key[static STORE_KEY_BYTES], int64_t *ret_volume_id)
{
    char key[SHA256_HEX_BYTES];
    int64_t volume_id;
    int r;

    *ret_volume_id = 0;
    r = has_unnamed(store);
    if (r <= 0 || strlen(path) >= STORE_TARGET_BYTES)
        return r < 0 ? r : 0;
    r = unresolved_find(store, hash_path(path, key), &volume_id);
    if (r < 0 || !volume_id)
        return r;
    r = volume_set_path(store, volume_id, path);
    if (r == 0)
        r = JOURNAL(store, "path_learned", ABOUT(.volume_id = volume_id), "target_path", path,
                    "key", key, "source", source);
    if (r < 0)
        return r;
    memcpy(ret_key, key, sizeof(key));
    *ret_volume_id = volume_id;
    return 0;
}

int store_each_claimed_path(struct store *store, const char *after,
                            int (*callback)(void *userdata, const char *path), void *userdata)
{
    static const char page[] =
        "SELECT DISTINCT path FROM sandbox_claims WHERE path > ?1 ORDER BY path LIMIT ?2";

    return STORE_EACH_TEXT(store, page, callback, userdata,
                           ((struct sql_value){.type = SQL_TEXT, .text = after}), CLAIMED_PATHS);
}
