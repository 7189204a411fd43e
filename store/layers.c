/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - the lower devices of each device, and disks that announced a new size.
 *
 * A device's layers are replaced as a whole. Each layer is itself a device, so its size is kept
 * where every device's size is, and a disk below many volumes is announced once for all of them.
 */
#include <string.h>

#include "store/internal.h"

int store_note_capacity_change(struct store *store, int64_t device_id, uint64_t since_ns,
                               bool *ret_changed)
{
    static const char announce[] = "UPDATE devices SET announced = 1 WHERE device_id = ?1"
                                   " AND announced = 0"
                                   " AND (size_since_ns <= ?2 OR size_bytes = first_size)";
    static const char name[] = "SELECT name, size_bytes FROM devices WHERE device_id = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    char device[STORE_PATH_BYTES];
    int64_t bytes;
    int changes = 0;
    int r = sql_run(&store->connection, announce, &changes, sql_number(device_id),
                    sql_number((int64_t)since_ns));

    *ret_changed = changes > 0;
    if (r < 0 || !changes)
        return r;
    r = sql_first(&store->connection, name, &rows, sql_number(device_id));
    if (r < 0)
        return r;
    TAKE_TEXT(&rows, device);
    bytes = sql_take_number(&rows);
    return journal_write(store, &(struct journal_line){.kind = "device_announced",
                                                       .device = device,
                                                       .detail = {{"bytes", sql_number(bytes)}}});
}

int store_is_announced(struct store *store, int64_t device_id, bool *ret_announced)
{
    static const char find[] = "SELECT announced FROM devices WHERE device_id = ?1";
    int64_t announced;
    int r = sql_find(&store->connection, find, &announced, sql_number(device_id));

    *ret_announced = announced != 0;
    return r < 0 ? r : 0;
}

int store_forget_announcements(struct store *store)
{
    static const char forget[] = "UPDATE devices SET announced = 0 WHERE announced <> 0";

    return sql_run_values(&store->connection, forget, NULL, NULL, 0);
}

/* ---- rescans ---- */

int store_find_announced(struct store *store, int64_t device_id, uint64_t before_ns,
                         struct store_disk *ret_disk)
{
    static const char find[] =
        "SELECT d.device_id, d.name, d.major, d.minor, d.diskseq, d.size_bytes FROM layers l"
        " JOIN devices d ON d.device_id = l.layer_id WHERE l.device_id = ?1"
        " AND d.announced <> 0 AND coalesce(d.rescanned_ns, 0) <= ?2 LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, find, &rows, sql_number(device_id),
                      sql_number((int64_t)before_ns));

    if (r <= 0)
        return r < 0 ? r : STORE_NOT_FOUND;
    ret_disk->device_id = sql_take_number(&rows);
    TAKE_TEXT(&rows, ret_disk->name);
    ret_disk->major = (uint32_t)sql_take_number(&rows);
    ret_disk->minor = (uint32_t)sql_take_number(&rows);
    ret_disk->diskseq = (uint64_t)sql_take_number(&rows);
    ret_disk->size_bytes = (uint64_t)sql_take_number(&rows);
    return STORE_FOUND;
}

int store_intend_rescan(struct store *store, int64_t volume_id, const struct store_disk *disk,
                        uint64_t now_ns)
{
    static const char note[] = "UPDATE devices SET rescanned_ns = ?2 WHERE device_id = ?1";
    int r = sql_run(&store->connection, note, NULL, sql_number(disk->device_id),
                    sql_number((int64_t)now_ns));

    return r < 0
               ? r
               : journal_write(store, &(struct journal_line){
                                          .kind = "rescan_disk_intended",
                                          .volume_id = volume_id,
                                          .device = disk->name,
                                          .detail = {{"from_bytes", sql_known(disk->size_bytes)}}});
}

int store_put_rescan_result(struct store *store, int64_t volume_id, const struct store_disk *disk,
                            uint64_t bytes, const char *error)
{
    static const char answer[] = "UPDATE devices SET announced = 0 WHERE device_id = ?1";
    int r = 0;

    if (!*error)
        r = sql_run(&store->connection, answer, NULL, sql_number(disk->device_id));
    return r < 0 ? r
                 : journal_write(store, &(struct journal_line){
                                            .kind = "disk_rescanned",
                                            .volume_id = volume_id,
                                            .device = disk->name,
                                            .detail = {{"from_bytes", sql_known(disk->size_bytes)},
                                                       {"to_bytes", sql_known(bytes)},
                                                       {"error", sql_text(error)}}});
}

/* ---- layers ---- */

int store_get_layers(struct store *store, int64_t device_id,
                     struct store_layer ret_layer[static STORE_LAYERS], unsigned *ret_layers)
{
    static const char find[] = "SELECT layer_id, above, label, base_bytes, above_bytes, state,"
                               " remedy FROM layers WHERE device_id = ?1 ORDER BY position";
    cleanup(sql_end) struct sql_rows rows = {0};
    unsigned count = 0;
    int r = sql_query(&store->connection, find, &rows, sql_number(device_id));

    while (r == 0 && count < STORE_LAYERS && (r = sql_next(&rows)) > 0) {
        struct store_layer *layer = &ret_layer[count++];

        r = 0;
        *layer = (struct store_layer){.layer_id = sql_take_number(&rows)};
        layer->above = (unsigned)sql_take_number(&rows);
        TAKE_TEXT(&rows, layer->label);
        layer->base_bytes = (uint64_t)sql_take_number(&rows);
        layer->above_bytes = (uint64_t)sql_take_number(&rows);
        layer->state = (unsigned)sql_take_number(&rows);
        TAKE_TEXT(&rows, layer->remedy);
    }
    *ret_layers = count;
    return r;
}

static int add_layer(struct store *store, int64_t device_id, unsigned position,
                     const struct store_layer *layer)
{
    static const char insert[] =
        "INSERT INTO layers (device_id, position, layer_id, above, kind, label, base_bytes,"
        " above_bytes, state, remedy) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

    return sql_run(&store->connection, insert, NULL, sql_number(device_id), sql_number(position),
                   sql_number(layer->layer_id), sql_number(layer->above), sql_text(layer->kind),
                   sql_text(layer->label), sql_number((int64_t)layer->base_bytes),
                   sql_number((int64_t)layer->above_bytes), sql_number(layer->state),
                   sql_text(layer->remedy));
}

int store_put_layers(struct store *store, int64_t device_id, const struct store_layer *layer,
                     unsigned layers)
{
    static const char clear[] = "DELETE FROM layers WHERE device_id = ?1";
    int r = sql_run(&store->connection, clear, NULL, sql_number(device_id));

    for (unsigned i = 0; r == 0 && i < layers; i++)
        r = add_layer(store, device_id, i, &layer[i]);
    return r;
}
