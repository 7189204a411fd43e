/* SPDX-License-Identifier: Apache-2.0 */
/* drive_acts.c - carries out one act on a drive: a conversation with its VMM or its guest, or the
 * opening of its disk.
 *
 * What an answer says about the VMM or the guest goes into struct drive_work at once, because it is
 * true even if the pass that records the result fails. The result waits for the next pass.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/drive_work.h"

const struct drive_act_row drive_acts[DRIVE_ALL_ACTS] = {
    [DRIVE_LOOK_VMM] = {"look_vmm", ACT_ON_VMM, HYPERVISOR_QUERY, 0},
    [DRIVE_CLAIM] = {"claim", 0, 0, 0},
    [DRIVE_ATTACH] = {"attach", ACT_ON_VMM | ACT_MAKES_WRITER, HYPERVISOR_ATTACH, 0},
    [DRIVE_LOOK_GUEST] = {"look_guest", ACT_ON_GUEST | ACT_ASKS_GUEST, 0, DRIVE_CLIENT_LIST},
    [DRIVE_MOUNT] = {"mount", ACT_ON_GUEST | ACT_MOUNTS | ACT_MAKES_WRITER, 0, DRIVE_CLIENT_MOUNT},
    [DRIVE_UNMOUNT] = {"unmount", ACT_ON_GUEST | ACT_TAKES_OUT, 0, DRIVE_CLIENT_UNMOUNT},
    [DRIVE_REMOVE] = {"remove", ACT_ON_VMM | ACT_TAKES_OUT, HYPERVISOR_DETACH, 0},
    [DRIVE_END] = {"end", 0, 0, 0},
    [DRIVE_LIMIT] = {"limit", ACT_ON_VMM, HYPERVISOR_LIMIT, 0},
    [DRIVE_RESIZE] = {"resize", ACT_ON_VMM, HYPERVISOR_RESIZE, 0},
    [DRIVE_GROW] = {"grow", ACT_ON_GUEST, 0, DRIVE_CLIENT_GROW},
    [DRIVE_ENTER] = {"enter", ACT_ON_GUEST | ACT_ASKS_GUEST | ACT_MOUNTS, 0, DRIVE_CLIENT_MOUNT},
    [DRIVE_RECLAIM] = {"claim again", 0, 0, 0},
    [DRIVE_LIST_VMM] = {"list", ACT_ON_VMM, HYPERVISOR_LIST, 0},
};

static void finish(struct drive_work *work, enum status_code status, const struct error *error)
{
    work->result.status = status;
    if (error)
        work->result.error = *error;
    work->step = DRIVE_FINISHED;
}

static void fail(struct drive_work *work, enum status_code status, const char *text)
{
    struct error error = {0};

    (void)error_set(&error, (int)status, "%s", text);
    finish(work, status, &error);
}

static uint64_t act_time(const struct drive_work *work)
{
    return work->drives->context->config->resize.call_timeout_seconds * NSEC_PER_SEC;
}

static uint64_t time_left(const struct drive_work *work)
{
    uint64_t now = clock_boottime();

    return work->deadline_ns > now ? work->deadline_ns - now : 1;
}

/* ---- the VMM ---- */

_Static_assert(HYPERVISOR_OUTCOMES == 16, "an outcome without a status would be a success");
static const enum status_code vmm_codes[HYPERVISOR_OUTCOMES] = {
    [HYPERVISOR_DONE] = STATUS_OK,
    [HYPERVISOR_MONITOR_MISSING] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_BUSY] = STATUS_UNAVAILABLE,
    [HYPERVISOR_UNREACHABLE] = STATUS_UNAVAILABLE,
    [HYPERVISOR_UNSUPPORTED] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_VERSION] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_REFUSED] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_DRIVE_NOT_FOUND] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_READ_ONLY] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_MISMATCH] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_PAUSED] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_CONFLICT] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_NEEDS_DESCRIPTOR] = STATUS_UNAVAILABLE,
    [HYPERVISOR_NO_ADDRESS] = STATUS_RESOURCE_EXHAUSTED,
    [HYPERVISOR_NOT_ATTACHED] = STATUS_FAILED_PRECONDITION,
    [HYPERVISOR_PENDING] = STATUS_UNAVAILABLE,
};

static enum drive_in_vmm in_vmm(const struct drive_work *work, const struct hypervisor_reply *reply)
{
    switch (reply->state) {
    case HYPERVISOR_DRIVE_ABSENT:
        return DRIVE_IN_VMM_ABSENT;
    case HYPERVISOR_DRIVE_PARTIAL:
        return DRIVE_IN_VMM_PARTLY;
    case HYPERVISOR_DRIVE_PRESENT:
        break;
    case HYPERVISOR_DRIVE_UNKNOWN:
    case HYPERVISOR_DRIVE_STATES:
        return DRIVE_IN_VMM_UNKNOWN;
    }
    if (work->act == DRIVE_REMOVE)
        return DRIVE_IN_VMM_LEAVING;
    /* Found after a crash between the attach and its record: the next attach checks what is
     * there. */
    if (work->act == DRIVE_LOOK_VMM && work->row.has_disk &&
        drive_phase(work->row.state) == DRIVE_PLANNED)
        return DRIVE_IN_VMM_PARTLY;
    return DRIVE_IN_VMM_HAS;
}

static const struct hypervisor_traits *traits_of(const struct drive_work *work)
{
    return hypervisor_traits(work->sandbox.hypervisor);
}

bool drive_act_makes_serial(const struct drive_work *work)
{
    return traits_of(work)->makes_serial;
}

bool drive_act_needs_claim(const struct drive_work *work)
{
    return work->disk < 0 && work->row.has_disk && traits_of(work)->opens_path;
}

static bool take_entries(struct drive_work *list, const struct hypervisor_reply *reply)
{
    free(list->entries);
    list->entry_count = 0;
    list->entries = calloc(reply->entry_count + 1, sizeof(*list->entries));
    if (!list->entries)
        return false;
    for (; list->entry_count < reply->entry_count; list->entry_count++)
        list->entries[list->entry_count] = reply->entries[list->entry_count];
    return true;
}

static void on_vmm_done(struct hypervisor_call *call, const struct hypervisor_reply *reply,
                        void *userdata)
{
    struct drive_work *work = userdata;
    const enum status_code status = vmm_codes[reply->outcome];
    const enum drive_in_vmm before = work->vmm;
    const bool has_worked = status == STATUS_OK;
    const bool describes = work->act == DRIVE_ATTACH || work->act == DRIVE_LOOK_VMM;

    if (work->act != DRIVE_LIMIT && work->act != DRIVE_RESIZE && work->act != DRIVE_LIST_VMM)
        work->vmm = in_vmm(work, reply);
    if (work->act == DRIVE_RESIZE && has_worked)
        work->vmm_bytes = reply->bytes;
    if (has_worked && describes && drive_act_makes_serial(work))
        (void)snprintf(work->result.serial, sizeof(work->result.serial), "%s", reply->serial);
    /* After an attach the guest is asked anew, unless its last answer still holds: it did not have
     * the drive mounted when the VMM did not have it, and could be asked by the serial even then.
     */
    if (has_worked && work->act == DRIVE_ATTACH &&
        !(before == DRIVE_IN_VMM_ABSENT && work->guest == DRIVE_IN_GUEST_ABSENT &&
          !drive_act_makes_serial(work)))
        work->guest = DRIVE_IN_GUEST_UNKNOWN;
    work->result.is_brief = reply->outcome == HYPERVISOR_BUSY;
    work->result.wants_disk = reply->outcome == HYPERVISOR_NEEDS_DESCRIPTOR;
    /* A VMM that was given the descriptor holds the claim from now on. */
    if (has_worked &&
        (work->act == DRIVE_REMOVE || (work->act == DRIVE_ATTACH && !traits_of(work)->opens_path)))
        drive_work_drop_disk(work);
    if (work->act == DRIVE_LIST_VMM && !take_entries(work, reply))
        fail(work, STATUS_UNAVAILABLE, "out of memory");
    else
        finish(work, status, &reply->error);
    work->vmm_call = hypervisor_call_free(call);
}

static void call_vmm(struct drive_work *work)
{
    const struct store_drive_mount *row = &work->row;
    const struct context *context = work->drives->context;
    const struct drive_limits *limits =
        work->act == DRIVE_LIMIT ? &work->new_limits : &row->request.limits;
    const uint64_t left = time_left(work);
    struct hypervisor_request request = {
        .act = drive_acts[work->act].vmm,
        .root = context->root,
        .control_socket = work->sandbox.control_socket[0] ? work->sandbox.control_socket : NULL,
        .vmm_pid = work->sandbox.vmm_pid,
        .sandbox_id = work->sandbox_id,
        .drive_id = work->drive_ref ? row->request.drive_id : NULL,
        .forbidden = work->act == DRIVE_RESIZE
                         ? permit_find_forbidding(context->config, work->sandbox.hypervisor)
                         : NULL,
        .descriptor = work->act == DRIVE_ATTACH ? work->disk : -1,
        .path = row->request.host_path,
        .bytes = work->new_bytes,
        .disk = drive_disk_identity(&row->disk),
        .read_only = !row->request.writable,
        .direct = row->disk.kind == DEVICE_KIND_BLOCK,
        .serial = row->serial,
        .limits = {.bandwidth = {limits->bandwidth.size, limits->bandwidth.refill_ms,
                                 limits->bandwidth.one_time_burst},
                   .operations = {limits->operations.size, limits->operations.refill_ms,
                                  limits->operations.one_time_burst}},
        .removal_ns = left - left / 3,
        .allowed_ns = left,
    };
    struct error error = {0};
    int r;

    r = hypervisor_call_new(context->loop, work->sandbox.hypervisor, &request, on_vmm_done, work,
                            &work->vmm_call, &error);
    if (r < 0) /* a VM that could not be asked for its drives may have some */
        finish(work,
               result_is_shortage(r) || work->act == DRIVE_LIST_VMM ? STATUS_UNAVAILABLE
                                                                    : STATUS_FAILED_PRECONDITION,
               &error);
}

/* ---- the disk ---- */

static void search_holder(struct drive_work *work);

/* A drive whose claim was faster may have passed the disk on to its VMM during the search, and is
 * then in neither place: the second search finds it. */
static void on_holder_searched(struct drive_in_use_call *call,
                               const struct drive_in_use_reply *reply)
{
    struct drive_work *work = container_of(call, struct drive_work, search);
    bool is_orphan = reply->outcome == DRIVE_IN_USE_BY_ORPHAN;
    bool is_found = is_orphan || reply->outcome == DRIVE_IN_USE_BY_OTHERS;
    bool is_last = is_found || work->result.is_searched;

    work->result.is_searched = true;
    if (is_found)
        (void)error_set(&work->result.error, STATUS_FAILED_PRECONDITION,
                        "%s is open exclusively: %s", work->row.request.host_path,
                        reply->error.text);
    if (is_last)
        finish(work, is_orphan ? STATUS_UNAVAILABLE : STATUS_FAILED_PRECONDITION, NULL);
    else
        search_holder(work);
}

/* The kernel reports only that the disk is in use. The message names the user if it can be found:
 * another drive, which may not be recorded yet, so that the search might miss it, or else any
 * user, as the search for a writable drive finds it. */
static void search_holder(struct drive_work *work)
{
    const struct drive_in_use_request request = {
        .disk = &work->result.disk,
        .drive_id = work->row.request.drive_id,
        .writable = true,
    };
    const struct drive_work *holder = drive_disk_find_claim(work->drives, &work->result.disk);

    if (!holder) {
        drive_in_use_start(&work->search, work->drives->context, &request, on_holder_searched);
        return;
    }
    (void)error_set(&work->result.error, STATUS_FAILED_PRECONDITION,
                    "%s is open exclusively: sandbox %s has the disk as drive %s, %s",
                    work->row.request.host_path, holder->sandbox_id, holder->row.request.drive_id,
                    holder->row.request.writable ? "writable" : "read-only");
    finish(work, STATUS_FAILED_PRECONDITION, NULL);
}

static void on_traits(struct helper_guest *guest)
{
    struct drive_work *work = container_of(guest, struct drive_work, guest_call.traits);

    if (!guest->is_known) {
        (void)error_prefix(&guest->error, "cannot tell whether the guest is confidential: ");
        finish(work, STATUS_UNAVAILABLE, &guest->error);
    } else if (guest->traits.is_confidential) {
        fail(work, STATUS_FAILED_PRECONDITION,
             "the guest is confidential: disks of the node are not attached to it");
    } else {
        drive_disk_claim(work);
    }
}

static void on_searched(struct drive_in_use_call *call, const struct drive_in_use_reply *reply)
{
    struct drive_work *work = container_of(call, struct drive_work, search);

    if (reply->outcome == DRIVE_IN_USE_NOT)
        call_vmm(work);
    else
        finish(work,
               reply->outcome == DRIVE_IN_USE_BY_OTHERS ? STATUS_FAILED_PRECONDITION
                                                        : STATUS_UNAVAILABLE,
               &reply->error);
}

/* The search for other users of the disk comes after the claim is recorded and directly before the
 * VMM gets the disk: see "in use" in claim.h. */
static void search_and_attach(struct drive_work *work)
{
    const struct drive_in_use_request request = {
        .disk = &work->row.disk,
        .backing = work->disk >= 0 ? &work->backing : NULL,
        .drive_id = work->row.request.drive_id,
        .own_vmm = work->vmm == DRIVE_IN_VMM_PARTLY ? work->sandbox.vmm_pid : 0,
        .writable = work->row.request.writable,
    };

    drive_in_use_start(&work->search, work->drives->context, &request, on_searched);
}

void drive_act_disk_done(struct drive_work *work, enum status_code status,
                         const struct error *error)
{
    if (work->act == DRIVE_ATTACH && status == STATUS_OK) {
        search_and_attach(work);
    } else if (work->act != DRIVE_RECLAIM && work->result.is_taken) {
        work->result.error = *error;
        search_holder(work);
    } else {
        finish(work, status, status == STATUS_OK ? NULL : error);
    }
}

/* ---- the guest ---- */

static void on_guest_done(struct drive_guest_call *call)
{
    struct drive_work *work = container_of(call, struct drive_work, guest_call);
    enum status_code status = call->result->status;

    if (work->act != DRIVE_ENTER || call->guest == DRIVE_IN_GUEST_MOUNTED)
        work->guest = call->guest; /* a failed ENTER does not change whether it is mounted */
    work->result.retry_at_once =
        status == STATUS_DEADLINE_EXCEEDED && time_left(work) < act_time(work) / 2;
    if (status == STATUS_UNIMPLEMENTED)
        status = STATUS_FAILED_PRECONDITION; /* no agent can do it */
    if (work->act == DRIVE_LOOK_GUEST && status == STATUS_OK &&
        work->guest == DRIVE_IN_GUEST_UNKNOWN)
        status = STATUS_UNAVAILABLE;
    finish(work, status, NULL);
}

static void ask_guest(struct drive_work *work, enum drive_client_act act)
{
    work->guest_call = (struct drive_guest_call){
        .context = work->drives->context,
        .drive = &work->row,
        .sandbox = &work->sandbox,
        .act = act,
        .bytes = act == DRIVE_CLIENT_GROW    ? work->new_bytes
                 : act == DRIVE_CLIENT_MOUNT ? work->vmm_bytes
                                             : 0,
        .ends_at = work->deadline_ns,
        .result = &work->result,
        .done = on_guest_done,
    };
    drive_guest_start(&work->guest_call);
}

void drive_act_start(struct drive_work *work)
{
    work->step = DRIVE_RUNNING;
    work->result = (struct drive_result){0};
    work->deadline_ns = clock_boottime() + act_time(work);
    switch (work->act) {
    case DRIVE_CLAIM: /* a confidential guest gets no disk, so that is found out first */
        helper_guest_start(&work->guest_call.traits, work->drives->context, &work->sandbox,
                           on_traits);
        return;
    case DRIVE_ATTACH:
        if (work->disk < 0 && work->wants_disk)
            drive_disk_claim(work);
        else /* somebody may have opened the disk while crustd was down */
            search_and_attach(work);
        return;
    case DRIVE_RECLAIM:
        drive_disk_claim(work);
        return;
    case DRIVE_END:
        drive_disk_check_free(work);
        return;
    case DRIVE_REMOVE:
        if (!traits_of(work)->opens_path)
            drive_work_drop_disk(work);
        break;
    default:
        break;
    }
    if (drive_acts[work->act].does & ACT_ON_GUEST)
        ask_guest(work, drive_acts[work->act].guest);
    else
        call_vmm(work);
}

void drive_act_stop(struct drive_work *work)
{
    work->vmm_call = hypervisor_call_free(work->vmm_call);
    drive_guest_stop(&work->guest_call);
    helper_guest_stop(&work->guest_call.traits);
    drive_in_use_stop(&work->search);
    drive_claim_stop(&work->claim);
}
