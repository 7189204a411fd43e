/* SPDX-License-Identifier: Apache-2.0 */
/* act_hypervisor.c - asking a VMM for a drive's size, or telling it that the device has grown. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/process.h"
#include "observe/persist.h"
#include "reconciler/act/act.h"
#include "reconciler/core/context.h"
#include "reconciler/core/permit.h"
#include "reconciler/core/work_queue.h"

static const enum volume_reason reasons[HYPERVISOR_OUTCOMES] = {
    [HYPERVISOR_DONE] = REASON_NONE,
    [HYPERVISOR_MONITOR_MISSING] = REASON_MONITOR_MISSING,
    [HYPERVISOR_BUSY] = REASON_HYPERVISOR_BUSY,
    [HYPERVISOR_UNREACHABLE] = REASON_HYPERVISOR_UNREACHABLE,
    [HYPERVISOR_UNSUPPORTED] = REASON_HYPERVISOR_UNSUPPORTED,
    [HYPERVISOR_VERSION] = REASON_HYPERVISOR_VERSION,
    [HYPERVISOR_REFUSED] = REASON_HYPERVISOR_REFUSED,
    [HYPERVISOR_DRIVE_NOT_FOUND] = REASON_DRIVE_NOT_FOUND,
    [HYPERVISOR_READ_ONLY] = REASON_READ_ONLY,
    [HYPERVISOR_MISMATCH] = REASON_IDENTITY_MISMATCH,
    [HYPERVISOR_PAUSED] = REASON_VM_PAUSED,
};

/* Kata's Go runtime has the agent mount a drive by its PCI address, and does not record Cloud
 * Hypervisor's. So the address from the VMM serves like a path, which every route takes. */
static bool address_is_mount_point(const struct act *act, const char *address)
{
    return strncmp(address, "pci:", 4) == 0 && act->volume.runtime == RUNTIME_KATA_GO &&
           act->volume.hypervisor == HYPERVISOR_CLOUD_HYPERVISOR;
}

static void note_address(struct act *act, const char *address)
{
    cleanup(freep) char *path = NULL;

    if (address_is_mount_point(act, address) && persist_guest_path(address + 4, &path) == 0 && path)
        address = path;
    (void)snprintf(act->vmm.guest_address, sizeof(act->vmm.guest_address), "%s", address);
}

static void on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                    void *userdata)
{
    struct act *act = userdata;
    struct act_vmm *vmm = &act->vmm;
    enum volume_reason reason = reasons[reply->outcome];
    struct error error = reply->error, still = {0};

    if ((reply->outcome == HYPERVISOR_UNREACHABLE ||
         (reply->outcome == HYPERVISOR_BUSY && reply->list == HYPERVISOR_LIST_UNREAD)) &&
        process_stands_still(act->volume.vmm_pid, &still)) {
        if (reply->outcome == HYPERVISOR_BUSY)
            error.text[0] = '\0'; /* it names another client */
        reason = REASON_HYPERVISOR_UNREACHABLE;
        (void)error_prefix(&error, "the VMM does not answer: %s%s", still.text,
                           error.text[0] ? "; " : "");
    }
    vmm->bytes = reply->bytes;
    vmm->list = reply->list;
    vmm->resize_reason = reasons[reply->resize];
    memcpy(vmm->version, reply->version, sizeof(vmm->version));
    (void)snprintf(vmm->drive_id, sizeof(vmm->drive_id), "%s", reply->drive_id);
    note_address(act, reply->address);
    vmm->call = hypervisor_call_free(call);
    act_finish(act, reason, &error);
}

static const char *known(const char *text)
{
    return text[0] ? text : NULL;
}

static int act_hypervisor_intend(struct act *act)
{
    return store_intend(act->context->store, &act->volume, decide_action_name(act->action));
}

static int act_hypervisor_start(struct act *act)
{
    const struct store_volume *volume = &act->volume;
    struct hypervisor_request request = {
        .act = act->action == ACTION_RESIZE_HYPERVISOR ? HYPERVISOR_RESIZE : HYPERVISOR_QUERY,
        .root = act->context->root,
        .control_socket = known(volume->control_socket),
        .vmm_pid = volume->vmm_pid,
        .sandbox_id = volume->sandbox_id,
        .forbidden = permit_find_forbidding(act->context->config, volume->hypervisor),
        .regular_file = volume->device_kind == DEVICE_KIND_FILE,
        .device = makedev(volume->major, volume->minor),
        .file_device = volume->file_device,
        .inode = volume->inode,
        .recorded_drive = known(volume->recorded_drive_id),
        .wants_address = volume->guest_path[0] != '/',
        .bytes = volume->device_bytes,
        .deadline_ns = act_time_left(act),
    };

    return hypervisor_call_new(act->context->loop, volume->hypervisor, &request, on_done, act,
                               &act->vmm.call);
}

static const enum store_list lists[] = {
    [HYPERVISOR_LIST_UNREAD] = STORE_LIST_UNREAD,
    [HYPERVISOR_LIST_HAS] = STORE_LIST_HAS,
    [HYPERVISOR_LIST_LACKS] = STORE_LIST_LACKS,
};

/* Whether a resize of the drive would succeed, as far as this answer shows. A resize that failed is
 * on record with its reason, and a job that holds the drive ends by itself. */
static enum volume_reason obstacle_of(const struct act *act)
{
    bool is_clear =
        act->action == ACTION_RESIZE_HYPERVISOR || act->vmm.resize_reason == REASON_HYPERVISOR_BUSY;

    return is_clear ? REASON_NONE : act->vmm.resize_reason;
}

/* Somebody else set the drive back; its device still has the size that the VMM had taken. */
static bool is_undone(const struct act *act)
{
    const struct store_volume *volume = &act->volume;
    const struct log_ids ids = {volume->volume_id, volume->sandbox_id, volume->device_name, NULL,
                                volume->pv};
    const bool is_undone = act->vmm.list == HYPERVISOR_LIST_HAS && act->vmm.bytes &&
                           act->vmm.bytes < volume->hypervisor_bytes &&
                           act->vmm.bytes < volume->device_bytes;

    if (is_undone)
        log_warning(
            &ids, "the VM's disk had %" PRIu64 " bytes, and somebody else set it back to %" PRIu64,
            volume->hypervisor_bytes, act->vmm.bytes);
    return is_undone;
}

static int act_hypervisor_record(struct act *act)
{
    const bool has_worked = act->reason == REASON_NONE || act->reason == REASON_VM_PAUSED;
    struct store_hypervisor_result result = {
        .volume_id = act->volume.volume_id,
        .sandbox_id = act->volume.sandbox_id,
        .device = act->volume.device_name,
        .reason = act->reason,
        .error = act->error.text,
        .drive_id = known(act->vmm.drive_id),
        .guest_path = known(act->vmm.guest_address),
        .bytes = act->vmm.list == HYPERVISOR_LIST_HAS ? act->vmm.bytes : 0,
        .record = act->volume.record,
        .list = lists[act->vmm.list],
        .recorded_drive = known(act->volume.recorded_drive_id),
        .recorded_guest_path = known(act->volume.recorded_guest_path),
        .obstacle_known = act->vmm.list == HYPERVISOR_LIST_HAS && has_worked,
        .obstacle = obstacle_of(act),
        .told = act->action == ACTION_RESIZE_HYPERVISOR && has_worked,
        .undone = is_undone(act),
    };

    struct store *store = act->context->store;
    int r = 0;

    if (act->vmm.version[0])
        r = store_set_vmm_version(store, act->volume.sandbox_ref, act->vmm.version);
    return r < 0 ? r : store_put_hypervisor_result(store, &result);
}

static void act_hypervisor_done(struct act *act)
{
    act->vmm.call = hypervisor_call_free(act->vmm.call);
}

const struct act_ops act_hypervisor_ops = {
    .intend = act_hypervisor_intend,
    .start = act_hypervisor_start,
    .record = act_hypervisor_record,
    .done = act_hypervisor_done,
    .unstarted = REASON_HYPERVISOR_UNREACHABLE,
    .problem = "the call to the hypervisor could not be started",
};
