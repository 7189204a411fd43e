/* SPDX-License-Identifier: Apache-2.0 */
/* volumes.c - one volume whole, as a decision needs it.
 *
 * store_get_volume() stands between a uevent and the command that answers it. It is a few small
 * joins, each a search by an index from the volume outwards, so its cost depends on what the volume
 * has and never on how many volumes there are; a test reads the query plans. Columns are taken in
 * the order in which they are selected: a query and the function that reads it are to be changed
 * together.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/text.h"
#include "store/schema.h"
#include "store/store_internal.h"

static const char select_volume[] =
    "SELECT v.status, (SELECT max(o.policy) FROM entries o WHERE o.volume_id = v.volume_id"
    "  AND o.gone = 0), (SELECT min(o.read_only) FROM entries o WHERE o.volume_id = v.volume_id"
    "  AND o.gone = 0), v.target_path, e.key, e.pv, e.volume_type, e.device,"
    " (SELECT o.device FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0"
    "  AND o.device <> e.device LIMIT 1), v.state, v.reason, v.attempts, v.next_attempt_ns,"
    " d.device_id, d.kind, d.name, d.major, d.minor, d.file_device, d.inode,"
    " d.size_bytes, d.size_since_ns, d.announced,"
    " (SELECT 1 + max(l.state) FROM layers l WHERE l.device_id = v.device_id),"
    " m.mapping_id, m.device_id, b.major, b.minor, m.sandbox_ref, m.drive_id, m.guest_path, "
    "m.source, m.first_bytes,"
    " m.largest_bytes, m.hypervisor_bytes, m.guest_bytes, m.guest_synced_bytes,"
    " m.hypervisor_reason, m.guest_reason, m.record, m.list, m.list_error,"
    " m.obstacle, m.guest_proven, m.hypervisor_error, m.undone,"
    " v.filled_device_id, v.filled_bytes,"
    " r.resize_id, r.from_bytes, r.to_bytes,"
    " e.subpaths, v.evidence IS NOT NULL, v.observed, v.resizable, v.resizable_reason,"
    " e.fs_type = 'btrfs', e.layout = 'none', e.grows_file_system"
    " FROM volumes v"
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " LEFT JOIN devices d ON d.device_id = v.device_id"
    " LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL"
    " LEFT JOIN devices b ON b.device_id = m.device_id"
    " LEFT JOIN resizes r ON r.volume_id = v.volume_id AND r.finished_at IS NULL"
    " WHERE v.volume_id = ?1";

/* No DISTINCT and no ORDER BY here or below: each would build a temporary table, which costs more
 * than the rest of the query. The readers of the rows skip and compare instead. */
#define SANDBOX                                                                                    \
    "s.sandbox_ref, s.sandbox_id, s.runtime, s.hypervisor, s.vmm_pid, s.vmm_start_ns,"             \
    " s.control_socket, s.agent_address, s.companion_ability, s.agent_ability, s.shim_ability,"    \
    " s.helper_ability, s.orphaned"

static const char select_named_sandboxes[] =
    "SELECT " SANDBOX ", CASE n.published WHEN 1 THEN 'api' ELSE 'sandbox-file' END, NULL, 0,"
    " NULL, NULL, NULL, NULL"
    " FROM entries e"
    " JOIN entry_sandboxes n ON n.entry_id = e.entry_id"
    " JOIN sandboxes s ON s.sandbox_id = n.sandbox_id AND s.gone_at IS NULL"
    " WHERE e.volume_id = ?1 AND e.gone = 0";

/* Claims end with their sandbox. */
static const char select_claiming_sandboxes[] =
    "SELECT " SANDBOX ", c.source, coalesce(c.guest_path, d.guest_path), coalesce(c.carrier, 1),"
    " coalesce(c.major, d.major, -1), coalesce(c.minor, d.minor),"
    " coalesce('block device ' || c.major || ':' || c.minor, d.file), d.drive_id"
    " FROM sandbox_claims c"
    " JOIN sandboxes s ON s.sandbox_ref = c.sandbox_ref"
    " LEFT JOIN sandbox_drives d ON d.sandbox_ref = c.sandbox_ref AND d.position = c.drive"
    " WHERE c.path = ?1";

/* Its files are all that an orphaned VMM says about its volumes: the records may be gone, and the
 * volume may have been staged again under another path. */
static const char select_orphaned_sandboxes[] =
    "SELECT " SANDBOX ", 'hypervisor', NULL, 0, NULL, NULL, NULL, NULL"
    " FROM sandboxes s INDEXED BY sandboxes_orphaned"
    " JOIN sandbox_drives d ON d.sandbox_ref = s.sandbox_ref AND d.major = ?1 AND d.minor = ?2"
    " WHERE s.orphaned = 1 AND s.gone_at IS NULL";

/* A KEP-2857 runtime finds the metadata by a prefix of the mounted path, so mounting a part of the
 * volume does not bypass it there: the runtime leaves its sandbox-id file beside the metadata and
 * attaches the device, and no container has the whole path (every runtime would attach it for
 * that). A part that the kubelet binds elsewhere has no such prefix. */
#define UNSERVED                                                                                   \
    " AND NOT (NOT EXISTS (SELECT 1 FROM sandbox_claims w"                                         \
    "  WHERE w.sandbox_ref = c.sandbox_ref AND w.path = ?1)"                                       \
    " AND EXISTS (SELECT 1 FROM sandbox_drives d"                                                  \
    "  WHERE d.sandbox_ref = c.sandbox_ref AND d.major = ?4 AND d.minor = ?5)"                     \
    " AND EXISTS (SELECT 1 FROM entries e JOIN entry_sandboxes n ON n.entry_id = e.entry_id"       \
    "  JOIN sandboxes s ON s.sandbox_id = n.sandbox_id AND s.gone_at IS NULL"                      \
    "  WHERE e.volume_id = ?3 AND e.gone = 0 AND s.sandbox_ref = c.sandbox_ref))"

/* CLAIMS_WITHIN in two halves, because its OR would build a temporary table as well. */
#define CLAIMING_BELOW(path)                                                                       \
    "SELECT c.sandbox_ref FROM sandbox_claims c WHERE " CLAIM_BELOW(path) AND_NO_VOLUME
static const char select_bypassing_sandboxes[] =
    CLAIMING_BELOW("?1") UNSERVED " UNION ALL " CLAIMING_BELOW("?2");

/* The same number is the same device. The path as written was given to the runtime, and identifies
 * the drive even if it points elsewhere by now. */
static const char select_drive[] =
    "SELECT 2 * (?5 AND major = ?3 AND minor = ?4) + (mount_source IS ?2),"
    " ?5 AND mount_source = ?2 AND major >= 0 AND (major <> ?3 OR minor <> ?4), drive_id,"
    " guest_path, file FROM sandbox_drives WHERE sandbox_ref = ?1"
    " AND ((?5 AND major = ?3 AND minor = ?4) OR mount_source = ?2 OR file = ?2 OR file = ?6)";

/* Pods that share one raw block claim know that of each other. */
static const char select_shared[] =
    "SELECT w.volume_id FROM volumes w WHERE w.device_id = ?2 AND w.volume_id <> ?1 AND "
    "w.removed_at IS NULL"
    " AND NOT (?4 AND EXISTS (SELECT 1 FROM entries c WHERE c.entry_id = w.entry_id"
    "  AND c.layout = 'none' AND c.pv = ?5))"
    " AND NOT (?3 AND (SELECT min(o.read_only) FROM entries o WHERE o.volume_id = w.volume_id"
    "  AND o.gone = 0))"
    " AND (EXISTS (SELECT 1 FROM entries e JOIN entry_sandboxes n ON n.entry_id = e.entry_id"
    "   JOIN sandboxes s ON s.sandbox_id = n.sandbox_id AND s.gone_at IS NULL"
    "   WHERE e.volume_id = w.volume_id AND e.gone = 0)"
    "  OR EXISTS (SELECT 1 FROM sandbox_claims c WHERE c.path = w.target_path)) LIMIT 1";

/* A drive whose disk is claimed only is refused if the volume was bound before; if it was bound
 * since, the VMM may be given the disk at this moment. A drive whose sandbox has ended counts until
 * its row ends, because until then its VMM's process may have the disk; but not one of an earlier
 * boot, whose number another disk may have now. */
static const char select_shared_drive[] =
    "SELECT r.drive_ref FROM devices d JOIN drive_mounts r ON r.ended_at IS NULL"
    " AND r.kind = d.kind AND r.major = d.major AND r.minor = d.minor"
    " AND coalesce(r.file_device, 0) = coalesce(d.file_device, 0)"
    " AND coalesce(r.inode, 0) = coalesce(d.inode, 0)"
    " AND (r.diskseq IS NULL OR coalesce(d.diskseq, 0) IN (0, r.diskseq))"
    " JOIN sandboxes s ON s.sandbox_ref = r.sandbox_ref AND s.boot_id = d.boot_id"
    " WHERE d.device_id = ?1 AND r.state <> 'requested'"
    " AND (r.state <> 'claimed' OR NOT EXISTS (SELECT 1 FROM mappings m"
    "  WHERE m.volume_id = ?3 AND m.until IS NULL AND m.since <= r.requested_at))"
    " AND (r.writable OR NOT ?2) LIMIT 1";

static int load_volume(struct store *store, struct store_volume *volume,
                       char ret_subpaths[static STORE_PATH_BYTES])
{
    static const char *const statuses[] = {"present", "invalid", "quarantined", "removed"};
    cleanup(sql_end) struct sql_rows rows = {0};
    const char *status, *state, *reason, *kind, *hypervisor_reason, *guest_reason, *obstacle;
    unsigned layers;
    int64_t list;
    int r = STORE_FIRST(store, select_volume, &rows, volume->volume_id);

    if (r <= 0)
        return r < 0 ? r : STORE_NO_VOLUME;
    TAKE(&rows, status, volume->policy, volume->read_only, volume->target_path, volume->key,
         volume->pv, volume->volume_type, volume->device_path, volume->other_device_path, state,
         reason, volume->attempts, volume->next_attempt_ns);
    TAKE(&rows, volume->device_id, kind, volume->device_name, volume->major, volume->minor,
         volume->file_device, volume->inode, volume->device_bytes, volume->size_since_ns,
         volume->device_announced, layers);
    TAKE(&rows, volume->binding_id, volume->binding_device_id, volume->binding_major,
         volume->binding_minor, volume->binding_sandbox_ref);
    TAKE_NAME(&rows, volume->drive_id, volume->guest_path);
    TAKE(&rows, volume->binding_source, volume->first_bytes, volume->largest_bytes,
         volume->hypervisor_bytes, volume->guest_bytes, volume->guest_synced_bytes,
         hypervisor_reason, guest_reason, volume->record, list, volume->list_error, obstacle,
         volume->guest_proven, volume->hypervisor_error, volume->undone, volume->filled_device_id,
         volume->filled_bytes);
    TAKE(&rows, volume->resize_id, volume->resize_from_bytes, volume->resize_to_bytes);
    sql_take_text(&rows, ret_subpaths, STORE_PATH_BYTES);
    TAKE(&rows, volume->has_evidence, volume->observed, volume->resizable);
    volume->resizable_reason = reason_from_name(sql_borrow_text(&rows));
    TAKE(&rows, volume->is_btrfs, volume->is_block_claim, volume->grows_file_system);

    volume->status = (enum store_status)name_table_find(
        statuses, sizeof(*statuses), array_length(statuses), status, STORE_INVALID);
    volume->state = state_from_name(state);
    volume->reason = reason_from_name(reason);
    volume->has_unknown_words =
        volume->state == STATES || strcmp(reason, reason_name(volume->reason)) != 0;
    if (volume->state == STATES)
        volume->state = STATE_UNKNOWN;
    volume->device_kind = device_kind_from_name(kind);
    volume->has_layers = layers > 0;
    volume->layers_state = layers - volume->has_layers;
    volume->hypervisor_reason = reason_from_name(hypervisor_reason);
    volume->guest_reason = reason_from_name(guest_reason);
    volume->list_again = list == LIST_AGAIN;
    volume->list_misses = list < 0 ? (unsigned)-list : 0;
    volume->list = list > 0 ? STORE_LIST_HAS : list < 0 ? STORE_LIST_LACKS : STORE_LIST_UNREAD;
    volume->obstacle_known = *obstacle != '\0';
    volume->obstacle = reason_from_name(obstacle);
    return 0;
}

static void take_sandbox(struct sql_rows *rows, struct store_volume *volume)
{
    TAKE_NAME(rows, volume->sandbox_id);
    volume->runtime = runtime_from_name(sql_borrow_text(rows));
    volume->hypervisor = hypervisor_kind_from_name(sql_borrow_text(rows));
    TAKE(rows, volume->vmm_pid, volume->vmm_start_ns);
    TAKE_NAME(rows, volume->control_socket, volume->agent_address);
    for (enum guest_route i = ROUTE_COMPANION; i < GUEST_ROUTES; i++)
        TAKE(rows, volume->ability[i]);
    volume->orphaned |= sql_take_number(rows) != 0;
}

static void forget_sandbox(struct store_volume *volume)
{
    const size_t first = offsetof(struct store_volume, sandbox_ref);

    memset((char *)volume + first, 0, offsetof(struct store_volume, is_recorded) - first);
}

/* The runtime's record for the mount of this volume outweighs a match by device, because the
 * metadata may have been rewritten since. */
static void take_carrier(struct sql_rows *rows, struct store_volume *volume)
{
    enum store_carrier carrier = (enum store_carrier)sql_take_number(rows);
    int64_t major = sql_take_number(rows), minor = sql_take_number(rows);

    if (carrier <= volume->carrier)
        return;
    volume->carrier = carrier;
    TAKE_NAME(rows, volume->recorded_file, volume->recorded_drive_id);
    volume->is_recorded = carrier == STORE_CARRIER_DEVICE;
    volume->record_contradicts = major >= 0 && volume->device_id &&
                                 volume->device_kind == DEVICE_KIND_BLOCK &&
                                 (major != volume->major || minor != volume->minor);
}

/* A sandbox that is named and also claims the volume, or that is named in both layouts, counts
 * once. */
static int take_sandboxes(struct sql_rows *rows, struct store_volume *volume)
{
    int r;

    while ((r = sql_next(rows)) > 0) {
        int64_t sandbox_ref = sql_take_number(rows);
        bool is_known = sandbox_ref == volume->sandbox_ref;
        char source[sizeof(volume->claim_source)];

        if (!is_known) {
            volume->live_sandboxes++;
            volume->sandbox_ref = sandbox_ref;
        }
        take_sandbox(rows, volume);
        TAKE(rows, source);
        if (!is_known)
            memcpy(volume->claim_source, source, sizeof(source));
        TAKE_NAME(rows, volume->recorded_guest_path);
        take_carrier(rows, volume);
    }
    return r;
}

static int load_sandbox(struct store *store, const char *subpaths, struct store_volume *volume)
{
    cleanup(sql_end) struct sql_rows named = {0}, claiming = {0}, orphaned = {0}, bypassing = {0};
    int r = STORE_QUERY(store, select_named_sandboxes, &named, volume->volume_id);

    if (r == 0)
        r = take_sandboxes(&named, volume);
    if (r == 0)
        r = STORE_QUERY(store, select_claiming_sandboxes, &claiming, volume->target_path);
    if (r == 0)
        r = take_sandboxes(&claiming, volume);
    if (r == 0 && volume->device_id && volume->device_kind == DEVICE_KIND_BLOCK)
        r = STORE_QUERY(store, select_orphaned_sandboxes, &orphaned, volume->major, volume->minor);
    if (r == 0 && orphaned.statement)
        r = take_sandboxes(&orphaned, volume);
    if (r == 0)
        r = STORE_QUERY(store, select_bypassing_sandboxes, &bypassing, volume->target_path,
                        subpaths, volume->volume_id, volume->major, volume->minor);
    /* Sandboxes that have only a part of it; those that have all of it were counted. */
    for (int64_t known = volume->sandbox_ref; r == 0 && (r = sql_next(&bypassing)) > 0; r = 0) {
        int64_t sandbox_ref = sql_take_number(&bypassing);

        volume->bypassed = true;
        if (sandbox_ref != known)
            volume->live_sandboxes++;
        known = sandbox_ref;
    }
    if (volume->live_sandboxes > 1)
        forget_sandbox(volume);
    volume->hiding[0] = '\0';
    if (r == 0 && volume->live_sandboxes == 0)
        r = store_find_problem(store, volume->hiding, sizeof(volume->hiding));
    return r;
}

enum { NUMBER_AND_PATH = 3 }; /* the best that a record can be for a volume */

static int load_drive(struct store *store, struct store_volume *volume)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    bool by_number = volume->device_id && volume->device_kind == DEVICE_KIND_BLOCK;
    int64_t best = -1;
    int r;

    if (!volume->sandbox_ref || volume->recorded_drive_id[0])
        return 0;
    r = STORE_QUERY(store, select_drive, &rows, volume->sandbox_ref, volume->device_path,
                    volume->major, volume->minor, by_number, volume->device_name);
    while (r == 0 && (r = sql_next(&rows)) > 0) {
        int64_t rank = sql_take_number(&rows);

        r = 0;
        volume->is_recorded = true;
        volume->record_contradicts |= sql_take_number(&rows) != 0;
        if (rank <= best)
            continue;
        best = rank;
        TAKE_NAME(&rows, volume->recorded_drive_id, volume->recorded_guest_path,
                  volume->recorded_file);
    }
    volume->record_contradicts &= best < NUMBER_AND_PATH || volume->is_block_claim;
    if (volume->is_block_claim) /* no runtime mounts it */
        volume->recorded_guest_path[0] = '\0';
    return r;
}

static int load_shared(struct store *store, struct store_volume *volume)
{
    cleanup(sql_end) struct sql_rows rows = {0}, drives = {0};
    int r;

    if (!volume->device_id)
        return 0;
    r = STORE_FIRST(store, select_shared, &rows, volume->volume_id, volume->device_id,
                    volume->read_only, volume->is_block_claim, volume->pv);
    if (r > 0)
        volume->shared_with = sql_take_number(&rows);
    if (r >= 0)
        r = STORE_FIRST(store, select_shared_drive, &drives, volume->device_id, volume->read_only,
                        volume->volume_id);
    if (r > 0)
        volume->shared_drive = sql_take_number(&drives);
    return r < 0 ? r : 0;
}

void store_volume_copy(struct store_volume *ret_copy, const struct store_volume *volume)
{
    memcpy(ret_copy, volume, offsetof(struct store_volume, target_path));
    strcpy(ret_copy->target_path, volume->target_path);
    strcpy(ret_copy->device_path, volume->device_path);
    strcpy(ret_copy->other_device_path, volume->other_device_path);
    strcpy(ret_copy->device_name, volume->device_name);
}

int store_get_volume(struct store *store, int64_t volume_id, struct store_volume *ret_volume)
{
    char subpaths[STORE_PATH_BYTES];
    int r;

    /* Everything but the paths, which are large and always read from the row. */
    memset(ret_volume, 0, offsetof(struct store_volume, target_path));
    ret_volume->target_path[0] = ret_volume->device_path[0] = '\0';
    ret_volume->other_device_path[0] = ret_volume->device_name[0] = '\0';
    ret_volume->volume_id = volume_id;
    r = load_volume(store, ret_volume, subpaths);
    if (r == 0)
        r = load_sandbox(store, subpaths, ret_volume);
    if (r == 0)
        r = load_drive(store, ret_volume);
    if (r == 0)
        r = load_shared(store, ret_volume);
    return r;
}

int store_reload_volume(struct store *store, struct store_volume *volume)
{
    int r = store_get_volume(store, volume->volume_id, volume);

    return r == STORE_NO_VOLUME ? STORE_FAULT : r;
}

int store_get_volume_itself(struct store *store, struct store_volume *volume)
{
    char subpaths[STORE_PATH_BYTES];
    int r = load_volume(store, volume, subpaths);

    return r == STORE_NO_VOLUME ? STORE_FAULT : r;
}

int store_get_volume_device(struct store *store, struct store_volume *volume)
{
    static const char find[] =
        "SELECT name, size_bytes, size_since_ns, announced FROM devices WHERE device_id = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, volume->device_id);

    if (r <= 0)
        return r;
    TAKE(&rows, volume->device_name, volume->device_bytes, volume->size_since_ns,
         volume->device_announced);
    return 0;
}

int store_get_pv(struct store *store, int64_t volume_id, char ret_pv[static STORE_KEY_BYTES])
{
    static const char find[] = "SELECT e.pv FROM volumes v JOIN entries e"
                               " ON e.entry_id = v.entry_id WHERE v.volume_id = ?1";

    ret_pv[0] = '\0';
    if (!store->connection.db)
        return -EBADF;
    STORE_FIND_TEXT(store, find, ret_pv, STORE_KEY_BYTES, volume_id);
    return STORE_RESULT(store);
}
