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

#include "agent-client/agent_address.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "reconciler/drive/guest_state.h"

enum { SHARE_OF_TIME = 4 }; /* a disk has this part of a helper's time to appear or become free */

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

static void remark_walk(struct drive_guest_call *call, const struct drive_walk_count *walk)
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

static int fill_containers(const struct drive_guest_call *call, struct drive_containers *containers)
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

static int fill_mount(const struct drive_guest_call *call, struct drive_mount_request *mount)
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
    return r < 0 ? r : fill_containers(call, &mount->containers);
}

/* ---- crust-guest-agent ----
 *
 * Moving the mount to its place is the agent's last step, so a MountDrive that it refuses has
 * mounted nothing. After an UnmountDrive that it refuses, it is unknown whether the drive is
 * mounted. If the agent does not run or is too old, the other route is taken, but not once the
 * agent was asked for something. A socket on which somebody else listens says nothing about the
 * agent: the call fails and names that process, and no other route hides it.
 */

static void take_device(struct drive_guest_call *call, const char *device)
{
    (void)snprintf(call->reply.device, sizeof(call->reply.device), "%s", device);
}

static void take_mounted(struct drive_guest_call *call, const struct drive_mount_answer *answer)
{
    char *remark = call->reply.remark;
    size_t size = sizeof(call->reply.remark);

    call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
    take_device(call, answer->device);
    remark_walk(call, &answer->walk);
    if (answer->fsck == DRIVE_FSCK_REPAIRED)
        (void)snprintf(remark + strlen(remark), size - strlen(remark),
                       "%se2fsck has repaired the file system", remark[0] ? "; " : "");
}

/* The drive is mounted even if containers lack it. */
static void take_containers(struct drive_guest_call *call, const struct drive_mount_answer *answer)
{
    if (answer->containers >= call->containers && !answer->container_error[0])
        return;
    call->reply.status = STATUS_FAILED_PRECONDITION;
    (void)error_set(&call->reply.error, (int)call->reply.status, "%s",
                    answer->container_error[0]
                        ? answer->container_error
                        : "containers are not entered by the crust-guest-agent that is in the "
                          "guest: it is older than crustd");
}

/* A drive that is mounted elsewhere does not count as mounted: MountDrive then reports it. */
static void take_list(struct drive_guest_call *call, const struct drive_client_reply *reply)
{
    const struct drive_guest_entry *entry = &reply->entry;

    if (entry->serial[0]) {
        call->reply.guest = entry->state == DRIVE_GUEST_MOUNTED &&
                                    strcmp(entry->vm_path, call->drive.request.vm_path) == 0
                                ? DRIVE_IN_GUEST_MOUNTED
                                : DRIVE_IN_GUEST_ABSENT;
        take_device(call, entry->device);
    } else if (reply->is_incomplete) {
        drive_guest_note_refusal(call, STATUS_UNAVAILABLE,
                                 "the guest's agent cannot list all of its drives");
    } else {
        call->reply.guest = DRIVE_IN_GUEST_ABSENT;
    }
}

static bool has_mounted_nothing(const struct drive_client_reply *reply)
{
    return reply->outcome == DRIVE_CLIENT_ANSWERED &&
           (reply->status == STATUS_INVALID_ARGUMENT || reply->status == STATUS_ALREADY_EXISTS ||
            reply->status == STATUS_FAILED_PRECONDITION);
}

static void take_reply(struct drive_guest_call *call, const struct drive_client_reply *reply)
{
    call->reply.status = reply->status;
    call->reply.error = reply->error;
    if (reply->status != STATUS_OK) {
        if (call->act == DRIVE_GUEST_MOUNT && has_mounted_nothing(reply))
            call->reply.guest = DRIVE_IN_GUEST_ABSENT;
    } else if (call->act == DRIVE_GUEST_MOUNT) {
        take_mounted(call, &reply->mount);
        take_containers(call, &reply->mount);
    } else if (call->act == DRIVE_GUEST_UNMOUNT) {
        call->reply.guest = DRIVE_IN_GUEST_ABSENT;
    } else if (call->act == DRIVE_GUEST_GROW) {
        call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
    } else {
        take_list(call, reply);
    }
}

/* Whether the guest had an agent that mounted the drive and entered containers: it should come
 * back. In a guest without one, a container holds such a drive. */
static bool had_agent(const struct drive_guest_call *call)
{
    return (call->act == DRIVE_GUEST_MOUNT || call->act == DRIVE_GUEST_LOOK) &&
           (call->drive.state == DRIVE_MOUNTED || drive_phase(call->drive.state) == DRIVE_IN_USE) &&
           store_drive_mount_has_containers(&call->drive);
}

/* Whatever keeps the agent from growing the file system, a helper may do it. */
static bool has_no_agent(const struct drive_guest_call *call,
                         const struct drive_client_reply *reply)
{
    if (call->act == DRIVE_GUEST_GROW)
        return reply->outcome != DRIVE_CLIENT_ANSWERED && reply->outcome != DRIVE_CLIENT_FOREIGN;
    return reply->outcome == DRIVE_CLIENT_UNSUPPORTED ||
           (reply->outcome == DRIVE_CLIENT_ABSENT && !had_agent(call));
}

static void on_answer(struct drive_client *client, const struct drive_client_reply *reply,
                      void *userdata)
{
    struct drive_guest_call *call = userdata;
    const bool uses_container = has_no_agent(call, reply);

    if (!uses_container)
        take_reply(call, reply);
    call->client = drive_client_free(client);
    if (uses_container)
        drive_guest_use_container(call);
    else
        drive_guest_finish(call);
}

static const enum drive_client_act client_acts[] = {
    [DRIVE_GUEST_LOOK] = DRIVE_CLIENT_LIST,
    [DRIVE_GUEST_MOUNT] = DRIVE_CLIENT_MOUNT,
    [DRIVE_GUEST_UNMOUNT] = DRIVE_CLIENT_UNMOUNT,
    [DRIVE_GUEST_GROW] = DRIVE_CLIENT_GROW,
};

/* The drive is in the caller's memory. */
static int make_request(struct drive_guest_call *call, enum drive_guest_act act,
                        struct drive_client_request *ret_request,
                        struct drive_mount_request **ret_drive)
{
    struct drive_mount_request *drive = *ret_drive = malloc(sizeof(*drive));
    int r = drive ? fill_mount(call, drive) : -ENOMEM;

    if (r < 0)
        return r;
    call->containers = drive->containers.count;
    *ret_request = (struct drive_client_request){
        .act = client_acts[act],
        .root = call->context->root,
        .listener = {.vmm = call->sandbox.vmm_pid, .sandbox_id = call->sandbox.sandbox_id},
        .drive = drive,
        .without_disks = call->drive.state == DRIVE_REQUESTED, /* no VM has the disk yet */
        .allowed_ns = drive_guest_time(call),
    };
    drive->timeout_ms = ret_request->allowed_ns / NSEC_PER_MSEC;
    return 0;
}

/* ---- the same for a helper ---- */

int drive_guest_make_text(struct drive_guest_call *call, enum drive_guest_act act, char **ret_text)
{
    cleanup(freep) struct drive_mount_request *drive = NULL;
    struct drive_client_request request;
    int r = make_request(call, act, &request, &drive);

    if (r < 0)
        return r;
    drive->timeout_ms /= SHARE_OF_TIME;
    return drive_client_make_text(&request, ret_text);
}

void drive_guest_take_text(struct drive_guest_call *call, const char *text, size_t length)
{
    struct drive_client_reply reply;

    drive_client_read_text(client_acts[call->act], call->drive.serial, text, length, &reply);
    take_reply(call, &reply);
}

static void ask_companion(struct drive_guest_call *call)
{
    cleanup(freep) struct drive_mount_request *drive = NULL;
    struct drive_client_request request;
    char address[STORE_ADDRESS_BYTES];
    int r;

    if (!agent_companion_address(call->sandbox.agent_address,
                                 call->context->config->agent.companion_port, address,
                                 sizeof(address))) {
        drive_guest_use_container(call);
        return;
    }
    r = make_request(call, call->act, &request, &drive);
    request.address = address;
    if (r == 0)
        r = drive_client_new(&request, on_answer, call, &call->client);
    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot ask the guest's agent");
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
        /* The Go runtime records it after its first container. A helper's must not be the first:
         * kata-agent takes that one's for the pid namespace that a pod shares. */
        drive_guest_fail(call, STATUS_UNAVAILABLE,
                         "the address of the guest's agent is not known yet");
    else if (drive_guest_is_held(call))
        drive_guest_use_container(call);
    else
        ask_companion(call);
}

int drive_guest_call_new(const struct context *context, const struct drive_guest_request *request,
                         drive_guest_done *done, void *userdata, struct drive_guest_call **ret_call)
{
    struct drive_guest_call *call = calloc(1, sizeof(*call));

    if (!call)
        return -ENOMEM;
    call->context = context;
    call->act = request->act;
    call->bytes = request->bytes;
    call->ends_at = clock_boottime() + request->allowed_ns;
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
    call->client = drive_client_free(call->client);
    drive_guest_drop_container(call);
    store_drive_mount_done(&call->drive);
    free(call);
    return NULL;
}
