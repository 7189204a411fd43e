/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - what a volume's path leads to.
 *
 * A device is an identity within one boot: a block device by number and diskseq, a regular file (or
 * what is neither) by file system and inode. Its name and its size may change, its identity never:
 * another one is another row. size_since_ns says since when the present size is known to have held,
 * which is how the reconciler tells a resize that a VMM missed from one that it started with.
 */
#include <string.h>

#include "store/internal.h"

struct known_device {
    int64_t device_id; /* 0: none */
    uint64_t size_bytes;
    bool same_name;
};

static int find_device(struct store *store, const struct store_device *device,
                       struct known_device *ret_known)
{
    static const char by_number[] =
        "SELECT device_id, size_bytes, name FROM devices WHERE kind = 'block'"
        " AND major = ?1 AND minor = ?2 AND diskseq = ?3 AND boot_id = ?4";
    static const char by_inode[] =
        "SELECT device_id, size_bytes, name FROM devices WHERE kind <> 'block'"
        " AND inode = ?1 AND file_device = ?2 AND boot_id = ?3";
    cleanup(sql_end) struct sql_rows rows = {0};
    struct sql_value boot = sql_text(store->boot_id);
    int r;

    if (device->kind == DEVICE_KIND_BLOCK)
        r = sql_first(&store->connection, by_number, &rows, sql_number(device->major),
                      sql_number(device->minor), sql_number((int64_t)device->diskseq), boot);
    else
        r = sql_first(&store->connection, by_inode, &rows, sql_number((int64_t)device->inode),
                      sql_number((int64_t)device->file_device), boot);
    *ret_known = (struct known_device){0};
    if (r <= 0)
        return r;
    ret_known->device_id = sql_take_number(&rows);
    ret_known->size_bytes = (uint64_t)sql_take_number(&rows);
    ret_known->same_name = strcmp(sql_borrow_text(&rows), device->name) == 0;
    return 0;
}

void device_take_columns(const struct store *store, const struct store_device *device,
                         struct sql_value ret_columns[static DEVICE_COLUMNS])
{
    const bool block = device->kind == DEVICE_KIND_BLOCK;
    const struct sql_value columns[DEVICE_COLUMNS] = {
        sql_text(store->boot_id),
        sql_text(device_kind_name(device->kind)),
        sql_text(device->name),
        sql_number(block ? device->major : 0),
        sql_number(block ? device->minor : 0),
        sql_number(block ? (int64_t)device->diskseq : 0),
        sql_number(block ? 0 : (int64_t)device->file_device),
        sql_number(block ? 0 : (int64_t)device->inode),
        sql_number((int64_t)device->size_bytes),
    };

    memcpy(ret_columns, columns, sizeof(columns));
}

int device_insert(struct store *store, const struct store_device *device, int64_t *ret_device_id)
{
    static const char insert[] =
        "INSERT INTO devices (" DEVICE_NAMES ", first_size, size_since_ns, first_seen,"
        " last_changed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?11)"
        " ON CONFLICT DO NOTHING";
    struct sql_value values[DEVICE_COLUMNS + 2];
    int added = 0, r;

    device_take_columns(store, device, values);
    values[DEVICE_COLUMNS] = sql_number((int64_t)device->now_ns);
    values[DEVICE_COLUMNS + 1] = sql_number(store->now_ms);
    r = sql_run_values(&store->connection, insert, &added, values, array_length(values));
    *ret_device_id = r == 0 && added ? sqlite3_last_insert_rowid(store->connection.db) : 0;
    return r;
}

int device_journal_seen(struct store *store, const struct store_device *device)
{
    return journal_write(
        store,
        &(struct journal_line){.kind = "device_seen",
                               .device = device->name,
                               .detail = {{"bytes", sql_number((int64_t)device->size_bytes)}}});
}

static int add_device(struct store *store, const struct store_device *device, int64_t *ret_id)
{
    int r = device_insert(store, device, ret_id);

    return r < 0 ? r : device_journal_seen(store, device);
}

/* Of a device that was cut, nothing is known about the file system on it. */
static int forget_filled(struct store *store, int64_t device_id)
{
    static const char of_volumes[] = "UPDATE volumes SET filled_device_id = NULL, filled_bytes ="
                                     " NULL WHERE device_id = ?1 AND filled_device_id = ?1";
    static const char of_bindings[] = "UPDATE mappings SET guest_synced_bytes = NULL"
                                      " WHERE device_id = ?1 AND until IS NULL";
    int r = sql_run(&store->connection, of_volumes, NULL, sql_number(device_id));

    return r < 0 ? r : sql_run(&store->connection, of_bindings, NULL, sql_number(device_id));
}

static int change_device(struct store *store, const struct store_device *device,
                         const struct known_device *known)
{
    static const char change[] =
        "UPDATE devices SET name = ?2, size_bytes = ?3, last_changed = ?5,"
        " size_since_ns = CASE WHEN size_bytes = ?3 THEN size_since_ns ELSE ?4 END,"
        " announced = CASE WHEN size_bytes = ?3 THEN announced ELSE 0 END"
        " WHERE device_id = ?1";
    int r = sql_run(&store->connection, change, NULL, sql_number(known->device_id),
                    sql_text(device->name), sql_number((int64_t)device->size_bytes),
                    sql_number((int64_t)device->now_ns), sql_number(store->now_ms));

    if (r == 0 && device->size_bytes < known->size_bytes)
        r = forget_filled(store, known->device_id);
    if (r < 0 || known->size_bytes == device->size_bytes)
        return r;
    return journal_write(
        store,
        &(struct journal_line){.kind = device->size_bytes > known->size_bytes ? "device_grown"
                                                                              : "device_shrunk",
                               .device = device->name,
                               .detail = {{"from_bytes", sql_number((int64_t)known->size_bytes)},
                                          {"to_bytes", sql_number((int64_t)device->size_bytes)}}});
}

int store_put_device(struct store *store, const struct store_device *device, int64_t *ret_device_id,
                     bool *ret_changed)
{
    struct known_device known;
    bool changed = true;
    int r = find_device(store, device, &known);

    if (r < 0)
        return r;
    if (!known.device_id)
        r = add_device(store, device, &known.device_id);
    else if (known.size_bytes != device->size_bytes || !known.same_name)
        r = change_device(store, device, &known);
    else
        changed = false;
    if (r < 0)
        return r;
    *ret_device_id = known.device_id;
    *ret_changed = changed;
    return 0;
}

int store_set_volume_device(struct store *store, int64_t volume_id, int64_t device_id,
                            bool *ret_changed)
{
    static const char set[] = "UPDATE volumes SET device_id = ?2, last_changed = ?3"
                              " WHERE volume_id = ?1 AND device_id IS NOT ?2";
    int changes = 0;
    int r = sql_run(&store->connection, set, &changes, sql_number(volume_id),
                    sql_known((uint64_t)device_id), sql_number(store->now_ms));

    if (r == 0 && changes)
        r = journal_write(
            store, &(struct journal_line){.kind = device_id ? "device_found" : "device_missing",
                                          .volume_id = volume_id});
    if (r == 0)
        *ret_changed = changes > 0;
    return r;
}
