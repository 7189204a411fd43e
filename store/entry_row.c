/* SPDX-License-Identifier: Apache-2.0 */
/* entry_row.c - one row of entries with its sandboxes: found, compared with what was observed,
 * written.
 *
 * SQLite compares the facts, so that none of them has to be copied. What a row means for its volume
 * is the business of entries.c.
 */
#include "store/internal.h"

#include <string.h>

#define FACTS                                                                                      \
    "problem, directory_device, directory_inode, directory_born_ns, mount_info_sha256,"            \
    " volume_type, device, fs_type, options, metadata, policy, pv, pod_uid, driver, "              \
    "volume_handle,"                                                                               \
    " defer_fs_mount, subpaths, remark, read_only"
enum { FACT_VALUES = 18 }; /* the problem is none of them */

static struct sql_value flag(enum store_flag known)
{
    return known == STORE_UNSAID ? sql_known(0) : sql_number(known == STORE_YES);
}

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
        flag(entry->defer_fs_mount),
        sql_text(entry->subpaths),
        sql_text(entry->remark),
        sql_number(entry->read_only),
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
    ret_entry->entry_id = sql_take_number(rows);
    ret_entry->volume_id = sql_take_number(rows);
    ret_entry->device = (uint64_t)sql_take_number(rows);
    ret_entry->inode = (uint64_t)sql_take_number(rows);
    ret_entry->born_ns = sql_take_number(rows);
    TAKE_TEXT(rows, ret_entry->target_path);
}

void entry_row_forget(struct known_entry *entry)
{
    entry->entry_id = entry->volume_id = entry->born_ns = 0;
    entry->device = entry->inode = 0;
    entry->target_path[0] = '\0';
    entry->has_same_facts = entry->is_on_device = false;
    entry->sandboxes = 0;
}

int entry_row_find(struct store *store, enum volume_layout layout, const char *key,
                   struct known_entry *ret_entry)
{
    static const char find[] = KNOWN FROM_KNOWN WHERE_KNOWN;
    cleanup(sql_end) struct sql_rows rows = {0};
    int r =
        sql_first(&store->connection, find, &rows, sql_text(key), sql_text(layout_name(layout)));

    entry_row_forget(ret_entry);
    if (r > 0)
        take_known(&rows, ret_entry);
    return r < 0 ? r : 0;
}

int entry_row_compare(struct store *store, const struct store_entry *entry,
                      struct known_entry *ret_entry)
{
    static const char find[] =
        KNOWN ", (" FACTS ") IS (NULL, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
              " ?16, ?17, ?18, ?19, ?20),"
              " (SELECT count(*) FROM entry_sandboxes n WHERE n.entry_id = e.entry_id),"
              " (" DEVICE_NAMES ") IS (?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)"
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
    entry_row_forget(ret_entry);
    if (r <= 0)
        return r;
    take_known(&rows, ret_entry);
    ret_entry->has_same_facts = sql_take_number(&rows) != 0;
    ret_entry->sandboxes = (unsigned)sql_take_number(&rows);
    ret_entry->is_on_device = sql_take_number(&rows) != 0;
    return 0;
}

/* In the order of the index, which is that in which they are observed; another order has them
 * written, which changes nothing. As sql_next(), SQL_ROW: they are. */
static int has_same_sandboxes(struct store *store, const struct store_entry *entry,
                              const struct known_entry *known)
{
    static const char all[] =
        "SELECT sandbox_id FROM entry_sandboxes WHERE entry_id = ?1 ORDER BY sandbox_id";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r;

    if (known->sandboxes != entry->sandboxes || entry->sandboxes == 0)
        return known->sandboxes == entry->sandboxes ? SQL_ROW : SQL_END;
    r = sql_query(&store->connection, all, &rows, sql_number(known->entry_id));
    for (unsigned i = 0; r == 0 && i < entry->sandboxes; i++) {
        r = sql_next(&rows);
        if (r <= 0 || strcmp(sql_borrow_text(&rows), entry->sandbox[i]) != 0)
            return r < 0 ? r : SQL_END;
        r = 0;
    }
    return r < 0 ? r : SQL_ROW;
}

int entry_row_has_same(struct store *store, const struct store_entry *entry,
                       const struct known_entry *known)
{
    if (!known->entry_id || entry->problem || !known->has_same_facts ||
        (entry->target_path && strcmp(known->target_path, entry->target_path) != 0))
        return SQL_END;
    return has_same_sandboxes(store, entry, known);
}

#define NEW_FACTS                                                                                  \
    "excluded.problem, excluded.directory_device, excluded.directory_inode,"                       \
    " excluded.directory_born_ns, excluded.mount_info_sha256, excluded.volume_type,"               \
    " excluded.device, excluded.fs_type, excluded.options, excluded.metadata, excluded.policy,"    \
    " excluded.pv, excluded.pod_uid, excluded.driver, excluded.volume_handle,"                     \
    " excluded.defer_fs_mount, excluded.subpaths, excluded.remark, excluded.read_only"

/* entry_id 0 makes a new row. */
static int write_facts(struct store *store, const struct store_entry *entry, int64_t entry_id,
                       int64_t volume_id, int *ret_changes)
{
    static const char put[] =
        "INSERT INTO entries (entry_id, volume_id, layout, key, " FACTS ") VALUES (?1, ?2, ?3, ?4,"
        " NULL, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, "
        "?22)"
        " ON CONFLICT (entry_id) DO UPDATE SET (" FACTS ") = (" NEW_FACTS ")"
        " WHERE (" FACTS ") IS NOT (" NEW_FACTS ")";
    enum { ID_VALUES = 4 };
    struct sql_value values[ID_VALUES + FACT_VALUES] = {
        sql_known((uint64_t)entry_id),
        sql_number(volume_id),
        sql_text(layout_name(entry->layout)),
        sql_text(entry->key),
    };

    take_facts(entry, values + ID_VALUES);
    return sql_run_values(&store->connection, put, ret_changes, values, array_length(values));
}

/* The owner follows from the path, and so is known even for an entry that never read well. */
static int write_problem(struct store *store, const struct store_entry *entry, int64_t entry_id,
                         int64_t volume_id, int *ret_changes)
{
    static const char put[] =
        "INSERT INTO entries AS e (entry_id, volume_id, layout, key, problem, pv, pod_uid, driver,"
        " volume_handle) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        " ON CONFLICT (entry_id) DO UPDATE SET problem = excluded.problem,"
        " pv = coalesce(e.pv, excluded.pv), pod_uid = coalesce(e.pod_uid, excluded.pod_uid),"
        " driver = coalesce(e.driver, excluded.driver),"
        " volume_handle = coalesce(e.volume_handle, excluded.volume_handle)"
        " WHERE e.problem IS NOT excluded.problem OR e.pv IS NULL AND excluded.pv IS NOT NULL"
        " OR e.driver IS NULL AND excluded.driver IS NOT NULL";

    return sql_run(&store->connection, put, ret_changes, sql_known((uint64_t)entry_id),
                   sql_number(volume_id), sql_text(layout_name(entry->layout)),
                   sql_text(entry->key), sql_text(entry->problem), sql_text(entry->pv),
                   sql_text(entry->pod_uid), sql_text(entry->driver),
                   sql_text(entry->volume_handle));
}

/* A name that is no longer in the directory. */
static int drop_sandboxes(struct store *store, const struct store_entry *entry, int64_t entry_id,
                          int *ret_changes)
{
    static const char all[] = "SELECT sandbox_id FROM entry_sandboxes WHERE entry_id = ?1";
    static const char drop[] =
        "DELETE FROM entry_sandboxes WHERE entry_id = ?1 AND sandbox_id = ?2";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query(&store->connection, all, &rows, sql_number(entry_id));

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        const char *sandbox_id = sql_borrow_text(&rows);
        unsigned i = 0;

        while (i < entry->sandboxes && strcmp(entry->sandbox[i], sandbox_id) != 0)
            i++;
        r = 0;
        if (i == entry->sandboxes) {
            r = sql_run(&store->connection, drop, NULL, sql_number(entry_id), sql_text(sandbox_id));
            ++*ret_changes;
        }
    }
    return r;
}

int entry_row_add_sandboxes(struct store *store, const struct store_entry *entry, int64_t entry_id,
                            int *ret_changes)
{
    static const char add[] =
        "INSERT OR IGNORE INTO entry_sandboxes (entry_id, sandbox_id) VALUES (?1, ?2)";
    int r = 0;

    for (unsigned i = 0; r == 0 && i < entry->sandboxes && i < STORE_ENTRY_SANDBOXES; i++) {
        int added = 0;

        r = sql_run(&store->connection, add, &added, sql_number(entry_id),
                    sql_text(entry->sandbox[i]));
        *ret_changes += added;
    }
    return r;
}

int entry_row_write(struct store *store, const struct store_entry *entry, int64_t entry_id,
                    int64_t volume_id, int *ret_changes)
{
    return entry->problem ? write_problem(store, entry, entry_id, volume_id, ret_changes)
                          : write_facts(store, entry, entry_id, volume_id, ret_changes);
}

int entry_row_write_sandboxes(struct store *store, const struct store_entry *entry,
                              int64_t entry_id, int *ret_changes)
{
    int r = drop_sandboxes(store, entry, entry_id, ret_changes);

    return r < 0 ? r : entry_row_add_sandboxes(store, entry, entry_id, ret_changes);
}
