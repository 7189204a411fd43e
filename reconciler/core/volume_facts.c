/* SPDX-License-Identifier: Apache-2.0 */
/* volume_facts.c - turns a volume's row into the facts for decide(). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "lib/process.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/lower_devices.h"
#include "reconciler/core/volume_pass.h"
#include "reconciler/decide/bind.h"
#include "reconciler/decide/decide.h"

/* How often somebody else may undo one resize before crustd stops. */
enum { UNDONE_MOST = 3 };

uint64_t volume_facts_still_from(const struct context *context, const struct store_volume *volume)
{
    return volume->size_since_ns + context->config->resize.settle_ms * NSEC_PER_MSEC;
}

/* Some types never mean a block device of the host; all others are judged by what the path leads
 * to. "blk" is the shim's own disk image of an emptyDir, unless the volume is not an emptyDir and
 * the path leads to a disk. */
static enum decide_device device_of(const struct store_volume *volume)
{
    static const char *const unsuitable[] = {"vfiovol", "vfio",     "spdkvol",
                                             "spdk",    "spoolvol", "network"};

    for (unsigned i = 0; i < array_length(unsuitable); i++)
        if (strcasecmp(volume->volume_type, unsuitable[i]) == 0)
            return DEVICE_UNSUITABLE;
    if (volume->device_path[0] != '/' ||
        (strcmp(volume->volume_type, "blk") == 0 &&
         (!volume->device_id || volume->device_kind != DEVICE_KIND_BLOCK ||
          strstr(volume->target_path, "/volumes/kubernetes.io~empty-dir/"))))
        return DEVICE_UNSUITABLE;
    if (!volume->device_id)
        return DEVICE_MISSING;
    if (volume->device_kind == DEVICE_KIND_OTHER)
        return DEVICE_UNSUITABLE;
    return volume->device_kind == DEVICE_KIND_FILE ? DEVICE_FILE : DEVICE_BLOCK;
}

/* Whether another metadata directory of the volume names another device. One whose device cannot be
 * observed is taken to disagree. */
static bool entries_disagree(const struct context *context, const struct store_volume *volume)
{
    struct observed_device other;
    int r;

    if (!volume->other_device_path[0])
        return false;
    r = observe_device_path(context->root, context->sysfs, volume->other_device_path, &other);
    if (r != OBSERVED || other.kind != volume->device_kind)
        return true;
    return volume->device_kind == DEVICE_KIND_BLOCK
               ? other.major != volume->major || other.minor != volume->minor
               : other.file_device != volume->file_device || other.inode != volume->inode;
}

static enum decide_conflict attachment_of(const struct store_volume *volume)
{
    static const enum decide_conflict conflicts[ATTACHMENTS] = {
        [ATTACHMENT_OPEN] = CONFLICT_NONE,
        [ATTACHMENT_DETACHED] = CONFLICT_DETACHED,
        [ATTACHMENT_BYPASSED] = CONFLICT_BYPASSED,
        [ATTACHMENT_UNPLUGGED] = CONFLICT_UNPLUGGED,
    };
    bool is_recorded = volume->is_recorded || volume->carrier == STORE_CARRIER_DEVICE;
    const struct attachment_facts facts = {
        .list = volume->list == STORE_LIST_HAS             ? LIST_HAS
                : volume->list == STORE_LIST_LACKS         ? LIST_LACKS
                : volume->hypervisor_reason != REASON_NONE ? LIST_REFUSED
                                                           : LIST_UNREAD,
        .record = volume->carrier == STORE_CARRIER_DIRECTORY ? RECORD_DIRECTORY
                  : is_recorded                              ? RECORD_DEVICE
                                                             : RECORD_SILENT,
        .has_container = volume->carrier != STORE_CARRIER_ENDED,
        .is_lasting = volume->list_misses >= ATTACHMENT_LASTING,
    };

    return volume->binding_id ? conflicts[attachment_decide(&facts)] : CONFLICT_NONE;
}

static enum decide_status status_of(const struct store_volume *volume)
{
    if (volume->status == STORE_PRESENT)
        return DECIDE_PRESENT;
    return volume->status == STORE_INVALID ? DECIDE_INVALID : DECIDE_GONE;
}

enum decide_conflict volume_facts_conflict(const struct context *context,
                                           const struct store_volume *volume, bool mismatch)
{
    if (status_of(volume) != DECIDE_PRESENT || volume->live_sandboxes == 0)
        return CONFLICT_NONE;
    if (volume->orphaned && volume->live_sandboxes == 1)
        return CONFLICT_SANDBOX_ORPHANED;
    if (entries_disagree(context, volume))
        return CONFLICT_ENTRIES_DISAGREE;
    if (mismatch)
        return CONFLICT_IDENTITY_MISMATCH;
    if (volume->shared_with || volume->shared_drive)
        return CONFLICT_DEVICE_SHARED;
    if (volume->live_sandboxes == 1 && volume->device_id &&
        volume->device_kind == DEVICE_KIND_BLOCK &&
        devices_host_use(context->devices, volume->major, volume->minor))
        return CONFLICT_HOST_IN_USE;
    return volume->bypassed ? CONFLICT_BYPASSED : attachment_of(volume);
}

struct decide_facts volume_facts_of(const struct context *context,
                                    const struct store_volume *volume,
                                    enum decide_conflict conflict)
{
    uint64_t now = clock_boottime();

    return (struct decide_facts){
        .status = status_of(volume),
        .policy = resize_policy_of(context->config, volume),
        .device = device_of(volume),
        .conflict = conflict,
        .lower = volume->layers_state == LAYER_STALE     ? LOWER_STALE
                 : volume->layers_state == LAYER_PENDING ? LOWER_PENDING
                                                         : LOWER_IN_STEP,
        .read_only = volume->read_only,
        .live_sandboxes = volume->live_sandboxes,
        .may_be_hidden = volume->hiding[0] != '\0',
        .device_bytes = volume->device_bytes,
        .first_bytes = volume->first_bytes,
        .largest_bytes = volume->largest_bytes,
        .hypervisor_bytes = volume->hypervisor_bytes,
        .guest_synced_bytes = volume->guest_synced_bytes,
        .list_read = volume->list == STORE_LIST_HAS,
        .list_again = volume->list_again,
        .is_undone = volume->undone >= UNDONE_MOST,
        /* The VMM opened the device after it had reached its present size. A VMM that contradicts
         * this counts more. */
        .size_assumed = volume->size_since_ns && volume->vmm_start_ns &&
                        volume->size_since_ns < volume->vmm_start_ns && !volume->list_error[0],
        .guest_proven = volume->guest_proven,
        .is_raw = !volume->grows_file_system,
        .is_bound = volume->binding_id != 0,
        .resize_open = volume->resize_id != 0,
        .resize_bytes = volume->resize_to_bytes,
        .is_still = now >= volume_facts_still_from(context, volume),
        .hypervisor_reason = volume->hypervisor_reason,
        .guest_reason = volume->guest_reason,
        .may_try = volume->next_attempt_ns ? now >= volume->next_attempt_ns : volume->attempts == 0,
    };
}

/* ---- evidence text -------------------------------------------------------------------------- */

/* As text for people: which source said what about which device. */

static void say_mismatch(const struct store_volume *volume, char *text, size_t size)
{
    const char *names = volume->is_block_claim ? "the driver has published" : "the metadata names";

    if (volume->record_contradicts)
        snprintf(text, size, "%s %.200s (%s), the runtime gave the VM %s", names,
                 volume->device_path, volume->device_name, volume->recorded_file);
    else if (volume->list_error[0])
        snprintf(text, size, "%s %.200s (%s), the VMM says: %s", names, volume->device_path,
                 volume->device_name, volume->list_error);
    else
        snprintf(text, size,
                 "%s %.200s (%s), another disk now than the one that the VM was given under this "
                 "number",
                 names, volume->device_path, volume->device_name);
}

static void say_shared(const struct context *context, const struct store_volume *volume, char *text,
                       size_t size)
{
    cleanup(store_drive_mount_done) struct store_drive_mount drive = {0};
    struct store_volume other = {.volume_id = volume->shared_with};

    if (!volume->shared_with &&
        store_get_drive_mount(context->store, NULL, volume->shared_drive, &drive) == STORE_FOUND)
        snprintf(text, size,
                 "volume %" PRId64 " (%.1000s) and drive %s of sandbox %s both lead to %.200s",
                 volume->volume_id, volume->target_path, drive.request.drive_id,
                 drive.request.sandbox_id, volume->device_name);
    else if (volume->shared_with && store_get_volume_itself(context->store, &other) == 0)
        snprintf(text, size,
                 "volume %" PRId64 " (%.1000s) and volume %" PRId64
                 " (%.1000s) both lead to %.200s",
                 volume->volume_id, volume->target_path, other.volume_id, other.target_path,
                 volume->device_name);
}

static void say_bypassed(const struct store_volume *volume, char *text, size_t size)
{
    const char *error = volume->list_error[0] ? volume->list_error : "no such drive";

    if (volume->bypassed)
        return; /* the view names the part that is mounted */
    if (volume->carrier == STORE_CARRIER_DIRECTORY)
        snprintf(
            text, size,
            "a container of sandbox %s has the directory %.1000s of the node, by the runtime's "
            "own record; the VMM's list: %s",
            volume->sandbox_id, volume->target_path,
            volume->list == STORE_LIST_LACKS ? error : reason_name(volume->hypervisor_reason));
    else
        snprintf(text, size,
                 "a container of sandbox %s has drive %s, by the runtime's own record; the VMM's "
                 "list: %s",
                 volume->sandbox_id, volume->recorded_drive_id, error);
}

int blocked_detail_record(const struct context *context, struct store_volume *volume,
                          const struct decision *decision)
{
    enum volume_reason reason =
        decision->state == STATE_BLOCKED || decision->reason == REASON_NO_DEVICE ? decision->reason
                                                                                 : REASON_NONE;
    char text[STORE_PATH_BYTES * 2] = "";
    struct error still = {0};

    if (volume->hypervisor_reason == REASON_HYPERVISOR_UNREACHABLE &&
        process_stands_still(volume->vmm_pid, &still))
        snprintf(text, sizeof(text), "the VMM does not answer: %s", still.text);
    else if (volume->hypervisor_reason == REASON_VM_PAUSED ||
             (decision->state == STATE_UNKNOWN && volume->hypervisor_error[0] &&
              !reason_heals(decision->reason, decision->state))) /* its pod does not just start */
        snprintf(text, sizeof(text), "%s", volume->hypervisor_error);
    else if (decision->reason == REASON_BUNDLE_UNREADABLE)
        snprintf(text, sizeof(text), "sandbox %s", volume->hiding);
    else if (reason != REASON_NONE && volume->orphaned && volume->sandbox_id[0])
        snprintf(text, sizeof(text),
                 "process %d, the VMM of sandbox %s, has outlived its shim: it ends by kill %d",
                 (int)volume->vmm_pid, volume->sandbox_id, (int)volume->vmm_pid);
    else if (reason != REASON_NONE && volume->orphaned)
        snprintf(text, sizeof(text),
                 "the VMM of one of the sandboxes has outlived its shim: crustctl doctor names it");
    else if (reason == REASON_IDENTITY_MISMATCH)
        say_mismatch(volume, text, sizeof(text));
    else if (reason == REASON_NO_DEVICE &&
             path_guard_check(context->root, volume->device_path) == PATH_MAY_HANG)
        snprintf(text, sizeof(text),
                 "%s leads into a file system that may hang, or over too many names and links",
                 volume->device_path);
    else if (reason == REASON_DEVICE_SHARED)
        say_shared(context, volume, text, sizeof(text));
    else if (reason == REASON_BYPASSED)
        say_bypassed(volume, text, sizeof(text));
    else if (reason == REASON_POLICY)
        snprintf(text, sizeof(text),
                 "the pod has the annotation io.katacontainers.volume.confidential: its manifest "
                 "fixes the device's size");
    return store_set_evidence(context->store, volume, text);
}

/* ---- resizable ------------------------------------------------------------------------------ */

/* Whether a resize would reach the file system needs no request of its own: the VMM's list is read
 * at each binding, and each binding gets one ResizeVolume, by whichever route into the guest works.
 * So it is judged whenever the volume is. */

int resizable_record(const struct context *context, const struct store_volume *volume,
                     const struct decide_facts *resize)
{
    const struct log_ids ids = {volume->volume_id, volume->sandbox_id, volume->device_name, NULL,
                                volume->pv};
    struct decide_facts given = *resize;
    bool is_seen = volume->list == STORE_LIST_HAS && volume->obstacle_known;
    struct resizable_facts facts = {.resize = &given,
                                    .monitor = is_seen ? MONITOR_ABLE : MONITOR_UNASKED};
    struct resizable resizable;
    const char *answer;
    bool changed = false;
    int r;

    if (resize->guest_reason == REASON_GROWING) { /* proof that it can */
        given.guest_reason = REASON_NONE;
        given.guest_proven = true;
    }
    if (is_seen && volume->obstacle != REASON_NONE) {
        facts.monitor = MONITOR_UNABLE;
        facts.monitor_reason = volume->obstacle;
    } else if (hypervisor_traits(volume->hypervisor)->resize_obstacle ||
               permit_find_forbidding(context->config, volume->hypervisor)) {
        facts.monitor = MONITOR_UNABLE;
        facts.monitor_reason = REASON_HYPERVISOR_UNSUPPORTED;
    }
    resizable = resizable_decide(&facts);
    answer = resizable_name(resizable.answer);
    r = store_set_resizable(context->store, volume, answer, resizable.reason, &changed);
    if (r < 0 || !changed || !answer)
        return r;
    if (resizable.answer == RESIZABLE_NO)
        log_info(&ids, "a resize would not reach %s: %s",
                 volume->is_block_claim ? "the VM's disk" : "its file system",
                 reason_name(resizable.reason));
    else if (strcmp(volume->resizable, "no") == 0)
        log_info(&ids, "an obstacle to resizes is gone: %s", reason_name(volume->resizable_reason));
    return 0;
}
