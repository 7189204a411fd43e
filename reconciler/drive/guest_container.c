/* SPDX-License-Identifier: Apache-2.0 */
/* guest_container.c - a drive in a guest that has only kata-agent.
 *
 *     MOUNT    [remove the drive's container] the drive's container mounts it, and stays
 *     LOOK     a helper lists the drives [MOUNT, if nothing syncs the drive any more]
 *     UNMOUNT  [remove the drive's container] a helper unmounts it
 *     GROW     as a volume's helper does
 *
 * All programs run in the agent's own mount namespace and get the calls that crust-guest-agent gets
 * (guest-agent/guest_drive.h), so what they mount stays mounted. The drive's container only syncs
 * the file system, because QEMU is killed at the end of a sandbox, and mounts it into containers
 * that were started again. Removing it changes no mount. It is named by the drive's serial, and so
 * is its directory in the sandbox's share, which exists for as long as the container may exist:
 * that tells a later crustd the route. Up to version 0.2 kata-agent itself mounted the disk for
 * such a container, and unmounts it with it.
 *
 * A mount is visible only when it is complete, and each call looks first. So a call that was cut
 * off is repeated.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/container_run.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "reconciler/drive/drive_work.h"
#include "reconciler/helper/helper.h"

enum { NUMBER_BYTES = 24 };

static void on_helper(struct helper_run *run, const struct helper_outcome *outcome, void *userdata);

static void open_share(struct drive_guest_call *call)
{
    struct error ignored;
    int r;

    if (call->share >= 0)
        return;
    r = helper_share_open(call->context->root, call->sandbox->runtime, call->sandbox->sandbox_id,
                          &call->share, &ignored);
    call->share_comes = r == HELPER_SHARE_LATER;
    if (r != HELPER_SHARE_OK)
        call->share = -1;
}

bool drive_guest_is_held(struct drive_guest_call *call)
{
    open_share(call);
    return call->share >= 0 && helper_share_find_drive(call->share, call->drive->serial,
                                                       call->directory) == HELPER_SHARE_HAS;
}

/* ---- helpers ---- */

static void run_helper(struct drive_guest_call *call, const struct helper_task *task)
{
    int r = helper_run_new(call->context, task, on_helper, call, &call->helper);

    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot bring a helper into the guest");
}

static void run_call(struct drive_guest_call *call)
{
    cleanup(freep) char *text = NULL;
    struct helper_task task = {.sandbox = *call->sandbox};
    int r = drive_guest_make_text(call, call->act, &text);

    task.call = text;
    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot describe the call");
    else
        run_helper(call, &task);
}

static void take_growth(struct drive_guest_call *call, const struct helper_report *report)
{
    struct helper_verdict verdict;

    helper_judge(&report->volume[0], 1, call->bytes, true, &verdict);
    if (verdict.reason == REASON_NONE)
        call->guest = DRIVE_IN_GUEST_MOUNTED;
    else
        drive_guest_note_refusal(call, reason_code(verdict.reason, STATE_BLOCK_GROWN),
                                 verdict.text);
}

/* ---- the drive's container ---- */

static struct container_request describe(struct drive_guest_call *call, enum container_act act,
                                         char directory[static HELPER_GUEST_PATH_BYTES])
{
    uint64_t time = drive_guest_time(call);

    helper_share_guest_path(call->sandbox->runtime, call->directory, directory);
    return (struct container_request){
        .act = act,
        .root = call->context->root,
        .address = call->sandbox->agent_address,
        .listener = {.vmm = call->sandbox->vmm_pid, .sandbox_id = call->sandbox->sandbox_id},
        .container_id = call->drive->serial,
        .directory = directory,
        .program = HELPER_PROGRAM_NAME,
        .program_file = -1,
        .for_drives = true,
        .step_ns = time,
        .program_ns = time,
        .total_ns = time,
    };
}

/* A group walk that ran out of time is to be repeated at once: the next one skips what this one has
 * changed. */
static enum status_code status_of(const struct drive_guest_call *call,
                                  const struct container_reply *reply)
{
    static const enum status_code codes[CONTAINER_KINDS] = {
        [CONTAINER_DONE] = STATUS_OK,
        [CONTAINER_DENIED] = STATUS_PERMISSION_DENIED,
        [CONTAINER_UNSUPPORTED] = STATUS_FAILED_PRECONDITION,
        [CONTAINER_UNREACHABLE] = STATUS_UNAVAILABLE,
        [CONTAINER_TIMED_OUT] = STATUS_UNAVAILABLE,
        [CONTAINER_NO_CGROUPS] = STATUS_FAILED_PRECONDITION,
        [CONTAINER_FAILED] = STATUS_FAILED_PRECONDITION,
    };

    return reply->kind == CONTAINER_TIMED_OUT && reply->step == CONTAINER_READ &&
                   call->drive->request.has_fs_group
               ? STATUS_DEADLINE_EXCEEDED
               : codes[reply->kind];
}

static void take_mount(struct drive_guest_call *call, const struct container_reply *reply)
{
    enum status_code status = status_of(call, reply);

    if (status != STATUS_OK)
        drive_guest_note_refusal(call, status, reply->error.text);
    else if (reply->not_executed)
        drive_guest_note_refusal(call, STATUS_FAILED_PRECONDITION,
                                 "the guest cannot execute the helper");
    else
        drive_guest_take_text(call, reply->output, reply->output_length);
}

/* The drive's container has mounted it, or its program has ended. A LOOK has its reply already. */
static void on_held(struct container_run *run, const struct container_reply *reply, void *userdata)
{
    struct drive_guest_call *call = userdata;

    if (!reply->held && !reply->left)
        (void)helper_share_remove(call->share, call->directory);
    if (call->act != DRIVE_CLIENT_LIST)
        take_mount(call, reply);
    call->container = container_run_free(run);
    drive_guest_finish(call);
}

static void hold(struct drive_guest_call *call)
{
    cleanup(fd_closep) int program = -1;
    cleanup(freep) char *text = NULL;
    char directory[HELPER_GUEST_PATH_BYTES], flush[NUMBER_BYTES];
    struct container_request request;
    struct error error;
    int r = drive_guest_make_text(call, DRIVE_CLIENT_MOUNT, &text);

    if (r == 0)
        r = helper_share_name_drive(call->drive->serial, call->directory);
    if (r < 0)
        (void)error_set_errno(&error, r, "the drive's container cannot be described");
    if (r == 0)
        r = helper_program_open(call->context->config, &program, &error);
    if (r == 0)
        r = helper_share_place(call->share, call->directory, program, &error);
    if (r == 0) {
        (void)snprintf(flush, sizeof(flush), "%u", call->context->config->drives.flush_seconds);
        request = describe(call, CONTAINER_HOLD, directory);
        request.arguments[0] = "--drive";
        request.arguments[1] = text;
        request.arguments[2] = "--flush";
        request.arguments[3] = flush;
        r = container_run_new(&request, on_held, call, &call->container);
        if (r == 0)
            return;
        (void)helper_share_remove(call->share, call->directory);
        (void)error_set_errno(&error, r, "cannot have a container created");
    }
    if (call->act != DRIVE_CLIENT_LIST)
        drive_guest_note_refusal(call, STATUS_FAILED_PRECONDITION, error.text);
    drive_guest_finish(call);
}

static void on_removed(struct container_run *run, const struct container_reply *reply,
                       void *userdata)
{
    struct drive_guest_call *call = userdata;
    enum status_code status = status_of(call, reply);
    bool left = reply->left;

    if (left)
        drive_guest_note_refusal(call, status == STATUS_OK ? STATUS_UNAVAILABLE : status,
                                 reply->error.text);
    else
        (void)helper_share_remove(call->share, call->directory);
    call->container = container_run_free(run);
    if (left)
        drive_guest_finish(call);
    else if (call->act == DRIVE_CLIENT_MOUNT)
        hold(call);
    else
        run_call(call);
}

/* hold() or the unmount follows. */
static void remove_holder(struct drive_guest_call *call)
{
    char directory[HELPER_GUEST_PATH_BYTES];
    struct container_request request = describe(call, CONTAINER_CLEAN_UP, directory);
    int r = container_run_new(&request, on_removed, call, &call->container);

    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot have the drive's container removed");
}

/* ---- the helpers' results ---- */

/* The drive is mounted and its container is gone: an unmount was refused or cut off. */
static bool lacks_holder(struct drive_guest_call *call)
{
    bool is_synced =
        call->drive->request.writable && call->context->config->drives.flush_seconds > 0;

    return call->act == DRIVE_CLIENT_LIST && call->guest == DRIVE_IN_GUEST_MOUNTED &&
           (is_synced || store_drive_mount_has_containers(call->drive)) &&
           !drive_guest_is_held(call) && call->share >= 0;
}

static void on_helper(struct helper_run *run, const struct helper_outcome *outcome, void *userdata)
{
    struct drive_guest_call *call = userdata;

    if (outcome->left)
        helpers_note_leftover(call->context->helpers, call->sandbox->sandbox_ref,
                              helper_run_name(run), &outcome->removal_error);
    if (outcome->reason != REASON_NONE)
        drive_guest_note_refusal(call,
                                 outcome->reason == REASON_AGENT_POLICY_DENIED
                                     ? STATUS_PERMISSION_DENIED
                                     : reason_code(outcome->reason, STATE_BLOCK_GROWN),
                                 outcome->error.text);
    else if (call->act == DRIVE_CLIENT_GROW)
        take_growth(call, &outcome->report);
    else
        drive_guest_take_text(call, outcome->answer, outcome->answer_length);
    call->helper = helper_run_free(run);
    if (lacks_holder(call))
        hold(call);
    else
        drive_guest_finish(call);
}

/* ---- the beginning ---- */

/* Before the VM has the disk, a helper is run all the same: a guest that refuses it gets none. A
 * mount that was not answered is made once more, whatever became of it. */
static void mount_or_look(struct drive_guest_call *call)
{
    const bool has_share = call->share >= 0, is_look = call->act == DRIVE_CLIENT_LIST;

    if (!has_share || (is_look && call->drive->state == DRIVE_SEEN))
        call->guest = DRIVE_IN_GUEST_ABSENT;
    if (call->share_comes)
        drive_guest_fail(call, STATUS_UNAVAILABLE,
                         "the guest has no crust-guest-agent, and the runtime has not yet made the "
                         "directory in which crustd places its helper");
    else if (!has_share)
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION,
                         "the guest has no crust-guest-agent, and shares no directory in which "
                         "crustd could place its helper");
    else if (call->guest == DRIVE_IN_GUEST_ABSENT)
        drive_guest_finish(call);
    else if (is_look)
        run_call(call);
    else if (drive_guest_is_held(call))
        remove_holder(call);
    else
        hold(call);
}

/* Kata's Go runtime makes the directory on the node also for a guest that does not have it. Where
 * the VMM does not say, the helper's own run tells why it cannot be. */
static void on_traits(struct helper_guest *guest)
{
    struct drive_guest_call *call = container_of(guest, struct drive_guest_call, traits);

    if (guest->is_known && guest->traits.share == GUEST_SHARE_NONE) {
        fd_close(call->share);
        call->share = -1;
        call->share_comes = false;
    }
    mount_or_look(call);
}

void drive_guest_use_container(struct drive_guest_call *call)
{
    const bool is_before_mount =
        drive_phase(call->drive->state) == DRIVE_PLANNED || call->drive->state == DRIVE_SEEN;

    open_share(call);
    call->result->by_container = true;
    if (!config_brings_helpers(call->context->config))
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION,
                         "the guest has no crust-guest-agent, and guest.helper is off");
    else if (call->act == DRIVE_CLIENT_GROW)
        run_helper(call, &(struct helper_task){.sandbox = *call->sandbox,
                                               .grow = true,
                                               .paths = 1,
                                               .path = {call->drive->request.vm_path}});
    else if (call->act == DRIVE_CLIENT_MOUNT || (call->act == DRIVE_CLIENT_LIST && is_before_mount))
        helper_guest_start(&call->traits, call->context, call->sandbox, on_traits);
    else if (call->act == DRIVE_CLIENT_UNMOUNT && drive_guest_is_held(call))
        remove_holder(call);
    else
        run_call(call);
}

/* Of a helper that runs on, for example because the VM has ended, the record goes once nothing of
 * it is left, as that of one that could not be removed. */
void drive_guest_drop_container(struct drive_guest_call *call)
{
    const char *name = call->helper ? helper_run_name(call->helper) : "";

    helper_guest_stop(&call->traits);
    if (name[0])
        helpers_note_leftover(call->context->helpers, call->sandbox->sandbox_ref, name, NULL);
    call->helper = helper_run_free(call->helper);
    call->container = container_run_free(call->container);
    fd_close(call->share);
    call->share = -1;
}
