/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - what a volume's path leads to.
 *
 * A device is an identity within one boot: a block device by number and diskseq, a regular file (or
 * what is neither) by file system and inode. Its name and its size may change, its identity never:
 * another one is another row. size_since_ns says since when the present size is known to have held,
 * which is how the reconciler tells a resize that a VMM missed from one that it started with.
 */
#include <string.h>

#include "store/schema.h"
#include "store/store_internal.h"

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

int64_t device_insert(struct store *store, const struct store_device *device)
{
    static const char insert[] =
        "INSERT INTO devices (" DEVICE_NAMES ", first_size, size_since_ns, first_seen,"
        " last_changed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?11)"
        " ON CONFLICT DO NOTHING";
    struct sql_value values[DEVICE_COLUMNS + 2];

    device_take_columns(store, device, values);
    values[DEVICE_COLUMNS] = sql_number((int64_t)device->now_ns);
    values[DEVICE_COLUMNS + 1] = sql_number(store->now_ms);
    if (sql_change_values(&store->connection, insert, values, array_length(values)) <= 0)
        return 0;
    return sqlite3_last_insert_rowid(store->connection.db);
}

int device_journal_seen(struct store *store, const struct store_device *device)
{
    return JOURNAL(store, "device_seen", ABOUT(.device = device->name), "bytes",
                   device->size_bytes);
}

static int change_device(struct store *store, const struct store_device *device, int64_t device_id,
                         uint64_t known_bytes)
{
    static const char change[] =
        "UPDATE devices SET name = ?2, size_bytes = ?3, last_changed = ?5,"
        " size_since_ns = CASE WHEN size_bytes = ?3 THEN size_since_ns ELSE ?4 END,"
        " announced = CASE WHEN size_bytes = ?3 THEN announced ELSE 0 END"
        " WHERE device_id = ?1";
    /* Of a device that was cut, nothing is known about the file system on it. */
    static const char forget[] =
        "UPDATE volumes SET filled_device_id = NULL, filled_bytes = NULL"
        " WHERE device_id = ?1 AND filled_device_id = ?1;"
        "UPDATE mappings SET guest_synced_bytes = NULL WHERE device_id = ?1 AND until IS NULL";

    STORE_RUN(store, change, device_id, device->name, device->size_bytes, device->now_ns,
              store->now_ms);
    if (device->size_bytes < known_bytes)
        STORE_RUN(store, forget, device_id);
    if (known_bytes == device->size_bytes)
        return STORE_RESULT(store);
    return JOURNAL(store, device->size_bytes > known_bytes ? "device_grown" : "device_shrunk",
                   ABOUT(.device = device->name), "from_bytes", known_bytes, "to_bytes",
                   device->size_bytes);
}

int store_put_device(struct store *store, const struct store_device *device, int64_t *ret_device_id,
                     bool *ret_changed)
{
    static const char by_number[] =
        "SELECT device_id, size_bytes, name FROM devices WHERE kind = 'block'"
        " AND major = ?1 AND minor = ?2 AND diskseq = ?3 AND boot_id = ?4";
    static const char by_inode[] =
        "SELECT device_id, size_bytes, name FROM devices WHERE kind <> 'block'"
        " AND inode = ?1 AND file_device = ?2 AND boot_id = ?3";
    cleanup(sql_end) struct sql_rows rows = {0};
    bool same_name;
    int64_t device_id;
    uint64_t known_bytes;
    int r = device->kind == DEVICE_KIND_BLOCK
                ? STORE_FIRST(store, by_number, &rows, device->major, device->minor,
                              device->diskseq, store->boot_id)
                : STORE_FIRST(store, by_inode, &rows, device->inode, device->file_device,
                              store->boot_id);

    if (r < 0)
        return r;
    TAKE(&rows, device_id, known_bytes);
    same_name = strcmp(sql_borrow_text(&rows), device->name) == 0;
    *ret_changed = !device_id || known_bytes != device->size_bytes || !same_name;
    if (!device_id) {
        device_id = device_insert(store, device);
        r = device_journal_seen(store, device);
    } else if (*ret_changed) {
        r = change_device(store, device, device_id, known_bytes);
    }
    *ret_device_id = device_id;
    return r < 0 ? r : 0;
}

int store_set_volume_device(struct store *store, int64_t volume_id, int64_t device_id,
                            bool *ret_changed)
{
    static const char set[] = "UPDATE volumes SET device_id = ?2, last_changed = ?3"
                              " WHERE volume_id = ?1 AND device_id IS NOT ?2";

    *ret_changed = STORE_CHANGE(store, set, volume_id, sql_known(device_id), store->now_ms) > 0;
    if (!*ret_changed)
        return STORE_RESULT(store);
    return JOURNAL(store, device_id ? "device_found" : "device_missing",
                   ABOUT(.volume_id = volume_id));
}

/* ---- disk users ----------------------------------------------------------------------------- */

/* A disk is its number and its sequence, or its file system and inode, as in `devices`. A volume is
 * read-only if its mount options say "ro" and nothing else.
 *
 * ?1 kind, ?2 major, ?3 minor, ?4 diskseq, ?5 file_device, ?6 inode. */
#define KNOWN(row, column) "coalesce(" row "." column ", 0)"
#define IS_DISK(row)                                                                               \
    row ".kind = ?1 AND " row ".major = ?2 AND " row ".minor = ?3"                                 \
        " AND " KNOWN(row, "file_device") " = ?5 AND " KNOWN(                                      \
            row, "inode") " = ?6"                                                                  \
                          " AND (?4 = 0 OR " KNOWN(row, "diskseq") " IN (0, ?4))"

/* Whether volume v, with the entry e, is writable. */
#define IS_WRITABLE                                                                                \
    " NOT EXISTS (SELECT 1 FROM json_each(coalesce(e.options, '[]')) WHERE value = 'ro')"          \
    " OR EXISTS (SELECT 1 FROM json_each(e.options) WHERE value = 'rw')"
#define IS_HELD "m.until IS NULL AND s.sandbox_ref = m.sandbox_ref AND s.gone_at IS NULL"

/* Each begins with its enum store_disk_user_kind. ?7: the drive that does not count. The first
 * user is the one that is named, and an orphan has to be ended before anything else helps. */
static const char find_users[] =
    "SELECT 0, s.vmm_pid, s.sandbox_id, 1 FROM sandboxes s"
    " WHERE s.orphaned = 1 AND s.gone_at IS NULL AND ?1 = 'block'"
    " AND EXISTS (SELECT 1 FROM sandbox_drives h WHERE h.sandbox_ref = s.sandbox_ref"
    "  AND h.major = ?2 AND h.minor = ?3)"
    " UNION ALL SELECT iif(m.until IS NULL, 1, 4), coalesce(v.target_path, e.key), "
    "s.sandbox_id," IS_WRITABLE " FROM devices d"
    " JOIN mappings m ON m.device_id = d.device_id"
    " JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref AND s.gone_at IS NULL"
    " JOIN volumes v ON v.volume_id = m.volume_id" AND_IN_VM
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " WHERE d.boot_id = (SELECT boot_id FROM meta) AND " IS_DISK(
        "d") " UNION ALL SELECT 2, coalesce(v.target_path, e.key), ''," IS_WRITABLE
             " FROM devices d"
             " JOIN volumes v ON v.device_id = d.device_id AND v.status = 'present'"
             " JOIN entries e ON e.entry_id = v.entry_id AND e.gone = 0"
             " WHERE d.boot_id = (SELECT boot_id FROM meta) AND " IS_DISK(
                 "d") " AND NOT EXISTS (SELECT 1 FROM mappings m JOIN sandboxes s ON " IS_HELD
                      " WHERE m.volume_id = v.volume_id"
                      " AND m.device_id = d.device_id)"
                      " UNION ALL SELECT 3, r.drive_id, s.sandbox_id, r.writable"
                      " FROM drive_mounts r JOIN sandboxes s ON s.sandbox_ref = r.sandbox_ref"
                      " WHERE r.ended_at IS NULL AND r.drive_id IS NOT ?7 AND " IS_DISK("r");

int store_each_disk_user(struct store *store, const struct store_drive_mount_disk *disk,
                         const char *drive_id, store_disk_user_callback *callback, void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, find_users, &rows, device_kind_name(disk->kind), disk->major,
                        disk->minor, disk->diskseq, disk->file_device, disk->inode, drive_id);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        struct store_disk_user user;

        TAKE(&rows, user.kind);
        TAKE_NAME(&rows, user.name, user.sandbox_id);
        TAKE(&rows, user.writable);
        r = callback(userdata, &user);
    }
    return r;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* A device's layers are replaced as a whole. Each layer is itself a device, so its size is kept
 * where every device's size is, and a disk below many volumes is announced once for all of them.
 */

int store_note_capacity_change(struct store *store, int64_t device_id, uint64_t since_ns,
                               bool *ret_changed)
{
    static const char announce[] = "UPDATE devices SET announced = 1 WHERE device_id = ?1"
                                   " AND announced = 0"
                                   " AND (size_since_ns <= ?2 OR size_bytes = first_size)";
    cleanup(sql_end) struct sql_rows rows = {0};
    char device[STORE_PATH_BYTES];
    int64_t bytes;

    *ret_changed = STORE_CHANGE(store, announce, device_id, since_ns) > 0;
    if (!*ret_changed)
        return STORE_RESULT(store);
    STORE_FIRST(store, "SELECT name, size_bytes FROM devices WHERE device_id = ?1", &rows,
                device_id);
    TAKE(&rows, device, bytes);
    return JOURNAL(store, "device_announced", ABOUT(.device = device), "bytes", bytes);
}

int store_is_announced(struct store *store, int64_t device_id, bool *ret_announced)
{
    *ret_announced =
        STORE_NUMBER(store, "SELECT announced FROM devices WHERE device_id = ?1", device_id) != 0;
    return STORE_RESULT(store);
}

int store_forget_announcements(struct store *store)
{
    return STORE_RUN(store, "UPDATE devices SET announced = 0 WHERE announced <> 0");
}

int store_find_announced(struct store *store, int64_t device_id, uint64_t before_ns,
                         struct store_disk *ret_disk)
{
    static const char find[] =
        "SELECT d.device_id, d.name, d.major, d.minor, d.diskseq, d.size_bytes FROM layers l"
        " JOIN devices d ON d.device_id = l.layer_id WHERE l.device_id = ?1"
        " AND d.announced <> 0 AND coalesce(d.rescanned_ns, 0) <= ?2 LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, device_id, before_ns);

    if (r <= 0)
        return r < 0 ? r : STORE_NOT_FOUND;
    TAKE(&rows, ret_disk->device_id, ret_disk->name, ret_disk->major, ret_disk->minor,
         ret_disk->diskseq, ret_disk->size_bytes);
    return STORE_FOUND;
}

int store_intend_rescan(struct store *store, int64_t volume_id, const struct store_disk *disk,
                        uint64_t now_ns)
{
    STORE_RUN(store, "UPDATE devices SET rescanned_ns = ?2 WHERE device_id = ?1", disk->device_id,
              now_ns);
    return JOURNAL(store, "rescan_disk_intended",
                   ABOUT(.volume_id = volume_id, .device = disk->name), "from_bytes",
                   sql_known(disk->size_bytes));
}

int store_put_rescan_result(struct store *store, int64_t volume_id, const struct store_disk *disk,
                            uint64_t bytes, const char *error)
{
    if (!*error)
        STORE_RUN(store, "UPDATE devices SET announced = 0 WHERE device_id = ?1", disk->device_id);
    return JOURNAL(store, "disk_rescanned", ABOUT(.volume_id = volume_id, .device = disk->name),
                   "from_bytes", sql_known(disk->size_bytes), "to_bytes", sql_known(bytes), "error",
                   error);
}

int store_get_layers(struct store *store, int64_t device_id,
                     struct store_layer ret_layer[static STORE_LAYERS], unsigned *ret_layers)
{
    static const char find[] = "SELECT layer_id, above, label, base_bytes, above_bytes, state,"
                               " remedy FROM layers WHERE device_id = ?1 ORDER BY position";
    cleanup(sql_end) struct sql_rows rows = {0};
    unsigned count = 0;
    int r = STORE_QUERY(store, find, &rows, device_id);

    while (r == 0 && count < STORE_LAYERS && (r = sql_next(&rows)) > 0) {
        struct store_layer *layer = &ret_layer[count++];

        r = 0;
        *layer = (struct store_layer){.layer_id = sql_take_number(&rows)};
        TAKE(&rows, layer->above, layer->label, layer->base_bytes, layer->above_bytes, layer->state,
             layer->remedy);
    }
    *ret_layers = count;
    return r;
}

int store_put_layers(struct store *store, int64_t device_id, const struct store_layer *layer,
                     unsigned layers)
{
    static const char insert[] =
        "INSERT INTO layers (device_id, position, layer_id, above, kind, label, base_bytes,"
        " above_bytes, state, remedy) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

    STORE_RUN(store, "DELETE FROM layers WHERE device_id = ?1", device_id);
    for (unsigned i = 0; i < layers; i++)
        STORE_RUN(store, insert, device_id, i, layer[i].layer_id, layer[i].above, layer[i].kind,
                  layer[i].label, layer[i].base_bytes, layer[i].above_bytes, layer[i].state,
                  layer[i].remedy);
    return STORE_RESULT(store);
}
