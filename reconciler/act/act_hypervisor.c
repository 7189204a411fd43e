/* act_hypervisor.c - asking a VMM for a drive's size, or telling it that the device has grown. */
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "reconciler/act/act.h"

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
};

static void on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                    void *userdata)
{
    struct act *act = userdata;

    act->reason = reasons[reply->outcome];
    act->error = reply->error;
    act->hypervisor_bytes = reply->bytes;
    act->list = reply->list;
    act->resize_reason = reasons[reply->resize];
    memcpy(act->vmm_version, reply->version, sizeof(act->vmm_version));
    snprintf(act->drive_id, sizeof(act->drive_id), "%s", reply->drive_id);
    snprintf(act->guest_address, sizeof(act->guest_address), "%s", reply->address);
    act->hypervisor = hypervisor_call_free(call);
    act_finish(act);
}

static const char *known(const char *text)
{
    return text[0] ? text : NULL;
}

int act_hypervisor_start(struct act *act)
{
    const struct store_volume *volume = &act->volume;
    struct hypervisor_request request = {
        .act = act->action == ACTION_RESIZE_HYPERVISOR ? HYPERVISOR_RESIZE : HYPERVISOR_QUERY,
        .root = act->reconciler->root,
        .control_socket = known(volume->control_socket),
        .vmm_pid = volume->vmm_pid,
        .firecracker_allowed = act->reconciler->config.resize.firecracker,
        .regular_file = volume->device_kind == STORE_FILE,
        .device = makedev(volume->major, volume->minor),
        .file_device = volume->file_device,
        .inode = volume->inode,
        .recorded_drive = known(volume->recorded_drive_id),
        .wants_address = !act_knows_mount_point(act),
        .bytes = volume->device_bytes,
        .deadline_ns = act_time_left(act),
    };

    return hypervisor_call_new(act->reconciler->loop, hypervisor_kind_from_name(volume->hypervisor),
                               &request, on_done, act, &act->hypervisor);
}

static const enum store_list lists[] = {
    [HYPERVISOR_LIST_UNREAD] = STORE_LIST_UNREAD,
    [HYPERVISOR_LIST_HAS] = STORE_LIST_HAS,
    [HYPERVISOR_LIST_LACKS] = STORE_LIST_LACKS,
};

/* What is known now of a resize of the drive. One that failed is on record with its reason, and a
 * job that holds the drive passes by itself. */
static const char *obstacle_of(const struct act *act)
{
    bool is_clear =
        act->action == ACTION_RESIZE_HYPERVISOR || act->resize_reason == REASON_HYPERVISOR_BUSY;

    if (act->list != HYPERVISOR_LIST_HAS || act->reason != REASON_NONE)
        return NULL;
    return reason_name(is_clear ? REASON_NONE : act->resize_reason);
}

int act_hypervisor_record(struct act *act)
{
    struct store_hypervisor_result result = {
        .volume_id = act->volume.volume_id,
        .reason = act->reason == REASON_NONE ? "" : reason_name(act->reason),
        .error = act->error.text,
        .drive_id = known(act->drive_id),
        .guest_path = known(act->guest_address),
        .bytes = act->list == HYPERVISOR_LIST_HAS ? act->hypervisor_bytes : 0,
        .record = act->volume.record,
        .list = lists[act->list],
        .recorded_drive = known(act->volume.recorded_drive_id),
        .recorded_guest_path = known(act->volume.recorded_guest_path),
        .obstacle = obstacle_of(act),
        .told = act->action == ACTION_RESIZE_HYPERVISOR && act->reason == REASON_NONE,
    };

    struct store *store = act->reconciler->store;
    int r = 0;

    if (act->vmm_version[0])
        r = store_set_vmm_version(store, act->volume.sandbox_ref, act->vmm_version);
    return r < 0 ? r : store_put_hypervisor_result(store, &result);
}
