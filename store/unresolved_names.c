/* SPDX-License-Identifier: Apache-2.0 */
/* unresolved_names.c - volumes whose directory's name is a hash of their path.
 *
 * A hash cannot be reversed, but a path can be hashed: every volume keeps the hash of its path, so
 * that names are found by index in either direction. A hash never stands for another path, so a
 * path once known stays known, and a directory that comes back needs no search.
 */
#include <string.h>

#include "store/internal.h"

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
    static const char set[] =
        "UPDATE volumes SET target_path = ?2, path_sha256 = ?3 WHERE volume_id = ?1";
    char hash[SHA256_HEX_BYTES];

    return sql_run(&store->connection, set, NULL, sql_number(volume_id), sql_text(path),
                   sql_text(hash_path(path, hash)));
}

int store_has_unresolved(struct store *store, bool *ret_has)
{
    static const char find[] =
        "SELECT 1 FROM volumes v JOIN entries e ON e.volume_id = v.volume_id AND e.gone = 0"
        " WHERE v.target_path IS NULL AND v.removed_at IS NULL"
        " AND length(e.key) = 64 AND e.key NOT GLOB '*[^0-9a-f]*' LIMIT 1";
    int r = sql_find_values(&store->connection, find, NULL, NULL, 0);

    *ret_has = r > 0;
    return r < 0 ? r : 0;
}

int store_path_of_hash(struct store *store, const char *hash,
                       char ret_path[static STORE_TARGET_BYTES])
{
    static const char find[] = "SELECT target_path FROM volumes WHERE path_sha256 = ?1 LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, find, &rows, sql_text(hash));

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
    int r = sql_find(&store->connection, find, ret_volume_id, sql_text(key));

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
    r = sql_find_values(&store->connection, find, NULL, NULL, 0);
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
        r = journal_write(store, &(struct journal_line){.kind = "path_learned",
                                                        .volume_id = volume_id,
                                                        .detail = {{"target_path", sql_text(path)},
                                                                   {"key", sql_text(key)},
                                                                   {"source", sql_text(source)}}});
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
    cleanup(sql_end) struct sql_rows rows = {0};
    int r =
        sql_query(&store->connection, page, &rows,
                  (struct sql_value){.type = SQL_TEXT, .text = after}, sql_number(CLAIMED_PATHS));

    while (r == 0 && (r = sql_next(&rows)) > 0)
        r = callback(userdata, sql_borrow_text(&rows));
    return r;
}
