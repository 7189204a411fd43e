/* SPDX-License-Identifier: Apache-2.0 */
/* guest_stock.c - a drive in a guest that has only kata-agent.
 *
 *     MOUNT    [remove what an earlier one left] check… hold
 *     LOOK     look
 *     UNMOUNT  remove, find, prove [hold, if somebody has the disk]
 *     GROW     as a volume's helper does
 */
#include "agent-client/container_run.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "reconciler/drive/guest_state.h"
#include "reconciler/helper/guest.h"
#include "reconciler/helper/helper.h"
#include "reconciler/helper/run.h"

/* Whether this route cannot mount it; the call is over then. Nothing is mounted so far. */
static bool fail_at_obstacle(struct drive_guest_call *call)
{
    enum status_code status;
    const char *obstacle = drive_guest_find_obstacle(call, &status);
    struct error error;

    if (!obstacle)
        return false;
    (void)error_set(&error, 0, "%s", obstacle);
    call->reply.guest = DRIVE_IN_GUEST_ABSENT;
    drive_guest_fail(call, status, error.text);
    return true;
}

static void begin_mount(struct drive_guest_call *call)
{
    if (fail_at_obstacle(call))
        return;
    if (drive_guest_is_held(call))
        drive_guest_remove_holder(call);
    else
        drive_guest_check(call);
}

/* What this route cannot mount is refused before the VM has the disk. */
static void look_ahead(struct drive_guest_call *call)
{
    if (fail_at_obstacle(call))
        return;
    call->reply.guest = DRIVE_IN_GUEST_ABSENT;
    drive_guest_finish(call);
}

/* Kata's Go runtime makes the directory on the node also for a guest that does not have it. Where
 * the VMM does not say, the helper's own run tells why it cannot be. */
static void on_traits(const struct guest_traits *traits, const struct error *error, void *userdata)
{
    struct drive_guest_call *call = userdata;

    if (!error && traits->share == GUEST_SHARE_NONE) {
        fd_close(call->share);
        call->share = -1;
        call->share_comes = false;
    }
    call->traits = helper_guest_free(call->traits);
    if (call->act == DRIVE_GUEST_MOUNT)
        begin_mount(call);
    else
        look_ahead(call);
}

static void examine_guest(struct drive_guest_call *call)
{
    int r = helper_guest_new(call->context, &call->sandbox, on_traits, call, &call->traits);

    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot find out about the guest");
}

static void begin_unmount(struct drive_guest_call *call)
{
    if (drive_guest_is_held(call))
        drive_guest_remove_holder(call);
    else
        drive_guest_prove(call);
}

bool drive_guest_was_mounted(const struct drive_guest_call *call)
{
    return call->drive.state == DRIVE_MOUNTED || drive_phase(call->drive.state) == DRIVE_IN_USE;
}

/* The VM does not have the disk yet: only whether this route could mount it is to be found out. */
static bool looks_ahead(const struct drive_guest_call *call)
{
    return call->act == DRIVE_GUEST_LOOK &&
           (call->drive.state == DRIVE_REQUESTED || call->drive.state == DRIVE_CLAIMED);
}

void drive_guest_use_container(struct drive_guest_call *call)
{
    drive_guest_open_share(call);
    if (store_drive_mount_has_containers(&call->drive) &&
        (call->act == DRIVE_GUEST_LOOK || call->act == DRIVE_GUEST_MOUNT)) {
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION,
                         "the guest has no crust-guest-agent, without which nothing can enter "
                         "containers that run: attach the drive without `containers`");
    } else if (!config_brings_helpers(call->context->config)) {
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION,
                         "the guest has no crust-guest-agent, and guest.helper is off");
    } else if (!call->address[0] && call->act != DRIVE_GUEST_UNMOUNT && !looks_ahead(call)) {
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION,
                         "the guest has no crust-guest-agent, and kata-agent finds a disk by its "
                         "address, which this VMM does not give");
    } else if (call->act == DRIVE_GUEST_UNMOUNT) {
        begin_unmount(call);
    } else if (call->act == DRIVE_GUEST_GROW) {
        drive_guest_grow(call);
    } else if (call->act == DRIVE_GUEST_LOOK && drive_guest_was_mounted(call)) {
        drive_guest_look(call);
    } else {
        examine_guest(call);
    }
}

/* The call ends before its helper has, for example because the VM has ended. Its record goes once
 * nothing of it is left, as that of one that could not be removed. */
static void pass_on_helper(struct drive_guest_call *call)
{
    const char *name = helper_run_name(call->helper);

    if (name[0])
        helpers_note_leftover(call->context->helpers, call->drive.sandbox_ref, name, NULL);
}

void drive_guest_drop_container(struct drive_guest_call *call)
{
    loop_timer_stop(&call->settling);
    call->traits = helper_guest_free(call->traits);
    if (call->helper)
        pass_on_helper(call);
    call->helper = helper_run_free(call->helper);
    call->container = container_run_free(call->container);
    fd_close(call->share);
    call->share = -1;
}
