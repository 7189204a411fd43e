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

#include "store/internal.h"

/* Birth times count only where both are known. */
static bool is_another_directory(const struct known_entry *known, const struct store_entry *entry)
{
    if (!known->entry_id || entry->problem || !known->inode)
        return false;
    return known->inode != entry->directory_inode || known->device != entry->directory_device ||
           (known->born_ns && entry->directory_born_ns &&
            known->born_ns != entry->directory_born_ns);
}

/* ---- the end of an entry -------------------------------------------------------------------- */

static int has_other_entries(struct store *store, const struct known_entry *entry)
{
    static const char others[] =
        "SELECT 1 FROM entries WHERE volume_id = ?1 AND gone = 0 AND entry_id <> ?2";

    return sql_find(&store->connection, others, NULL, sql_number(entry->volume_id),
                    sql_number(entry->entry_id));
}

/* A volume's last entry stays as the record of the removed volume; any other one is deleted. */
static int end_entry(struct store *store, const struct known_entry *entry)
{
    static const char forget[] = "DELETE FROM entries WHERE entry_id = ?1";
    static const char set_gone[] = "UPDATE entries SET gone = 1 WHERE entry_id = ?1";
    static const char forget_names[] = "DELETE FROM entry_sandboxes WHERE entry_id = ?1";
    struct sql_value entry_id = sql_number(entry->entry_id);
    int others = has_other_entries(store, entry);
    int r;

    if (others < 0)
        return others;
    if (others) {
        r = sql_run(&store->connection, forget, NULL, entry_id);
        if (r == 0)
            r = volume_refresh(store, entry->volume_id);
        return r < 0 ? r
                     : journal_write(store, &(struct journal_line){.kind = "volume_changed",
                                                                   .volume_id = entry->volume_id});
    }
    r = sql_run(&store->connection, set_gone, NULL, entry_id);
    if (r == 0)
        r = sql_run(&store->connection, forget_names, NULL, entry_id);
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
    entry_row_forget(known);
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
    int r =
        sql_first(&store->connection, find, &rows, sql_text(entry->key),
                  sql_text(layout_name(entry->layout)), sql_known(entry->directory_device),
                  sql_known(entry->directory_inode), sql_known((uint64_t)entry->directory_born_ns));

    if (r <= 0)
        return r;
    ret_known->entry_id = sql_take_number(&rows);
    ret_known->volume_id = sql_take_number(&rows);
    ret_known->inode = entry->directory_inode;
    return SQL_ROW;
}

/* It is the same volume, because it is the same directory. */
static int revive(struct store *store, const struct known_entry *known)
{
    static const char entry[] =
        "UPDATE entries SET gone = 0, stale_reason = NULL, stale_held = 0 WHERE entry_id = ?1";
    static const char others[] = "DELETE FROM entries WHERE volume_id = ?1 AND gone = 1";
    static const char volume[] = "UPDATE volumes SET status = 'present', removed_at = NULL,"
                                 " last_changed = ?2 WHERE volume_id = ?1";
    static const char count[] = "UPDATE meta SET live_volumes = live_volumes + 1 WHERE one = 1";
    int r = sql_run(&store->connection, entry, NULL, sql_number(known->entry_id));

    if (r == 0)
        r = sql_run(&store->connection, others, NULL, sql_number(known->volume_id));
    if (r == 0)
        r = sql_run(&store->connection, volume, NULL, sql_number(known->volume_id),
                    sql_number(store->now_ms));
    if (r == 0)
        r = sql_run_values(&store->connection, count, NULL, NULL, 0);
    store->has_no_unnamed = false; /* its own may be unknown */
    return r < 0 ? r
                 : journal_write(store, &(struct journal_line){.kind = "volume_returned",
                                                               .volume_id = known->volume_id});
}

/* From the one that is known by this name to the entry that this one continues, or none. */
static int resolve_entry(struct store *store, const struct store_entry *entry,
                         struct known_entry *known, bool *ret_changed)
{
    int r = 0;

    if (is_another_directory(known, entry)) {
        r = end_entry(store, known);
        entry_row_forget(known);
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

static int journal_entry(struct store *store, const struct store_entry *entry, int64_t volume_id)
{
    return journal_write(
        store,
        &(struct journal_line){.kind = entry->problem ? "volume_invalid" : "volume_changed",
                               .volume_id = volume_id,
                               .detail = {{"layout", sql_text(layout_name(entry->layout))},
                                          {"problem", sql_text(entry->problem)},
                                          {"mount_info_sha256", sql_text(entry->mount_info_sha256)},
                                          {"sandboxes", sql_number(entry->sandboxes)}}});
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
    r = sql_find(&store->connection, find, &is_new, sql_text(entry->key),
                 sql_text(entry->target_path));
    return r <= 0 ? r : is_new ? SQL_ROW : SQL_END;
}

/* Its device, if that is new as well; else the volume is put on it as any other one is. */
static int insert_device(struct store *store, const struct store_entry *entry,
                         int64_t *ret_device_id)
{
    *ret_device_id = 0;
    return entry->leads_to ? device_insert(store, entry->leads_to, ret_device_id) : 0;
}

static int journal_device(struct store *store, const struct store_entry *entry, int64_t volume_id)
{
    int r = device_journal_seen(store, entry->leads_to);

    return r < 0 ? r
                 : journal_write(store, &(struct journal_line){.kind = "device_found",
                                                               .volume_id = volume_id,
                                                               .device = entry->leads_to->name,
                                                               .is_complete = true});
}

/* Each row once, as it will stay. */
static int put_unknown(struct store *store, const struct store_entry *entry,
                       struct store_entry_put *ret_put)
{
    int64_t device_id = 0;
    int names = 0;
    int r = volume_count(store);

    if (r == 0)
        r = insert_device(store, entry, &device_id);
    if (r == 0)
        r = volume_add(store, entry, device_id, &ret_put->volume_id);
    if (r == 0)
        r = entry_row_write(store, entry, 0, ret_put->volume_id, NULL);
    if (r == 0)
        r = entry_row_add_sandboxes(store, entry, sqlite3_last_insert_rowid(store->connection.db),
                                    &names);
    if (r == 0 && device_id)
        r = journal_device(store, entry, ret_put->volume_id);
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
        r = entry_row_write(store, entry, known->entry_id, volume_id, &facts);
    if (r != 0)
        return r;
    entry_id = known->entry_id ? known->entry_id : sqlite3_last_insert_rowid(store->connection.db);
    r = entry_row_write_sandboxes(store, entry, entry_id, &names);
    changed = changed || facts || names;
    if (r == 0 && changed)
        r = volume_refresh(store, volume_id);
    if (r == 0 && changed && (!added || entry->problem))
        r = journal_entry(store, entry, volume_id);
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
    int r = entry_row_compare(store, entry, &known);

    *ret_put = (struct store_entry_put){0};
    if (r == 0)
        r = entry_row_has_same(store, entry, &known);
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

int store_put_entry(struct store *store, const struct store_entry *entry, int64_t *ret_volume_id,
                    bool *ret_changed)
{
    struct store_entry_put put;
    int r = store_put_entry_on_device(store, entry, &put);

    if (r == 0) {
        *ret_volume_id = put.volume_id;
        *ret_changed = put.changed;
    }
    return r;
}

int store_note_published(struct store *store, int64_t volume_id, const char *sandbox_id)
{
    static const char note[] =
        "UPDATE entry_sandboxes SET published = 1 WHERE sandbox_id = ?2 AND published = 0"
        " AND entry_id IN (SELECT entry_id FROM entries WHERE volume_id = ?1 AND gone = 0)";

    return sql_run(&store->connection, note, NULL, sql_number(volume_id), sql_text(sandbox_id));
}

int store_remove_entry(struct store *store, enum volume_layout layout, const char *key,
                       int64_t *ret_volume_id)
{
    struct known_entry known;
    int r = entry_row_find(store, layout, key, &known);

    if (r == 0 && known.entry_id)
        r = end_entry(store, &known);
    if (r == 0)
        *ret_volume_id = known.volume_id;
    return r;
}

/* Of at most so many; -1: all. */
static int each_key(struct store *store, const char *text, enum volume_layout layout, int64_t most,
                    int (*callback)(void *userdata, const char *key), void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r =
        sql_query(&store->connection, text, &rows, sql_text(layout_name(layout)), sql_number(most));

    while (r == 0 && (r = sql_next(&rows)) > 0)
        r = callback(userdata, sql_borrow_text(&rows));
    return r;
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
