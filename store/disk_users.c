/* SPDX-License-Identifier: Apache-2.0 */
/* disk_users.c - volumes and drive mounts on one disk.
 *
 * A disk is its number and its sequence, or its file system and inode, as in `devices`. A volume is
 * read-only if its mount options say "ro" and nothing else.
 */
#include "store/internal.h"
#include "store/schema.h"

/* ?1 kind, ?2 major, ?3 minor, ?4 diskseq, ?5 file_device, ?6 inode. */
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
    int r = sql_query(&store->connection, find_users, &rows, sql_text(device_kind_name(disk->kind)),
                      sql_number(disk->major), sql_number(disk->minor),
                      sql_number((int64_t)disk->diskseq), sql_number((int64_t)disk->file_device),
                      sql_number((int64_t)disk->inode), sql_text(drive_id));

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        struct store_disk_user user;

        user.kind = (enum store_disk_user_kind)sql_take_number(&rows);
        TAKE_NAME(&rows, user.name);
        TAKE_NAME(&rows, user.sandbox_id);
        user.writable = sql_take_number(&rows) != 0;
        r = callback(userdata, &user);
    }
    return r;
}
