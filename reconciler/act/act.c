/* SPDX-License-Identifier: Apache-2.0 */
/* act.c - the kinds of act: a VMM's drive is asked for or resized, a guest's file system is grown,
 * a disk is rescanned. */
#include "reconciler/act/actor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/kata.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/lower_devices.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/helper/helper.h"

/* The last five come only of drives that crustd attached, which these acts are not about. */
_Static_assert(HYPERVISOR_OUTCOMES == 16, "an outcome without a reason would be a success");
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
    [HYPERVISOR_CONFLICT] = REASON_HYPERVISOR_REFUSED,
    [HYPERVISOR_NEEDS_DESCRIPTOR] = REASON_HYPERVISOR_REFUSED,
    [HYPERVISOR_NO_ADDRESS] = REASON_HYPERVISOR_REFUSED,
    [HYPERVISOR_NOT_ATTACHED] = REASON_HYPERVISOR_REFUSED,
    [HYPERVISOR_PENDING] = REASON_HYPERVISOR_REFUSED,
};

static void on_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                    void *userdata)
{
    struct act *act = userdata;
    struct act_vmm *vmm = &act->vmm;
    const char *address = vmm->reply.address;
    cleanup(freep) char *path = NULL;

    vmm->reply = *reply;
    /* Kata's Go runtime has the agent mount a drive by its PCI address, and does not record Cloud
     * Hypervisor's. So the address from the VMM serves like a path, which every route takes. The
     * agent mounts no raw block claim. */
    if (strncmp(address, "pci:", 4) == 0 && act->volume.runtime == RUNTIME_KATA_GO &&
        act->volume.hypervisor == HYPERVISOR_CLOUD_HYPERVISOR && !act->volume.is_block_claim &&
        persist_guest_path(address + 4, &path) == 0 && path)
        address = path;
    (void)snprintf(vmm->guest_address, sizeof(vmm->guest_address), "%s", address);
    vmm->call = hypervisor_call_free(call);
    act_finish(act, reasons[vmm->reply.outcome], &vmm->reply.error);
}

static const char *known(const char *text)
{
    return text[0] ? text : NULL;
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
        .disk = {.device = makedev(volume->major, volume->minor)},
        .recorded_drive = known(volume->recorded_drive_id),
        .wants_address = volume->grows_file_system && volume->guest_path[0] != '/',
        .bytes = volume->device_bytes,
        .allowed_ns = act_time_left(act),
        .is_ahead = act->is_ahead,
    };
    struct error error;

    if (volume->device_kind == DEVICE_KIND_FILE)
        request.disk = (struct hypervisor_disk){true, volume->file_device, volume->inode};
    return hypervisor_call_new(act->context->loop, volume->hypervisor, &request, on_done, act,
                               &act->vmm.call, &error);
}

static int act_hypervisor_record(struct act *act)
{
    static const enum store_list lists[] = {
        [HYPERVISOR_LIST_UNREAD] = STORE_LIST_UNREAD,
        [HYPERVISOR_LIST_HAS] = STORE_LIST_HAS,
        [HYPERVISOR_LIST_LACKS] = STORE_LIST_LACKS,
    };
    const struct store_volume *volume = &act->volume;
    const struct hypervisor_reply *reply = &act->vmm.reply;
    const struct log_ids ids = {volume->volume_id, volume->sandbox_id, volume->device_name, NULL,
                                volume->pv};
    const bool has_worked = act->reason == REASON_NONE || act->reason == REASON_VM_PAUSED;
    const bool is_resize = act->action == ACTION_RESIZE_HYPERVISOR;
    const bool is_busy = reasons[reply->resize] == REASON_HYPERVISOR_BUSY;
    const bool has_drive = reply->list == HYPERVISOR_LIST_HAS;
    /* Its device still has the size that the VMM had taken. */
    const bool was_set_back = has_drive && reply->bytes &&
                              reply->bytes < volume->hypervisor_bytes &&
                              reply->bytes < volume->device_bytes;
    struct store_hypervisor_result result = {
        .volume_id = volume->volume_id,
        .sandbox_id = volume->sandbox_id,
        .device = volume->device_name,
        .reason = act->reason,
        .error = act->error.text,
        .drive_id = known(reply->drive_id),
        .guest_path = known(act->vmm.guest_address),
        .bytes = has_drive ? reply->bytes : 0,
        .record = volume->record,
        .list = lists[reply->list],
        .recorded_drive = known(volume->recorded_drive_id),
        .recorded_guest_path = known(volume->recorded_guest_path),
        .obstacle_known = has_drive && has_worked,
        /* A resize that failed has its reason recorded, and a job that holds the drive ends. */
        .obstacle = is_resize || is_busy ? REASON_NONE : reasons[reply->resize],
        .told = is_resize && has_worked,
        .undone = was_set_back,
    };
    struct store *store = act->context->store;
    int r = 0;

    if (was_set_back)
        log_warning(
            &ids, "the VM's disk had %" PRIu64 " bytes, and somebody else set it back to %" PRIu64,
            volume->hypervisor_bytes, reply->bytes);
    if (reply->version[0])
        r = store_set_vmm_version(store, volume->sandbox_ref, reply->version);
    return r < 0 ? r : store_put_hypervisor_result(store, &result);
}

static void act_hypervisor_done(struct act *act)
{
    act->vmm.call = hypervisor_call_free(act->vmm.call);
}

const struct act_ops act_hypervisor_ops = {
    .start = act_hypervisor_start,
    .record = act_hypervisor_record,
    .done = act_hypervisor_done,
    .unstarted = REASON_HYPERVISOR_UNREACHABLE,
    .problem = "the call to the hypervisor could not be started",
};

/* ---- act guest ------------------------------------------------------------------------------ */

/* Having the guest grow its file system, by the first route that can (agent-client/guest_call.h). A
 * route that turned out not to work is remembered for the sandbox and skipped from then on; one
 * that could not be reached is tried again the next time. */

static bool is_helper_possible(void *userdata)
{
    const struct act *act = userdata;

    return helper_is_possible(act->context->config, &act->volume);
}

/* guest.helpers bounds helpers already, so other VMMs can be told meanwhile. The helper has a time
 * of its own. */
static int begin_helper(void *userdata, uint64_t allowed_ns, guest_helper_done *done,
                        void *done_userdata, struct helper_call **ret_call)
{
    struct act *act = userdata;
    int r = helper_call_new(act->context->helpers, &act->volume, HELPER_RESIZE, 0, done,
                            done_userdata, ret_call);

    (void)allowed_ns; /* the call's time does not bound the wait: the helper has its own */
    if (r == 0)
        slots_rest(&act->actor->slots, act->volume.sandbox_ref);
    return r;
}

static const struct guest_helper_ops helper_ops = {
    .is_possible = is_helper_possible,
    .begin = begin_helper,
    .free = helper_call_free,
};

static void on_guest_done(struct guest_call *call, const struct guest_reply *reply, void *userdata)
{
    struct act *act = userdata;

    act->guest.reply = *reply;
    act->guest.call = guest_call_free(call);
    act_finish(act, act->guest.reply.reason, &act->guest.reply.error);
}

static int act_guest_start(struct act *act)
{
    const struct config *config = act->context->config;
    struct guest_request request;

    guest_routes_describe(act->context, &act->volume, act->guest.shim_socket, &request);
    request.resizes = true;
    request.asks_address = act->volume.guest_path[0] || config_brings_helpers(config);
    for (enum guest_route route = ROUTE_COMPANION; route < GUEST_ROUTES; route++)
        request.inability[route] = reason_from_name(act->volume.ability[route]);
    request.helper = &helper_ops;
    request.owner = act;
    request.bytes = act->volume.device_bytes;
    request.ends_at = act->deadline_ns;
    return guest_call_new(act->context->loop, &request, on_guest_done, act, &act->guest.call);
}

static int act_guest_record(struct act *act)
{
    const struct guest_reply *reply = &act->guest.reply;
    const struct agent_stats *stats = &reply->stats;
    struct store *store = act->context->store;
    const struct store_guest_result result = {
        .volume_id = act->volume.volume_id,
        .sandbox_id = act->volume.sandbox_id,
        .device = act->volume.device_name,
        .reason = act->reason,
        .error = act->error.text,
        .synced_bytes = act_has_worked(act) ? act->volume.device_bytes : 0,
        .guest_bytes = stats->has_bytes ? stats->total : 0,
    };
    const struct store_guest_stats usage = {
        .binding_id = act->volume.binding_id,
        .has_bytes = true,
        .total = stats->total,
        .used = stats->used,
        .available = stats->available,
        .abnormal = stats->abnormal,
        .message = stats->condition,
    };
    bool changed;
    int r = 0;

    if (reply->address_learned)
        r = store_set_agent_address(store, act->volume.sandbox_ref, act->volume.agent_address);
    for (enum guest_route route = ROUTE_COMPANION; r == 0 && route < GUEST_ROUTES; route++)
        if (reply->ability[route])
            r = store_set_ability(store, act->volume.sandbox_ref, route, reply->ability[route]);
    /* A guest that does not answer any more may be paused, which its VMM knows. */
    if (r == 0 && act->reason == REASON_AGENT_UNREACHABLE &&
        act->volume.guest_reason != REASON_AGENT_UNREACHABLE)
        r = store_want_list(store, act->volume.volume_id);
    if (r == 0)
        r = store_put_guest_result(store, &result);
    if (r == 0 && stats->has_bytes)
        r = store_put_guest_stats(store, act->volume.volume_id, &usage, &changed);
    return r;
}

static void act_guest_done(struct act *act)
{
    act->guest.call = guest_call_free(act->guest.call);
}

const struct act_ops act_guest_ops = {
    .start = act_guest_start,
    .record = act_guest_record,
    .done = act_guest_done,
    .unstarted = REASON_AGENT_UNREACHABLE,
    .problem = "the call to the agent could not be started",
};

/* ---- act rescan ----------------------------------------------------------------------------- */

/* Having the kernel read a SCSI disk's size again, where resize.scsi_rescan allows.
 *
 * The disk is a lower device of a volume and announced a new size. It is named by its device
 * number, and just before the rescan it is checked to be the same disk. Nothing that comes from
 * outside is part of the path. The rate of rescans of a disk is bounded, whatever it announces.
 *
 * A successful rescan without a new size answers the announcement, too.
 */

static const uint64_t PAUSE_NS = 60 * NSEC_PER_SEC;

int act_rescan_find(struct store *store, const struct store_volume *volume,
                    struct store_disk *ret_disk)
{
    uint64_t now = clock_boottime();

    return store_find_announced(store, volume->device_id, now > PAUSE_NS ? now - PAUSE_NS : 0,
                                ret_disk);
}

static int act_rescan_intend(struct act *act)
{
    struct store *store = act->context->store;
    int r = act_rescan_find(store, &act->volume, &act->disk.disk);

    act->disk.rescan = -1;
    return r < 0 ? r
                 : store_intend_rescan(store, act->volume.volume_id, &act->disk.disk,
                                       clock_boottime());
}

/* In a worker: the write returns when the disk has answered. */
static void rescan_act(const struct job_input *input, struct buffer *reply)
{
    const int result = write(input->fds[0], input->request, input->length) < 0 ? -errno : 0;

    (void)buffer_append(reply, &result, sizeof(result));
}

static void on_written(struct job *job, enum job_end end, const void *bytes, size_t length)
{
    struct act *act = container_of(job, struct act, disk.write);
    struct error error = {0};
    int result;

    if (end != JOB_ANSWERED || !job_take_reply(bytes, length, &result, sizeof(result)))
        result = end == JOB_LATE ? -ETIMEDOUT : -EIO;
    if (result < 0)
        (void)error_set_errno(&error, result, "rescanning %s", act->disk.disk.name);
    act_finish(act, result < 0 ? REASON_HOST_STALE : REASON_NONE, &error);
}

static int act_rescan_start(struct act *act)
{
    const int sysfs = act->context->sysfs;
    const struct store_disk *disk = &act->disk.disk;
    cleanup(fd_closep) int handle = -1;
    struct observed_device device;
    char path[64];
    int r = observe_device_number(sysfs, disk->major, disk->minor, &device);

    if (r >= 0)
        r = r == OBSERVED && device.diskseq == disk->diskseq ? 0 : -ENODEV;
    (void)snprintf(path, sizeof(path), "dev/block/%" PRIu32 ":%" PRIu32 "/device/rescan",
                   disk->major, disk->minor);
    if (r == 0)
        r = path_open_in_root(sysfs, path, &handle);
    if (r == 0)
        r = path_reopen(handle, O_WRONLY | O_NONBLOCK | O_NOCTTY, &act->disk.rescan);
    if (r == 0)
        (void)fcntl(act->disk.rescan, F_SETFL, 0);
    return r < 0 ? r
                 : job_start(&act->disk.write,
                             &(struct job_request){.act = rescan_act,
                                                   .data = "1",
                                                   .length = 1,
                                                   .fds = {act->disk.rescan, -1},
                                                   .allowed_ns = act_time_left(act),
                                                   .subject = makedev(disk->major, disk->minor),
                                                   .done = on_written});
}

static int act_rescan_record(struct act *act)
{
    const struct context *context = act->context;
    const struct store_disk *disk = &act->disk.disk;
    struct observed_device device;
    int64_t device_id;
    bool changed;
    int r = observe_device_number(context->sysfs, disk->major, disk->minor, &device);

    if (r != OBSERVED || device.diskseq != disk->diskseq)
        return 0; /* another disk, about which nothing is known */
    work_queue_doubt_devices(context->queue);
    r = record_device(context->store, &device, &device_id, &changed);
    return r < 0 ? r
                 : store_put_rescan_result(context->store, act->volume.volume_id, disk,
                                           device.size_bytes, act->error.text);
}

static void act_rescan_done(struct act *act)
{
    job_cancel(&act->disk.write);
    fd_close(act->disk.rescan);
}

const struct act_ops act_rescan_ops = {
    .intend = act_rescan_intend,
    .start = act_rescan_start,
    .record = act_rescan_record,
    .done = act_rescan_done,
    .unstarted = REASON_HOST_STALE,
    .problem = "the disk could not be rescanned",
};
