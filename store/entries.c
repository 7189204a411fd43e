/* SPDX-License-Identifier: Apache-2.0 */
/* entries.c - metadata directories, and the volumes that they make.
 *
 * An entry is one directory: (layout, name). Entries of one target path are one volume; while the
 * path is not known, the name stands for it. Entries come and go one by one, and volume_refresh()
 * then derives what the volume is: which entry leads (kata before crust: it is what Kata reads),
 * and whether it is present or invalid (one entry that does not read well is enough: crustd then
 * does less).
 *
 * A name that comes back with another directory (device, inode or birth time) was removed and
 * staged again between two observations, so its volume ends and a new one begins, as if both had
 * been seen. An entry that never read well has no identity yet and takes the first one it gets.
 */
#include <string.h>

#include "store/store_internal.h"

/* ---- one row -------------------------------------------------------------------------------- */

/* SQLite compares the facts, so that none of them has to be copied. */

struct known_entry {
    int64_t entry_id; /* 0: none */
    int64_t volume_id;
    uint64_t device, inode;
    int64_t born_ns;
    char target_path[STORE_TARGET_BYTES];
    bool has_same_facts; /* as those observed */
    bool is_on_device;   /* its volume is on the device that the observed entry leads to */
    unsigned sandboxes;
};

#define FACTS                                                                                      \
    "problem, directory_device, directory_inode, directory_born_ns, mount_info_sha256,"            \
    " volume_type, device, fs_type, options, metadata, policy, pv, pod_uid, driver, "              \
    "volume_handle,"                                                                               \
    " defer_fs_mount, subpaths, remark, read_only, grows_file_system"
enum { FACT_VALUES = 19 }; /* the problem is none of them */

static void take_facts(const struct store_entry *entry,
                       struct sql_value ret_values[static FACT_VALUES])
{
    const struct sql_value values[FACT_VALUES] = {
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

#define KNOWN                                                                                      \
    "SELECT e.entry_id, e.volume_id, e.directory_device, e.directory_inode,"                       \
    " e.directory_born_ns, v.target_path"
#define FROM_KNOWN  " FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
#define WHERE_KNOWN " WHERE e.key = ?1 AND e.layout = ?2 AND e.gone = 0"

static void take_known(struct sql_rows *rows, struct known_entry *ret_entry)
{
    TAKE(rows, ret_entry->entry_id, ret_entry->volume_id, ret_entry->device, ret_entry->inode,
         ret_entry->born_ns, ret_entry->target_path);
}

static void forget_known(struct known_entry *entry)
{
    entry->entry_id = entry->volume_id = entry->born_ns = 0;
    entry->device = entry->inode = 0;
    entry->target_path[0] = '\0';
    entry->has_same_facts = entry->is_on_device = false;
    entry->sandboxes = 0;
}

/* The live entry of this name; entry_id 0: none. */
static int find_known(struct store *store, enum volume_layout layout, const char *key,
                      struct known_entry *ret_entry)
{
    static const char find[] = KNOWN FROM_KNOWN WHERE_KNOWN;
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, key, layout_name(layout));

    forget_known(ret_entry);
    if (r > 0)
        take_known(&rows, ret_entry);
    return r < 0 ? r : 0;
}

/* The same, and how it differs from what was observed. */
static int compare_known(struct store *store, const struct store_entry *entry,
                         struct known_entry *ret_entry)
{
    static const char find[] =
        KNOWN ", (" FACTS ") IS (NULL, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
              " ?16, ?17, ?18, ?19, ?20, ?21),"
              " (SELECT count(*) FROM entry_sandboxes n WHERE n.entry_id = e.entry_id),"
              " (" DEVICE_NAMES ") IS (?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30)"
              " AND d.announced = 0"
              " AND NOT EXISTS (SELECT 1 FROM layers l WHERE l.device_id = d.device_id)" FROM_KNOWN
              " LEFT JOIN devices d ON d.device_id = v.device_id" WHERE_KNOWN;
    enum { KEY_VALUES = 2, VALUES = KEY_VALUES + FACT_VALUES + DEVICE_COLUMNS };
    struct sql_value values[VALUES] = {sql_text(entry->key), sql_text(layout_name(entry->layout))};
    cleanup(sql_end) struct sql_rows rows = {0};
    int r;

    take_facts(entry, values + KEY_VALUES);
    if (entry->leads_to)
        device_take_columns(store, entry->leads_to, values + KEY_VALUES + FACT_VALUES);
    r = sql_first_values(&store->connection, find, &rows, values, VALUES);
    forget_known(ret_entry);
    if (r <= 0)
        return r;
    take_known(&rows, ret_entry);
    TAKE(&rows, ret_entry->has_same_facts, ret_entry->sandboxes, ret_entry->is_on_device);
    return 0;
}

/* After compare_known(): whether nothing has to be written. Sandboxes are compared in the order of
 * the index, which is that in which they are observed; another order has them written, which
 * changes nothing. As sql_next(), SQL_ROW: it is the same. */
static int is_same(struct store *store, const struct store_entry *entry,
                   const struct known_entry *known)
{
    static const char all[] =
        "SELECT sandbox_id FROM entry_sandboxes WHERE entry_id = ?1 ORDER BY sandbox_id";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r;

    if (!known->entry_id || entry->problem || !known->has_same_facts ||
        (entry->target_path && strcmp(known->target_path, entry->target_path) != 0) ||
        known->sandboxes != entry->sandboxes)
        return SQL_END;
    if (entry->sandboxes == 0)
        return SQL_ROW;
    r = STORE_QUERY(store, all, &rows, known->entry_id);
    for (unsigned i = 0; r == 0 && i < entry->sandboxes; i++) {
        r = sql_next(&rows);
        if (r <= 0 || strcmp(sql_borrow_text(&rows), entry->sandbox[i]) != 0)
            return r < 0 ? r : SQL_END;
        r = 0;
    }
    return r < 0 ? r : SQL_ROW;
}

#define NEW_FACTS                                                                                  \
    "excluded.problem, excluded.directory_device, excluded.directory_inode,"                       \
    " excluded.directory_born_ns, excluded.mount_info_sha256, excluded.volume_type,"               \
    " excluded.device, excluded.fs_type, excluded.options, excluded.metadata, excluded.policy,"    \
    " excluded.pv, excluded.pod_uid, excluded.driver, excluded.volume_handle,"                     \
    " excluded.defer_fs_mount, excluded.subpaths, excluded.remark, excluded.read_only,"            \
    " excluded.grows_file_system"

/* The facts, or the problem beside the facts that were known before. entry_id 0 makes a new row.
 * ret_changes (may be NULL): rows that are not as before. */
static int write_entry(struct store *store, const struct store_entry *entry, int64_t entry_id,
                       int64_t volume_id, int *ret_changes)
{
    static const char put[] =
        "INSERT INTO entries (entry_id, volume_id, layout, key, " FACTS ") VALUES (?1, ?2, ?3, ?4,"
        " NULL, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, "
        "?22, ?23)"
        " ON CONFLICT (entry_id) DO UPDATE SET (" FACTS ") = (" NEW_FACTS ")"
        " WHERE (" FACTS ") IS NOT (" NEW_FACTS ")";
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
    enum { ID_VALUES = 4 };
    struct sql_value values[ID_VALUES + FACT_VALUES] = {
        sql_known((uint64_t)entry_id),
        sql_number(volume_id),
        sql_text(layout_name(entry->layout)),
        sql_text(entry->key),
    };

    if (entry->problem)
        return STORE_CHANGE(store, put_problem, ret_changes, sql_known(entry_id), volume_id,
                            layout_name(entry->layout), entry->key, entry->problem, entry->pv,
                            entry->pod_uid, entry->driver, entry->volume_handle);
    take_facts(entry, values + ID_VALUES);
    return sql_run_values(&store->connection, put, ret_changes, values, array_length(values));
}

/* The names of sandboxes in the directory, of a new row that has none yet. */
static int add_sandboxes(struct store *store, const struct store_entry *entry, int64_t entry_id,
                         int *ret_changes)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < entry->sandboxes && i < STORE_ENTRY_SANDBOXES; i++) {
        int added = 0;

        r = STORE_CHANGE(
            store, "INSERT OR IGNORE INTO entry_sandboxes (entry_id, sandbox_id) VALUES (?1, ?2)",
            &added, entry_id, entry->sandbox[i]);
        *ret_changes += added;
    }
    return r;
}

/* Those of a row that may have some: no more and no less. */
static int write_sandboxes(struct store *store, const struct store_entry *entry, int64_t entry_id,
                           int *ret_changes)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, "SELECT sandbox_id FROM entry_sandboxes WHERE entry_id = ?1", &rows,
                        entry_id);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        const char *sandbox_id = sql_borrow_text(&rows);
        unsigned i = 0;

        while (i < entry->sandboxes && strcmp(entry->sandbox[i], sandbox_id) != 0)
            i++;
        r = 0;
        if (i == entry->sandboxes) {
            r = STORE_RUN(store,
                          "DELETE FROM entry_sandboxes WHERE entry_id = ?1 AND sandbox_id = ?2",
                          entry_id, sandbox_id);
            ++*ret_changes;
        }
    }
    return r < 0 ? r : add_sandboxes(store, entry, entry_id, ret_changes);
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
    const int64_t entry_id = entry->entry_id;
    int r = STORE_FIND(store, others, NULL, entry->volume_id, entry_id);

    if (r == SQL_ROW) {
        r = STORE_RUN(store, "DELETE FROM entries WHERE entry_id = ?1", entry_id);
        if (r == 0)
            r = volume_refresh(store, entry->volume_id);
        return r < 0 ? r : JOURNAL(store, "volume_changed", ABOUT(.volume_id = entry->volume_id));
    }
    if (r == 0)
        r = STORE_RUN(store, "UPDATE entries SET gone = 1 WHERE entry_id = ?1", entry_id);
    if (r == 0)
        r = STORE_RUN(store, "DELETE FROM entry_sandboxes WHERE entry_id = ?1", entry_id);
    return r < 0 ? r : volume_end(store, entry->volume_id);
}

/* ---- putting ------------------------------------------------------------------------------- */

/* A name whose path became known: the volume learns it, unless another volume has that path
 * already; then the entry joins that one and its old volume ends. */
static int learn_path(struct store *store, const struct store_entry *entry,
                      struct known_entry *known, bool *ret_changed)
{
    int64_t other = 0;
    int r;

    if (!entry->target_path || strcmp(known->target_path, entry->target_path) == 0)
        return 0;
    r = volume_find(store, entry->target_path, NULL, &other);
    if (r < 0)
        return r;
    *ret_changed = true;
    if (!other && !known->target_path[0])
        return volume_set_path(store, known->volume_id, entry->target_path);
    r = end_entry(store, known);
    forget_known(known);
    return r;
}

/* A directory that was moved to the trash and is back, unless its path has another volume by now.
 * The entry is 0 if another one of the volume was removed last. As sql_next(). */
static int find_returned(struct store *store, const struct store_entry *entry,
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
    int r = STORE_FIRST(store, find, &rows, entry->key, layout_name(entry->layout),
                        sql_known(entry->directory_device), sql_known(entry->directory_inode),
                        sql_known(entry->directory_born_ns));

    if (r <= 0)
        return r;
    TAKE(&rows, ret_known->entry_id, ret_known->volume_id);
    ret_known->inode = entry->directory_inode;
    return SQL_ROW;
}

/* It is the same volume, because it is the same directory. */
static int revive(struct store *store, const struct known_entry *known)
{
    static const char entry[] =
        "UPDATE entries SET gone = 0, stale_reason = NULL, stale_held = 0 WHERE entry_id = ?1";
    static const char volume[] = "UPDATE volumes SET status = 'present', removed_at = NULL,"
                                 " last_changed = ?2 WHERE volume_id = ?1";
    int r = STORE_RUN(store, entry, known->entry_id);

    if (r == 0)
        r = STORE_RUN(store, "DELETE FROM entries WHERE volume_id = ?1 AND gone = 1",
                      known->volume_id);
    if (r == 0)
        r = STORE_RUN(store, volume, known->volume_id, store->now_ms);
    if (r == 0)
        r = STORE_RUN(store, "UPDATE meta SET live_volumes = live_volumes + 1 WHERE one = 1");
    store->has_no_unnamed = false; /* its own may be unknown */
    return r < 0 ? r : JOURNAL(store, "volume_returned", ABOUT(.volume_id = known->volume_id));
}

/* From the one that is known by this name to the entry that this one continues, or none. */
static int resolve_entry(struct store *store, const struct store_entry *entry,
                         struct known_entry *known, bool *ret_changed)
{
    int r = 0;

    if (is_another_directory(known, entry)) {
        r = end_entry(store, known);
        forget_known(known);
        *ret_changed = true;
    }
    if (r == 0 && known->entry_id)
        return learn_path(store, entry, known, ret_changed);
    if (r == 0)
        r = find_returned(store, entry, known);
    if (r > 0) {
        r = revive(store, known);
        *ret_changed = true;
    }
    return r;
}

/* A volume is counted once, when its metadata first reads well. Volumes on record at start were
 * counted by the run that recorded them. In memory everything looks new, and is counted when the
 * file has it later. */
static void count_volume(struct store *store, const struct store_entry *entry, bool added,
                         const struct known_entry *known)
{
    const bool was_never_read = known->entry_id && !known->inode;

    if (store->path && !entry->problem && (added || was_never_read))
        count_published(store);
}

/* ---- a volume that nothing is known of ------------------------------------------------------ */

/* Nor of its name or its path. As sql_next(), SQL_ROW: it is unknown. */
static int is_unknown(struct store *store, const struct store_entry *entry,
                      const struct known_entry *known)
{
    static const char find[] =
        "SELECT NOT EXISTS (SELECT 1 FROM trash WHERE key = ?1) AND NOT EXISTS"
        " (SELECT 1 FROM volumes WHERE target_path = ?2 AND removed_at IS NULL)";
    int64_t is_new;
    int r;

    if (known->entry_id || entry->problem || !entry->target_path)
        return SQL_END;
    r = STORE_FIND(store, find, &is_new, entry->key, entry->target_path);
    return r <= 0 ? r : is_new ? SQL_ROW : SQL_END;
}

/* Each row once, as it will stay. */
static int put_unknown(struct store *store, const struct store_entry *entry,
                       struct store_entry_put *ret_put)
{
    int64_t device_id = 0;
    int names = 0;
    int r = volume_count(store);

    /* Its device, if that is new as well; else the volume is put on it as any other one is. */
    if (r == 0 && entry->leads_to)
        r = device_insert(store, entry->leads_to, &device_id);
    if (r == 0)
        r = volume_add(store, entry, device_id, &ret_put->volume_id);
    if (r == 0)
        r = write_entry(store, entry, 0, ret_put->volume_id, NULL);
    if (r == 0)
        r = add_sandboxes(store, entry, sqlite3_last_insert_rowid(store->connection.db), &names);
    if (r == 0 && device_id)
        r = device_journal_seen(store, entry->leads_to);
    if (r == 0 && device_id)
        r = JOURNAL(store, "device_found",
                    ABOUT(.volume_id = ret_put->volume_id, .device = entry->leads_to->name,
                          .is_complete = true));
    if (r != 0)
        return r;
    count_volume(store, entry, true, &(struct known_entry){0});
    ret_put->changed = true;
    ret_put->is_on = device_id != 0;
    return 0;
}

/* ---- any other ------------------------------------------------------------------------------- */

static int put_known(struct store *store, const struct store_entry *entry,
                     struct known_entry *known, int64_t *ret_volume_id, bool *ret_changed)
{
    bool changed = false, added = false;
    int facts = 0, names = 0;
    int64_t entry_id, volume_id;
    int r = resolve_entry(store, entry, known, &changed);

    volume_id = known->volume_id;
    if (r == 0 && !volume_id)
        r = volume_find(store, entry->target_path, entry->key, &volume_id);
    if (r == 0 && !volume_id) {
        r = volume_count(store);
        if (r == 0)
            r = volume_add(store, entry, 0, &volume_id);
        added = true;
    }
    if (r == 0)
        r = write_entry(store, entry, known->entry_id, volume_id, &facts);
    if (r != 0)
        return r;
    entry_id = known->entry_id ? known->entry_id : sqlite3_last_insert_rowid(store->connection.db);
    r = write_sandboxes(store, entry, entry_id, &names);
    changed = changed || facts || names;
    if (r == 0 && changed)
        r = volume_refresh(store, volume_id);
    if (r == 0 && changed && (!added || entry->problem))
        r = JOURNAL(store, entry->problem ? "volume_invalid" : "volume_changed",
                    ABOUT(.volume_id = volume_id), "layout", layout_name(entry->layout), "problem",
                    entry->problem, "mount_info_sha256", entry->mount_info_sha256, "sandboxes",
                    entry->sandboxes);
    if (r < 0)
        return r;
    count_volume(store, entry, added, known);
    *ret_volume_id = volume_id;
    *ret_changed = changed;
    return 0;
}

int store_put_entry_on_device(struct store *store, const struct store_entry *entry,
                              struct store_entry_put *ret_put)
{
    struct known_entry known;
    int r = compare_known(store, entry, &known);

    *ret_put = (struct store_entry_put){0};
    if (r == 0)
        r = is_same(store, entry, &known);
    if (r == SQL_ROW) {
        *ret_put = (struct store_entry_put){known.volume_id, false, known.is_on_device};
        return 0;
    }
    if (r == 0)
        r = is_unknown(store, entry, &known);
    if (r == SQL_ROW)
        return put_unknown(store, entry, ret_put);
    return r < 0 ? r : put_known(store, entry, &known, &ret_put->volume_id, &ret_put->changed);
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
    int r = find_known(store, layout, key, &known);

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
    int r = STORE_FIND_TEXT(store, find, ret_key, STORE_KEY_BYTES);

    return r < 0 ? r : 0;
}

/* Of at most so many; -1: all. */
static int each_key(struct store *store, const char *text, enum volume_layout layout, int64_t most,
                    int (*callback)(void *userdata, const char *key), void *userdata)
{
    return STORE_EACH_TEXT(store, text, callback, userdata, layout_name(layout), most);
}

int store_each_entry(struct store *store, enum volume_layout layout,
                     int (*callback)(void *userdata, const char *key), void *userdata)
{
    static const char all[] = "SELECT key FROM entries WHERE layout = ?1 AND gone = 0 LIMIT ?2";

    return each_key(store, all, layout, -1, callback, userdata);
}

int store_each_young_entry(struct store *store, enum volume_layout layout,
                           int (*callback)(void *userdata, const char *key), void *userdata)
{
    static const char youngest[] =
        "SELECT key FROM entries WHERE layout = ?1 AND gone = 0 AND pv IS NOT NULL"
        " ORDER BY entry_id DESC LIMIT ?2";

    return each_key(store, youngest, layout, STORE_YOUNG, callback, userdata);
}
