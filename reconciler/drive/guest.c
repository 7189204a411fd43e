/* SPDX-License-Identifier: Apache-2.0 */
/* guest.c - see guest.h.
 *
 * Everything runs on the loop. drive_guest_finish() is the last use of a call, because its owner
 * may free it there. crust-guest-agent is asked first, unless a container has the drive.
 */
#include "reconciler/drive/guest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/container_run.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "reconciler/drive/guest_state.h"
#include "reconciler/helper/helper.h"
#include "reconciler/helper/run.h"
#include "reconciler/helper/targets.h"

void drive_guest_begin_time(struct drive_guest_call *call)
{
    call->ends_at = clock_boottime() + call->deadline_ns;
}

uint64_t drive_guest_time(const struct drive_guest_call *call)
{
    uint64_t now = clock_boottime();

    return call->ends_at > now ? call->ends_at - now : 1;
}

void drive_guest_finish(struct drive_guest_call *call)
{
    struct drive_guest_reply reply = call->reply;

    call->done(call, &reply, call->userdata);
}

void drive_guest_note_refusal(struct drive_guest_call *call, enum status_code status,
                              const char *text)
{
    call->reply.status = status;
    (void)error_set(&call->reply.error, (int)status, "%s", text);
}

void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text)
{
    drive_guest_note_refusal(call, status, text);
    drive_guest_finish(call);
}

void drive_guest_fail_errno(struct drive_guest_call *call, int r, const char *what)
{
    struct error error;

    (void)error_set_errno(&error, r, "%s", what);
    drive_guest_fail(call, STATUS_UNAVAILABLE, error.text);
}

void drive_guest_remark_walk(struct drive_guest_call *call, const struct drive_walk_count *walk)
{
    if (walk->failed)
        (void)snprintf(call->reply.remark, sizeof(call->reply.remark),
                       "the group of %" PRIu64 " entries could not be changed", walk->failed);
}

static int fill_options(const struct store_drive_mount *drive,
                        char options[static DRIVE_OPTIONS][DRIVE_OPTION_BYTES], size_t *ret_count)
{
    const char *text = drive->request.options ? drive->request.options : "[]";
    cleanup(json_deletep) cJSON *array = NULL;
    const cJSON *item;
    size_t count = 0;
    int r = json_parse(text, strlen(text), JSON_LIMITS_HTTP, &array, NULL);

    if (r < 0)
        return r;
    cJSON_ArrayForEach(item, array)
    {
        const char *option = cJSON_GetStringValue(item);

        if (!option || count == DRIVE_OPTIONS || strlen(option) >= DRIVE_OPTION_BYTES)
            return -EBADMSG;
        (void)strcpy(options[count++], option);
    }
    *ret_count = count;
    return 0;
}

static bool take_text(const cJSON *object, const char *name, char *ret_text, size_t size)
{
    const char *text = json_string(object, name);

    return text && snprintf(ret_text, size, "%s", text) < (int)size;
}

int drive_guest_fill_containers(const struct drive_guest_call *call,
                                struct drive_containers *containers)
{
    const char *text = call->drive.request.containers ? call->drive.request.containers : "[]";
    cleanup(json_deletep) cJSON *array = NULL;
    const cJSON *item;
    int r = json_parse(text, strlen(text), JSON_LIMITS_PERSIST, &array, NULL);

    if (r < 0)
        return r;
    containers->count = 0;
    cJSON_ArrayForEach(item, array)
    {
        struct drive_container *one = &containers->each[containers->count];

        if (containers->count == DRIVE_CONTAINERS ||
            !take_text(item, "container_id", one->container_id, sizeof(one->container_id)) ||
            !take_text(item, "path", one->path, sizeof(one->path)) ||
            !take_text(item, "sub_path", one->sub_path, sizeof(one->sub_path)))
            return -EBADMSG;
        one->read_only = cJSON_IsTrue(json_member(item, "read_only"));
        containers->count++;
    }
    return 0;
}

int drive_guest_fill_mount(const struct drive_guest_call *call, struct drive_mount_request *mount)
{
    const struct store_drive_mount_request *from = &call->drive.request;
    int r;

    *mount = (struct drive_mount_request){
        .bytes = call->bytes ? call->bytes : call->drive.disk.size_bytes,
        .read_only = !from->writable,
        .fsck = from->fsck,
        .has_fs_group = from->has_fs_group,
        .fs_group = from->fs_group,
        .fs_group_policy = from->fs_group_policy,
    };
    (void)strcpy(mount->drive_id, from->drive_id);
    (void)strcpy(mount->serial, call->drive.serial);
    (void)strcpy(mount->vm_path, from->vm_path);
    (void)strcpy(mount->filesystem_type, from->fs_type);
    r = fill_options(&call->drive, mount->options, &mount->option_count);
    return r < 0 ? r : drive_guest_fill_containers(call, &mount->containers);
}

/* ---- life ---- */

static int copy_drive(struct drive_guest_call *call, const struct store_drive_mount *drive)
{
    const char *options = drive->request.options, *containers = drive->request.containers;
    struct store_drive_mount_request *copy = &call->drive.request;

    call->drive = *drive;
    copy->options = options ? strdup(options) : NULL;
    copy->containers = containers ? strdup(containers) : NULL;
    return (options && !copy->options) || (containers && !copy->containers) ? -ENOMEM : 0;
}

static void on_begin(struct loop_timer *timer)
{
    struct drive_guest_call *call = container_of(timer, struct drive_guest_call, beginning);
    int r = store_get_helper_sandbox(call->context->store, call->drive.sandbox_ref, &call->sandbox);

    if (r < 0)
        drive_guest_fail(call, STATUS_UNAVAILABLE, "the sandbox's record cannot be read");
    else if (!call->sandbox.sandbox_ref || !call->sandbox.is_alive)
        drive_guest_fail(call, STATUS_UNAVAILABLE, "the sandbox has ended");
    else if (!call->sandbox.agent_address[0])
        drive_guest_fail(call, STATUS_UNAVAILABLE,
                         "the address of the guest's agent is not known yet");
    else if (drive_guest_is_held(call))
        drive_guest_use_container(call);
    else
        drive_guest_ask_companion(call);
}

int drive_guest_call_new(const struct context *context, const struct drive_guest_request *request,
                         drive_guest_done *done, void *userdata, struct drive_guest_call **ret_call)
{
    struct drive_guest_call *call = calloc(1, sizeof(*call));

    if (!call)
        return -ENOMEM;
    call->context = context;
    call->act = request->act;
    (void)snprintf(call->address, sizeof(call->address), "%s", request->address);
    call->bytes = request->bytes;
    call->deadline_ns = request->deadline_ns;
    drive_guest_begin_time(call);
    call->share = -1;
    call->done = done;
    call->userdata = userdata;
    if (copy_drive(call, request->drive) < 0) {
        (void)drive_guest_call_free(call);
        return -ENOMEM;
    }
    loop_timer_start(context->loop, &call->beginning, 0, on_begin);
    *ret_call = call;
    return 0;
}

bool drive_guest_call_must_end(const struct drive_guest_call *call)
{
    return call->helper || call->container;
}

struct drive_guest_call *drive_guest_call_free(struct drive_guest_call *call)
{
    if (!call)
        return NULL;
    loop_timer_stop(&call->beginning);
    drive_guest_drop_companion(call);
    drive_guest_drop_container(call);
    store_drive_mount_done(&call->drive);
    free(call);
    return NULL;
}

/* ---- guest stock ---------------------------------------------------------------------------- */

/* A drive in a guest that has only kata-agent.
 *
 *     MOUNT    [remove what an earlier one left] check… hold
 *     LOOK     look
 *     UNMOUNT  remove, find, prove [hold, if somebody has the disk]
 *     GROW     as a volume's helper does
 */

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
