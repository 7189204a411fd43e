/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mounts.c - disks that clients have attached to running VMs: asked for, brought in, taken
 * out.
 *
 * Two indices hold "at most one": one drive per id that has not ended, and one per place in a
 * sandbox. What is asked for never changes afterwards, except the limits.
 */
#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

void store_drive_mount_done(struct store_drive_mount *drive)
{
    free(drive->request.options);
    free(drive->request.containers);
    drive->request.options = drive->request.containers = NULL;
}

bool store_drive_mount_has_containers(const struct store_drive_mount *drive)
{
    return drive->request.containers && strcmp(drive->request.containers, "[]") != 0;
}

/* ---- rows ----------------------------------------------------------------------------------- */

#define LIMITS                                                                                     \
    "bandwidth_size, bandwidth_refill_ms, bandwidth_burst, operations_size, operations_refill_ms," \
    " operations_burst"

/* In the order in which take_drive() takes them. */
/* clang-format off */
#define SELECT_DRIVES \
    "SELECT d.drive_ref, d.sandbox_ref, s.gone_at IS NULL, d.drive_id, s.sandbox_id, d.host_path," \
    " d.vm_path, d.fs_type, d.options, d.containers, d.writable, d.fsck, d.fs_group IS NOT NULL, d.fs_group," \
    " d.fs_group_policy, " LIMITS ", d.serial, d.kind, d.major, d.minor, d.diskseq," \
    " d.file_device, d.inode, d.size_bytes, d.guest_device, d.wanted, d.state, d.status," \
    " d.message, d.requested_at, d.ready_at, d.ended_at" \
    " FROM drive_mounts d JOIN sandboxes s ON s.sandbox_ref = d.sandbox_ref"
/* clang-format on */

static int take_drive(struct sql_rows *rows, struct store_drive_mount *drive)
{
    struct store_drive_mount_request *request = &drive->request;
    struct drive_bucket *bandwidth = &request->limits.bandwidth;
    struct drive_bucket *operations = &request->limits.operations;
    struct store_drive_mount_disk *disk = &drive->disk;
    const char *options, *containers, *fsck, *policy, *kind, *state;

    TAKE(rows, drive->drive_ref, drive->sandbox_ref, drive->sandbox_is_alive);
    TAKE_NAME(rows, request->drive_id, request->sandbox_id, request->host_path, request->vm_path,
              request->fs_type);
    TAKE(rows, options, containers, request->writable, fsck, request->has_fs_group,
         request->fs_group, policy, bandwidth->size, bandwidth->refill_ms,
         bandwidth->one_time_burst, operations->size, operations->refill_ms,
         operations->one_time_burst);
    TAKE_NAME(rows, drive->serial);
    TAKE(rows, kind, disk->major, disk->minor, disk->diskseq, disk->file_device, disk->inode,
         disk->size_bytes);
    TAKE_NAME(rows, drive->guest_device);
    TAKE(rows, drive->wanted, state, drive->status, drive->message, drive->requested_ms,
         drive->ready_ms, drive->ended_ms);
    request->fsck = drive_fsck_from_name(fsck);
    request->fs_group_policy = drive_group_policy_from_name(policy);
    drive->has_disk = *kind != '\0';
    disk->kind = device_kind_from_name(kind);
    drive->state = drive_state_from_name(state);
    request->options = strdup(options);
    request->containers = strdup(containers);
    return request->options && request->containers ? 0 : sql_failed(rows->connection, SQLITE_NOMEM);
}

int store_get_drive_mount(struct store *store, const char *drive_id, int64_t drive_ref,
                          struct store_drive_mount *ret_drive)
{
    static const char by_id[] =
        SELECT_DRIVES " WHERE d.drive_id = ?1 ORDER BY d.ended_at IS NULL DESC, d.drive_ref DESC"
                      " LIMIT 1";
    static const char by_ref[] = SELECT_DRIVES " WHERE d.drive_ref = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = drive_id ? STORE_FIRST(store, by_id, &rows, drive_id)
                     : STORE_FIRST(store, by_ref, &rows, drive_ref);

    *ret_drive = (struct store_drive_mount){0};
    if (r <= 0)
        return r < 0 ? r : STORE_NOT_FOUND;
    r = take_drive(&rows, ret_drive);
    return r < 0 ? r : STORE_FOUND;
}

int store_each_drive_mount(struct store *store, store_drive_mount_callback *callback,
                           void *userdata)
{
    static const char open[] = SELECT_DRIVES " WHERE d.ended_at IS NULL ORDER BY d.drive_ref";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, open, &rows);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        cleanup(store_drive_mount_done) struct store_drive_mount drive = {0};

        r = take_drive(&rows, &drive);
        if (r == 0)
            r = callback(userdata, &drive);
    }
    return r;
}

/* ---- asked for ------------------------------------------------------------------------------ */

static int journal_drive(struct store *store, const char *kind, int64_t drive_ref)
{
    static const char find[] = "SELECT s.sandbox_id, d.host_path, d.drive_id, d.vm_path, d.state,"
                               " d.message FROM drive_mounts d JOIN sandboxes s"
                               " ON s.sandbox_ref = d.sandbox_ref WHERE d.drive_ref = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    const char *sandbox_id, *host_path, *drive_id, *vm_path, *state, *message;

    if (STORE_FIRST(store, find, &rows, drive_ref) <= 0)
        return STORE_RESULT(store);
    TAKE(&rows, sandbox_id, host_path, drive_id, vm_path, state, message);
    return JOURNAL(store, kind, ABOUT(.sandbox_id = sandbox_id, .device = host_path), "drive_id",
                   drive_id, "vm_path", vm_path, "state", state, "message", message);
}

int store_add_drive_mount(struct store *store, const struct store_drive_mount_request *request,
                          const char *serial, int64_t *ret_drive_ref)
{
    static const char find_conflict[] =
        "SELECT s.sandbox_ref,"
        " EXISTS (SELECT 1 FROM drive_mounts d WHERE d.drive_id = ?2 AND d.ended_at IS NULL),"
        " EXISTS (SELECT 1 FROM drive_mounts d WHERE d.sandbox_ref = s.sandbox_ref"
        "  AND d.vm_path = ?3 AND d.ended_at IS NULL),"
        " (SELECT count(*) FROM drive_mounts d WHERE d.ended_at IS NULL)"
        " FROM sandboxes s WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL";
    static const char insert[] =
        "INSERT INTO drive_mounts (" LIMITS ", drive_id, sandbox_ref, host_path, vm_path, fs_type,"
        " options, writable, fsck, fs_group, fs_group_policy, serial, state, requested_at,"
        " containers) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, coalesce(?12, '[]'),"
        " ?13, ?14, ?15, ?16, ?17, 'requested', ?18, coalesce(?19, '[]'))";
    const struct drive_limits *limits = &request->limits;
    cleanup(sql_end) struct sql_rows rows = {0};
    int64_t sandbox_ref, drive_ref, count;
    bool has_id, has_path;
    int r = STORE_FIRST(store, find_conflict, &rows, request->sandbox_id, request->drive_id,
                        request->vm_path);

    if (r <= 0)
        return r < 0 ? r : STORE_DRIVE_MOUNT_NO_SANDBOX;
    TAKE(&rows, sandbox_ref, has_id, has_path, count);
    if (has_id || has_path)
        return has_id ? STORE_DRIVE_MOUNT_ID_TAKEN : STORE_DRIVE_MOUNT_PATH_TAKEN;
    if (count >= STORE_DRIVE_MOUNTS)
        return STORE_DRIVE_MOUNT_TOO_MANY;
    r = STORE_RUN(
        store, insert, sql_known(limits->bandwidth.size), sql_known(limits->bandwidth.refill_ms),
        sql_known(limits->bandwidth.one_time_burst), sql_known(limits->operations.size),
        sql_known(limits->operations.refill_ms), sql_known(limits->operations.one_time_burst),
        request->drive_id, sandbox_ref, request->host_path, request->vm_path, request->fs_type,
        request->options, request->writable, drive_fsck_name(request->fsck),
        request->has_fs_group ? sql_number(request->fs_group) : sql_text(NULL),
        drive_group_policy_name(request->fs_group_policy), serial, store->now_ms,
        request->containers);
    drive_ref = sqlite3_last_insert_rowid(store->connection.db);
    if (r == 0)
        r = journal_drive(store, "drive_requested", drive_ref);
    if (r < 0)
        return r;
    *ret_drive_ref = drive_ref;
    return STORE_DRIVE_MOUNT_ADDED;
}

/* ---- on its way ----------------------------------------------------------------------------- */

int store_set_drive_mount_state(struct store *store, int64_t drive_ref, enum drive_state state,
                                enum status_code status, const char *message)
{
    static const char set[] =
        "UPDATE drive_mounts SET state = ?2, status = ?3, message = ?4,"
        " ready_at = coalesce(ready_at, CASE WHEN ?2 = 'ready' THEN ?5 END),"
        " ended_at = CASE WHEN ?6 THEN ?5 END WHERE drive_ref = ?1 AND ended_at IS NULL"
        " AND (state <> ?2 OR status <> ?3 OR message IS NOT ?4)";

    if (STORE_CHANGE(store, set, drive_ref, drive_state_name(state), status, message, store->now_ms,
                     drive_state_is_end(state)) > 0)
        journal_drive(store, "drive_state_changed", drive_ref);
    return STORE_RESULT(store);
}

int store_set_drive_mount_wanted(struct store *store, int64_t drive_ref, bool wanted)
{
    static const char set[] =
        "UPDATE drive_mounts SET wanted = ?2 WHERE drive_ref = ?1 AND wanted <> ?2"
        " AND ended_at IS NULL";

    if (STORE_CHANGE(store, set, drive_ref, wanted) > 0)
        journal_drive(store, wanted ? "drive_wanted_again" : "drive_unwanted", drive_ref);
    return STORE_RESULT(store);
}

int store_set_drive_mount_disk(struct store *store, int64_t drive_ref,
                               const struct store_drive_mount_disk *disk)
{
    static const char set[] =
        "UPDATE drive_mounts SET kind = ?2, major = ?3, minor = ?4, diskseq = ?5, file_device = ?6,"
        " inode = ?7, size_bytes = ?8 WHERE drive_ref = ?1 AND ended_at IS NULL";

    return STORE_RUN(store, set, drive_ref, device_kind_name(disk->kind), disk->major, disk->minor,
                     sql_known(disk->diskseq), sql_known(disk->file_device), sql_known(disk->inode),
                     disk->size_bytes);
}

int store_set_drive_mount_serial(struct store *store, int64_t drive_ref, const char *serial)
{
    return STORE_RUN(store,
                     "UPDATE drive_mounts SET serial = ?2 WHERE drive_ref = ?1 AND serial <> ?2",
                     drive_ref, serial);
}

int store_set_drive_mount_guest_device(struct store *store, int64_t drive_ref, const char *device)
{
    static const char set[] =
        "UPDATE drive_mounts SET guest_device = ?2 WHERE drive_ref = ?1 AND guest_device IS NOT ?2";

    return STORE_RUN(store, set, drive_ref, device);
}

int store_set_drive_mount_limits(struct store *store, int64_t drive_ref,
                                 const struct drive_limits *limits)
{
    static const char set[] = "UPDATE drive_mounts SET (" LIMITS ") = (?1, ?2, ?3, ?4, ?5, ?6)"
                              " WHERE drive_ref = ?7 AND ended_at IS NULL";

    return STORE_RUN(store, set, sql_known(limits->bandwidth.size),
                     sql_known(limits->bandwidth.refill_ms),
                     sql_known(limits->bandwidth.one_time_burst),
                     sql_known(limits->operations.size), sql_known(limits->operations.refill_ms),
                     sql_known(limits->operations.one_time_burst), drive_ref);
}
