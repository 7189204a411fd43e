/* SPDX-License-Identifier: Apache-2.0 */
/* entries.c - metadata directories, and the volumes that they make.
 *
 * An entry is one directory: (layout, name). Entries of one target path are one volume; while the
 * path is not known, the name stands for it. Entries come and go one by one, and refresh_volume()
 * then derives what the volume is: which entry leads (kata before crust: it is what Kata reads),
 * and whether it is present or invalid (one entry that does not read well is enough: crustd then
 * does less).
 *
 * A name that comes back with another directory (device, inode or birth time) was removed and
 * staged again between two observations, so its volume ends and a new one begins, as if both had
 * been seen. An entry that never read well has no identity yet and takes the first one it gets.
 */
#include <stddef.h>
#include <string.h>

#include "store/schema.h"
#include "store/store_internal.h"

/* ---- one row -------------------------------------------------------------------------------- */

/* SQLite compares the facts, so that none of them has to be copied. */
struct known_entry {
    int64_t entry_id; /* 0: none */
    int64_t volume_id;
    uint64_t device, inode;
    int64_t born_ns;
    bool has_same_facts; /* as those observed */
    bool is_on_device;   /* its volume is on the device that the observed entry leads to */
    unsigned sandboxes;
    char target_path[STORE_TARGET_BYTES];
};

#define FACTS                                                                                      \
    "problem, directory_device, directory_inode, directory_born_ns, mount_info_sha256,"            \
    " volume_type, device, fs_type, options, metadata, policy, pv, pod_uid, driver, "              \
    "volume_handle,"                                                                               \
    " defer_fs_mount, subpaths, remark, read_only, grows_file_system"
#define FACT_VALUES_FROM_5                                                                         \
    "?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23"
enum { ID_VALUES = 4, FACT_VALUES = 19 }; /* the problem is none of them */

static void take_values(const struct store_entry *entry, int64_t entry_id, int64_t volume_id,
                        struct sql_value ret_values[static ID_VALUES + FACT_VALUES])
{
    const struct sql_value values[ID_VALUES + FACT_VALUES] = {
        sql_known((uint64_t)entry_id),
        sql_number(volume_id),
        sql_text(layout_name(entry->layout)),
        sql_text(entry->key),
        sql_known(entry->directory_device),
        sql_known(entry->directory_inode),
        sql_known((uint64_t)entry->directory_born_ns),
        sql_text(entry->mount_info_sha256),
        sql_text(entry->volume_type),
        sql_text(entry->device),
        sql_text(entry->fs_type),
        sql_text(entry->options),
        sql_text(entry->metadata),
        sql_number(entry->policy),
        sql_text(entry->pv),
        sql_text(entry->pod_uid),
        sql_text(entry->driver),
        sql_text(entry->volume_handle),
        entry->defer_fs_mount == STORE_UNSAID ? sql_known(0)
                                              : sql_number(entry->defer_fs_mount == STORE_YES),
        sql_text(entry->subpaths),
        sql_text(entry->remark),
        sql_number(entry->read_only),
        sql_number(entry->grows_file_system),
    };

    memcpy(ret_values, values, sizeof(values));
}

static void forget_known(struct known_entry *entry)
{
    memset(entry, 0, offsetof(struct known_entry, target_path));
    entry->target_path[0] = '\0';
}

/* The live entry of this name (entry_id 0: none), and how it differs from what was observed. */
static int find_known(struct store *store, const struct store_entry *entry,
                      struct known_entry *ret_entry)
{
    static const char find[] =
        "SELECT e.entry_id, e.volume_id, e.directory_device, e.directory_inode,"
        " e.directory_born_ns, v.target_path, (" FACTS ") IS (NULL, " FACT_VALUES_FROM_5 "),"
        " (SELECT count(*) FROM entry_sandboxes n WHERE n.entry_id = e.entry_id),"
        " (" DEVICE_NAMES ") IS (?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32)"
        " AND d.announced = 0"
        " AND NOT EXISTS (SELECT 1 FROM layers l WHERE l.device_id = d.device_id)"
        " FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
        " LEFT JOIN devices d ON d.device_id = v.device_id"
        " WHERE e.key = ?4 AND e.layout = ?3 AND e.gone = 0";
    struct sql_value values[ID_VALUES + FACT_VALUES + DEVICE_COLUMNS] = {0};
    cleanup(sql_end) struct sql_rows rows = {0};
    int r;

    take_values(entry, 0, 0, values);
    if (entry->leads_to)
        device_take_columns(store, entry->leads_to, values + ID_VALUES + FACT_VALUES);
    r = sql_first_values(&store->connection, find, &rows, values, array_length(values));
    forget_known(ret_entry);
    TAKE(&rows, ret_entry->entry_id, ret_entry->volume_id, ret_entry->device, ret_entry->inode,
         ret_entry->born_ns, ret_entry->target_path, ret_entry->has_same_facts,
         ret_entry->sandboxes, ret_entry->is_on_device);
    return r < 0 ? r : 0;
}

/* After find_known(): whether nothing has to be written. Sandboxes are compared in the order of
 * the index, which is that in which they are observed; another order has them written, which
 * changes nothing. */
static bool is_same(struct store *store, const struct store_entry *entry,
                    const struct known_entry *known)
{
    static const char all[] =
        "SELECT sandbox_id FROM entry_sandboxes WHERE entry_id = ?1 ORDER BY sandbox_id";
    cleanup(sql_end) struct sql_rows rows = {0};

    if (!known->entry_id || entry->problem || !known->has_same_facts ||
        (entry->target_path && strcmp(known->target_path, entry->target_path) != 0) ||
        known->sandboxes != entry->sandboxes)
        return false;
    if (entry->sandboxes)
        STORE_QUERY(store, all, &rows, known->entry_id);
    for (unsigned i = 0; i < entry->sandboxes; i++)
        if (sql_next(&rows) <= 0 || strcmp(sql_borrow_text(&rows), entry->sandbox[i]) != 0)
            return false;
    return true;
}

/* The facts, or the problem beside the facts that were known before. entry_id 0 makes a new row.
 * Whether any is not as before. */
static bool write_entry(struct store *store, const struct store_entry *entry, int64_t entry_id,
                        int64_t volume_id)
{
    static const char put[] =
        "INSERT INTO entries (entry_id, volume_id, layout, key, " FACTS ")"
        " VALUES (?1, ?2, ?3, ?4, NULL, " FACT_VALUES_FROM_5 ")"
        " ON CONFLICT (entry_id) DO UPDATE" SET_IF_OTHER(FACTS, "NULL, " FACT_VALUES_FROM_5);
    /* The owner follows from the path, and so is known even for an entry that never read well. */
    static const char put_problem[] =
        "INSERT INTO entries AS e (entry_id, volume_id, layout, key, problem, pv, pod_uid, driver,"
        " volume_handle) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        " ON CONFLICT (entry_id) DO UPDATE SET problem = excluded.problem,"
        " pv = coalesce(e.pv, excluded.pv), pod_uid = coalesce(e.pod_uid, excluded.pod_uid),"
        " driver = coalesce(e.driver, excluded.driver),"
        " volume_handle = coalesce(e.volume_handle, excluded.volume_handle)"
        " WHERE e.problem IS NOT excluded.problem OR e.pv IS NULL AND excluded.pv IS NOT NULL"
        " OR e.driver IS NULL AND excluded.driver IS NOT NULL";
    struct sql_value values[ID_VALUES + FACT_VALUES];

    if (entry->problem)
        return STORE_CHANGE(store, put_problem, sql_known(entry_id), volume_id,
                            layout_name(entry->layout), entry->key, entry->problem, entry->pv,
                            entry->pod_uid, entry->driver, entry->volume_handle) > 0;
    take_values(entry, entry_id, volume_id, values);
    return sql_change_values(&store->connection, put, values, array_length(values)) > 0;
}

/* The names of sandboxes in the directory, no more and no less. Whether any is not as before. */
static bool write_sandboxes(struct store *store, const struct store_entry *entry, int64_t entry_id,
                            bool is_new)
{
    static const char add[] =
        "INSERT OR IGNORE INTO entry_sandboxes (entry_id, sandbox_id) VALUES (?1, ?2)";
    bool changed =
        !is_new &&
        store_delete_others(store, "SELECT sandbox_id FROM entry_sandboxes WHERE entry_id = ?1",
                            "DELETE FROM entry_sandboxes WHERE entry_id = ?1"
                            " AND sandbox_id = ?2",
                            entry_id, entry->sandbox, sizeof(*entry->sandbox), entry->sandboxes);

    for (unsigned i = 0; i < entry->sandboxes && i < STORE_ENTRY_SANDBOXES; i++)
        changed |= STORE_CHANGE(store, add, entry_id, entry->sandbox[i]) > 0;
    return changed;
}

/* ---- a volume's life ------------------------------------------------------------------------- */

/* A volume begins with its first entry and ends with its last one.
 *
 * A directory's name may be the hash of the path. A hash cannot be reversed, but a path can be
 * hashed: every volume keeps the hash of its path, so that names are found by index in either
 * direction. A hash never stands for another path, so a path once known stays known, and a
 * directory that comes back needs no search.
 */

enum { CLAIMED_PATHS = 64 };

/* "" for NULL. */
static const char *hash_path(const char *path, char ret_hash[static SHA256_HEX_BYTES])
{
    ret_hash[0] = '\0';
    if (path)
        sha256_hex(path, strlen(path), ret_hash);
    return ret_hash;
}

static int set_path(struct store *store, int64_t volume_id, const char *path)
{
    char hash[SHA256_HEX_BYTES];

    return STORE_RUN(store,
                     "UPDATE volumes SET target_path = ?2, path_sha256 = ?3 WHERE volume_id = ?1",
                     volume_id, path, hash_path(path, hash));
}

int store_find_volume(struct store *store, const char *target_path, int64_t *ret_volume_id)
{
    *ret_volume_id = STORE_NUMBER(
        store, "SELECT volume_id FROM volumes WHERE target_path = ?1 AND removed_at IS NULL",
        target_path);
    return STORE_RESULT(store);
}

/* The live volume of this path, or of this name if no path is known for it; 0: none. */
static int64_t find_volume(struct store *store, const char *target_path, const char *key)
{
    static const char by_key[] =
        "SELECT e.volume_id FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
        " WHERE e.key = ?1 AND e.gone = 0 AND v.target_path IS NULL AND v.removed_at IS NULL";
    int64_t volume_id;

    if (!target_path)
        return STORE_NUMBER(store, by_key, key);
    store_find_volume(store, target_path, &volume_id);
    return volume_id;
}

/* One more live volume, or STORE_TOO_MANY. */
static int count_live_volume(struct store *store)
{
    static const char count[] = "UPDATE meta SET live_volumes = live_volumes + 1"
                                " WHERE one = 1 AND live_volumes < ?1";

    int r = STORE_CHANGE(store, count, STORE_VOLUMES);

    return r < 0 ? r : r > 0 ? STORE_PUT : STORE_TOO_MANY;
}

/* Its leading entry is the next that is inserted. device_id 0: not known. */
static int64_t add_volume(struct store *store, const struct store_entry *entry, int64_t device_id)
{
    static const char insert[] =
        "INSERT INTO volumes (target_path, path_sha256, entry_id, status, device_id, state, reason,"
        " state_since, first_seen, last_changed)"
        " VALUES (?1, ?2, (SELECT coalesce(max(entry_id), 0) + 1 FROM entries), 'present', ?4,"
        "  'unknown', 'none', ?3, ?3, ?3)";
    char hash[SHA256_HEX_BYTES];
    int64_t volume_id;

    STORE_RUN(store, insert, entry->target_path, hash_path(entry->target_path, hash), store->now_ms,
              sql_known(device_id));
    volume_id = sqlite3_last_insert_rowid(store->connection.db);
    store->has_no_unnamed = store->has_no_unnamed && entry->target_path;
    JOURNAL(store, "volume_added", ABOUT(.volume_id = volume_id, .is_complete = true),
            "target_path", entry->target_path, "layout", layout_name(entry->layout), "key",
            entry->key);
    return volume_id;
}

/* Subqueries, because UPDATE … FROM would build a table for its one row. */
#define LIVE_ENTRIES "FROM entries WHERE volume_id = ?1 AND gone = 0"

/* Makes of the volume what its entries say. */
static int refresh_volume(struct store *store, int64_t volume_id)
{
    static const char refresh[] =
        "UPDATE volumes SET last_changed = ?2,"
        " entry_id = coalesce((SELECT min(entry_id) " LIVE_ENTRIES " AND layout = 'kata'),"
        "  (SELECT min(entry_id) " LIVE_ENTRIES ")),"
        " status = CASE WHEN EXISTS (SELECT 1 " LIVE_ENTRIES " AND problem IS NOT NULL)"
        "  THEN 'invalid' ELSE 'present' END WHERE volume_id = ?1";

    return STORE_RUN(store, refresh, volume_id, store->now_ms);
}

static int end_volume(struct store *store, int64_t volume_id)
{
    static const char end[] =
        "UPDATE volumes SET status = CASE WHEN EXISTS (SELECT 1 FROM trash t"
        "  WHERE t.volume_id = ?1 AND t.file IS NULL) THEN 'quarantined' ELSE 'removed' END,"
        " device_id = NULL, attempts = 0,"
        " next_attempt_ns = NULL, next_attempt_ms = NULL, last_changed = ?2, removed_at = ?2"
        " WHERE volume_id = ?1;"
        "UPDATE meta SET live_volumes = live_volumes - 1 WHERE one = 1";
    struct store_volume volume = {.volume_id = volume_id};
    int r;

    /* It names the sandbox while the binding is open. */
    JOURNAL(store, "volume_removed", ABOUT(.volume_id = volume_id));
    store_close_binding(store, volume_id);
    STORE_RUN(store, end, volume_id, store->now_ms);
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

    STORE_FIND_TEXT(store, find, ret_sandbox_id, STORE_SANDBOX_ID_BYTES, volume_id);
    return STORE_RESULT(store);
}

/* ---- unresolved names ----------------------------------------------------------------------- */

int store_has_unresolved(struct store *store, bool *ret_has)
{
    static const char find[] =
        "SELECT 1 FROM volumes v JOIN entries e ON e.volume_id = v.volume_id AND e.gone = 0"
        " WHERE v.target_path IS NULL AND v.removed_at IS NULL"
        " AND length(e.key) = 64 AND e.key NOT GLOB '*[^0-9a-f]*' LIMIT 1";

    *ret_has = STORE_HAS(store, find);
    return STORE_RESULT(store);
}

int store_path_of_hash(struct store *store, const char *hash,
                       char ret_path[static STORE_TARGET_BYTES])
{
    STORE_FIND_TEXT(store, "SELECT target_path FROM volumes WHERE path_sha256 = ?1 LIMIT 1",
                    ret_path, STORE_TARGET_BYTES, hash);
    return STORE_RESULT(store);
}

int store_learn_path(struct store *store, const char *path, const char *source,
                     char ret_key[static STORE_KEY_BYTES], int64_t *ret_volume_id)
{
    static const char has_unnamed[] =
        "SELECT 1 FROM volumes WHERE target_path IS NULL AND removed_at IS NULL LIMIT 1";

    *ret_volume_id = 0;
    /* Nearly always there is none, and each path that appears asks. */
    if (!store->has_no_unnamed)
        store->has_no_unnamed = !STORE_HAS(store, has_unnamed) && STORE_RESULT(store) == 0;
    if (store->has_no_unnamed || strlen(path) >= STORE_TARGET_BYTES)
        return STORE_RESULT(store);
    *ret_volume_id = find_volume(store, NULL, hash_path(path, ret_key));
    if (!*ret_volume_id)
        return STORE_RESULT(store);
    set_path(store, *ret_volume_id, path);
    return JOURNAL(store, "path_learned", ABOUT(.volume_id = *ret_volume_id), "target_path", path,
                   "key", ret_key, "source", source);
}

int store_each_claimed_path(struct store *store, const char *after,
                            int (*callback)(void *userdata, const char *path), void *userdata)
{
    static const char page[] =
        "SELECT DISTINCT path FROM sandbox_claims WHERE path > ?1 ORDER BY path LIMIT ?2";

    return STORE_EACH_TEXT(store, page, callback, userdata,
                           ((struct sql_value){.type = SQL_TEXT, .text = after}), CLAIMED_PATHS);
}

/* ---- the end of an entry -------------------------------------------------------------------- */

/* Birth times count only where both are known. */
static bool is_another_directory(const struct known_entry *known, const struct store_entry *entry)
{
    if (!known->entry_id || entry->problem || !known->inode)
        return false;
    return known->inode != entry->directory_inode || known->device != entry->directory_device ||
           (known->born_ns && entry->directory_born_ns &&
            known->born_ns != entry->directory_born_ns);
}

/* A volume's last entry stays as the record of the removed volume; any other one is deleted. */
static int end_entry(struct store *store, const struct known_entry *entry)
{
    static const char others[] =
        "SELECT 1 FROM entries WHERE volume_id = ?1 AND gone = 0 AND entry_id <> ?2";

    if (STORE_HAS(store, others, entry->volume_id, entry->entry_id)) {
        STORE_RUN(store, "DELETE FROM entries WHERE entry_id = ?1", entry->entry_id);
        refresh_volume(store, entry->volume_id);
        return JOURNAL(store, "volume_changed", ABOUT(.volume_id = entry->volume_id));
    }
    STORE_RUN(store,
              "UPDATE entries SET gone = 1 WHERE entry_id = ?1;"
              "DELETE FROM entry_sandboxes WHERE entry_id = ?1",
              entry->entry_id);
    return end_volume(store, entry->volume_id);
}

/* ---- putting ------------------------------------------------------------------------------- */

/* A name whose path became known: the volume learns it, unless another volume has that path
 * already; then the entry joins that one and its old volume ends. */
static bool learn_path(struct store *store, const struct store_entry *entry,
                       struct known_entry *known)
{
    if (!entry->target_path || strcmp(known->target_path, entry->target_path) == 0)
        return false;
    if (!known->target_path[0] && !find_volume(store, entry->target_path, NULL)) {
        set_path(store, known->volume_id, entry->target_path);
    } else {
        end_entry(store, known);
        forget_known(known);
    }
    return true;
}

/* A directory that was moved to the trash and is back, unless its path has another volume by now.
 * The entry is 0 if another one of the volume was removed last. */
static bool find_returned(struct store *store, const struct store_entry *entry,
                          struct known_entry *ret_known)
{
    static const char find[] =
        "SELECT coalesce(e.entry_id, 0), t.volume_id FROM trash t"
        " JOIN volumes v ON v.volume_id = t.volume_id"
        " LEFT JOIN entries e ON e.entry_id = v.entry_id AND e.key = t.key AND e.layout = t.layout"
        " WHERE t.key = ?1 AND t.layout = ?2 AND v.status = 'quarantined'"
        " AND (t.directory_device, t.directory_inode, t.directory_born_ns) IS (?3, ?4, ?5)"
        " AND NOT EXISTS (SELECT 1 FROM volumes w WHERE w.target_path = v.target_path"
        "  AND w.removed_at IS NULL) LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};

    if (STORE_FIRST(store, find, &rows, entry->key, layout_name(entry->layout),
                    sql_known(entry->directory_device), sql_known(entry->directory_inode),
                    sql_known(entry->directory_born_ns)) <= 0)
        return false;
    TAKE(&rows, ret_known->entry_id, ret_known->volume_id);
    ret_known->inode = entry->directory_inode;
    return true;
}

/* From the one that is known by this name to the entry that this one continues, or none. Whether
 * something changed. */
static bool resolve_entry(struct store *store, const struct store_entry *entry,
                          struct known_entry *known)
{
    static const char revive[] =
        "UPDATE entries SET gone = 0, stale_reason = NULL, stale_held = 0 WHERE entry_id = ?1;"
        "DELETE FROM entries WHERE volume_id = ?2 AND gone = 1;"
        "UPDATE volumes SET status = 'present', removed_at = NULL, last_changed = ?3"
        " WHERE volume_id = ?2;"
        "UPDATE meta SET live_volumes = live_volumes + 1 WHERE one = 1";
    bool is_another = is_another_directory(known, entry);

    if (is_another) {
        end_entry(store, known);
        forget_known(known);
    }
    if (known->entry_id)
        return learn_path(store, entry, known);
    if (!find_returned(store, entry, known))
        return is_another;
    /* It is the same volume, because it is the same directory. */
    STORE_RUN(store, revive, known->entry_id, known->volume_id, store->now_ms);
    store->has_no_unnamed = false; /* its own may be unknown */
    JOURNAL(store, "volume_returned", ABOUT(.volume_id = known->volume_id));
    return true;
}

static int put_changed(struct store *store, const struct store_entry *entry,
                       struct known_entry *known, struct store_entry_put *ret_put)
{
    bool changed = resolve_entry(store, entry, known), added = false;
    int64_t entry_id = known->entry_id, volume_id = known->volume_id, device_id = 0;

    if (!volume_id)
        volume_id = find_volume(store, entry->target_path, entry->key);
    if (!volume_id) {
        int r = count_live_volume(store);

        if (r != STORE_PUT)
            return r;
        /* Its device, if that is new as well; else the volume is put on it as any other one is. */
        if (entry->leads_to)
            device_id = device_insert(store, entry->leads_to);
        volume_id = add_volume(store, entry, device_id);
        added = true;
    }
    changed |= write_entry(store, entry, entry_id, volume_id);
    if (!entry_id)
        entry_id = sqlite3_last_insert_rowid(store->connection.db);
    changed |= write_sandboxes(store, entry, entry_id, added);
    if (device_id) {
        device_journal_seen(store, entry->leads_to);
        JOURNAL(
            store, "device_found",
            ABOUT(.volume_id = volume_id, .device = entry->leads_to->name, .is_complete = true));
    }
    if (changed && (!added || entry->problem)) {
        refresh_volume(store, volume_id);
        JOURNAL(store, entry->problem ? "volume_invalid" : "volume_changed",
                ABOUT(.volume_id = volume_id), "layout", layout_name(entry->layout), "problem",
                entry->problem, "mount_info_sha256", entry->mount_info_sha256, "sandboxes",
                entry->sandboxes);
    }
    /* A volume is counted once, when its metadata first reads well. Volumes on record at start were
     * counted by the run that recorded them. In memory everything looks new, and is counted when
     * the file has it later. */
    if (store->path && !entry->problem && (added || (known->entry_id && !known->inode)))
        store_count(store)->published++;
    *ret_put = (struct store_entry_put){volume_id, changed, device_id != 0};
    return STORE_RESULT(store);
}

int store_put_entry_on_device(struct store *store, const struct store_entry *entry,
                              struct store_entry_put *ret_put)
{
    struct known_entry known;
    int r = find_known(store, entry, &known);

    *ret_put = (struct store_entry_put){0};
    if (r < 0)
        return r;
    if (is_same(store, entry, &known)) {
        *ret_put = (struct store_entry_put){known.volume_id, false, known.is_on_device};
        return 0;
    }
    return put_changed(store, entry, &known, ret_put);
}

int store_note_published(struct store *store, int64_t volume_id, const char *sandbox_id)
{
    static const char note[] =
        "UPDATE entry_sandboxes SET published = 1 WHERE sandbox_id = ?2 AND published = 0"
        " AND entry_id IN (SELECT entry_id FROM entries WHERE volume_id = ?1 AND gone = 0)";

    return STORE_RUN(store, note, volume_id, sandbox_id);
}

int store_remove_entry(struct store *store, enum volume_layout layout, const char *key,
                       int64_t *ret_volume_id)
{
    struct known_entry known;
    int r = find_known(store, &(const struct store_entry){.layout = layout, .key = key}, &known);

    if (r == 0 && known.entry_id)
        r = end_entry(store, &known);
    if (r == 0)
        *ret_volume_id = known.volume_id;
    return r;
}

int store_find_unclaimed(struct store *store, char ret_key[static STORE_KEY_BYTES])
{
    static const char find[] =
        "SELECT e.key FROM entries e INDEXED BY entries_without_directory"
        " JOIN volumes v ON v.volume_id = e.volume_id WHERE e.layout >= 'none' AND e.gone = 0"
        " AND NOT EXISTS (SELECT 1 FROM sandbox_claims c WHERE c.path = v.target_path)"
        " AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.problem IS NOT NULL"
        "  AND s.gone_at IS NULL) LIMIT 1";

    STORE_FIND_TEXT(store, find, ret_key, STORE_KEY_BYTES);
    return STORE_RESULT(store);
}

int store_each_entry(struct store *store, enum volume_layout layout, bool young,
                     int (*callback)(void *userdata, const char *key), void *userdata)
{
    static const char all[] = "SELECT key FROM entries WHERE layout = ?1 AND gone = 0";
    static const char youngest[] =
        "SELECT key FROM entries WHERE layout = ?1 AND gone = 0 AND pv IS NOT NULL"
        " ORDER BY entry_id DESC LIMIT ?2";

    return STORE_EACH_TEXT(store, young ? youngest : all, callback, userdata, layout_name(layout),
                           STORE_YOUNG);
}
