/* SPDX-License-Identifier: Apache-2.0 */
/* guest.c - see drive_work.h.
 *
 * Everything runs on the loop. drive_guest_finish() is the last use of a call. crust-guest-agent is
 * asked first, unless a container has the drive.
 */
#include "reconciler/drive/drive_work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"

enum { SHARE_OF_TIME = 4 }; /* a disk has this part of a helper's time to appear or become free */

uint64_t drive_guest_time(const struct drive_guest_call *call)
{
    uint64_t now = clock_boottime();

    return call->ends_at > now ? call->ends_at - now : 1;
}

/* Where a policy forbids containers, only the other route is left. */
void drive_guest_finish(struct drive_guest_call *call)
{
    const struct error refusal = call->result->error;

    if (call->result->status == STATUS_PERMISSION_DENIED && call->result->by_container)
        (void)error_set(&call->result->error, refusal.code,
                        "%.160s; drives in this guest need crust-guest-agent", refusal.text);
    drive_guest_stop(call);
    call->done(call);
}

void drive_guest_note_refusal(struct drive_guest_call *call, enum status_code status,
                              const char *text)
{
    call->result->status = status;
    (void)error_set(&call->result->error, (int)status, "%s", text);
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
    const char *text = call->drive->request.containers ? call->drive->request.containers : "[]";
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
    const struct store_drive_mount_request *from = &call->drive->request;
    int r;

    *mount = (struct drive_mount_request){
        .bytes = call->bytes ? call->bytes : call->drive->disk.size_bytes,
        .read_only = !from->writable,
        .fsck = from->fsck,
        .has_fs_group = from->has_fs_group,
        .fs_group = from->fs_group,
        .fs_group_policy = from->fs_group_policy,
    };
    (void)strcpy(mount->drive_id, from->drive_id);
    (void)strcpy(mount->serial, call->drive->serial);
    (void)strcpy(mount->vm_path, from->vm_path);
    (void)strcpy(mount->filesystem_type, from->fs_type);
    r = fill_options(call->drive, mount->options, &mount->option_count);
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

/* The drive is mounted even if containers lack it. */
static void take_mounted(struct drive_guest_call *call, const struct drive_mount_answer *answer)
{
    const bool is_repaired = answer->fsck == DRIVE_FSCK_REPAIRED, has_failed = answer->walk.failed;
    struct drive_result *result = call->result;
    char walk[128] = "";

    call->guest = DRIVE_IN_GUEST_MOUNTED;
    (void)snprintf(result->guest_device, sizeof(result->guest_device), "%s", answer->device);
    if (has_failed)
        (void)snprintf(walk, sizeof(walk), "the group of %" PRIu64 " entries could not be changed",
                       answer->walk.failed);
    (void)snprintf(result->remark, sizeof(result->remark), "%s%s%s", walk,
                   has_failed && is_repaired ? "; " : "",
                   is_repaired ? "e2fsck has repaired the file system" : "");
    if (answer->container_error[0])
        drive_guest_note_refusal(call, STATUS_FAILED_PRECONDITION, answer->container_error);
    else if (answer->containers < call->containers)
        drive_guest_note_refusal(call, STATUS_FAILED_PRECONDITION,
                                 "containers are not entered by the crust-guest-agent that is in "
                                 "the guest: it is older than crustd");
}

/* A drive that is mounted elsewhere does not count as mounted: MountDrive then reports it. */
static void take_list(struct drive_guest_call *call, const struct drive_client_reply *reply)
{
    const struct drive_guest_entry *entry = &reply->entry;

    if (entry->serial[0]) {
        call->guest = entry->state == DRIVE_GUEST_MOUNTED &&
                              strcmp(entry->vm_path, call->drive->request.vm_path) == 0
                          ? DRIVE_IN_GUEST_MOUNTED
                          : DRIVE_IN_GUEST_ABSENT;
        (void)snprintf(call->result->guest_device, sizeof(call->result->guest_device), "%s",
                       entry->device);
    } else if (reply->is_incomplete) {
        drive_guest_note_refusal(call, STATUS_UNAVAILABLE,
                                 "the guest's agent cannot list all of its drives");
    } else {
        call->guest = DRIVE_IN_GUEST_ABSENT;
    }
}

static void take_reply(struct drive_guest_call *call, const struct drive_client_reply *reply)
{
    const bool has_mounted_nothing =
        reply->outcome == DRIVE_CLIENT_ANSWERED &&
        (reply->status == STATUS_INVALID_ARGUMENT || reply->status == STATUS_ALREADY_EXISTS ||
         reply->status == STATUS_FAILED_PRECONDITION);

    call->result->status = reply->status;
    call->result->error = reply->error;
    if (reply->status != STATUS_OK) {
        if (call->act == DRIVE_CLIENT_MOUNT && has_mounted_nothing)
            call->guest = DRIVE_IN_GUEST_ABSENT;
    } else if (call->act == DRIVE_CLIENT_MOUNT) {
        take_mounted(call, &reply->mount);
    } else if (call->act == DRIVE_CLIENT_UNMOUNT) {
        call->guest = DRIVE_IN_GUEST_ABSENT;
    } else if (call->act == DRIVE_CLIENT_GROW) {
        call->guest = DRIVE_IN_GUEST_MOUNTED;
    } else {
        take_list(call, reply);
    }
}

/* A guest that had an agent which mounted the drive and entered containers should get it back; in
 * one without an agent, a container holds such a drive. Whatever keeps the agent from growing the
 * file system, a helper may do it. */
static bool has_no_agent(const struct drive_guest_call *call,
                         const struct drive_client_reply *reply)
{
    const bool had_agent =
        (call->act == DRIVE_CLIENT_MOUNT || call->act == DRIVE_CLIENT_LIST) &&
        (call->drive->state == DRIVE_MOUNTED || drive_phase(call->drive->state) == DRIVE_IN_USE) &&
        store_drive_mount_has_containers(call->drive);

    if (call->act == DRIVE_CLIENT_GROW)
        return reply->outcome != DRIVE_CLIENT_ANSWERED && reply->outcome != DRIVE_CLIENT_FOREIGN;
    return reply->outcome == DRIVE_CLIENT_UNSUPPORTED ||
           (reply->outcome == DRIVE_CLIENT_ABSENT && !had_agent);
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

static int make_request(struct drive_guest_call *call, enum drive_client_act act,
                        uint64_t allowed_ns, struct drive_client_request *ret_request)
{
    static struct drive_mount_request drive; /* large, and copied by whoever gets the request */
    int r = fill_mount(call, &drive);

    if (r < 0)
        return r;
    call->containers = drive.containers.count;
    *ret_request = (struct drive_client_request){
        .act = act,
        .root = call->context->root,
        .listener = {.vmm = call->sandbox->vmm_pid, .sandbox_id = call->sandbox->sandbox_id},
        .drive = &drive,
        .without_disks = call->drive->state == DRIVE_REQUESTED, /* no VM has the disk yet */
        .allowed_ns = allowed_ns,
    };
    drive.timeout_ms = allowed_ns / NSEC_PER_MSEC;
    return 0;
}

/* ---- the same for a helper ---- */

int drive_guest_make_text(struct drive_guest_call *call, enum drive_client_act act, char **ret_text)
{
    struct drive_client_request request;
    int r = make_request(call, act, drive_guest_time(call) / SHARE_OF_TIME, &request);

    return r < 0 ? r : drive_client_make_text(&request, ret_text);
}

void drive_guest_take_text(struct drive_guest_call *call, const char *text, size_t length)
{
    struct drive_client_reply reply;

    drive_client_read_text(call->act, call->drive->serial, text, length, &reply);
    take_reply(call, &reply);
}

static void ask_companion(struct drive_guest_call *call)
{
    struct drive_client_request request;
    char address[STORE_ADDRESS_BYTES];
    int r;

    if (!agent_companion_address(call->sandbox->agent_address,
                                 call->context->config->agent.companion_port, address,
                                 sizeof(address))) {
        drive_guest_use_container(call);
        return;
    }
    r = make_request(call, call->act, drive_guest_time(call), &request);
    request.address = address;
    if (r == 0)
        r = drive_client_new(&request, on_answer, call, &call->client);
    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot ask the guest's agent");
}

/* ---- life ---- */

void drive_guest_start(struct drive_guest_call *call)
{
    call->share = -1;
    if (!call->sandbox->agent_address[0])
        /* The Go runtime records it after its first container. A helper's must not be the first:
         * kata-agent takes that one's for the pid namespace that a pod shares. */
        drive_guest_fail(call, STATUS_UNAVAILABLE,
                         "the address of the guest's agent is not known yet");
    else if (drive_guest_is_held(call))
        drive_guest_use_container(call);
    else
        ask_companion(call);
}

bool drive_guest_must_end(const struct drive_guest_call *call)
{
    return call->helper || call->container;
}

void drive_guest_stop(struct drive_guest_call *call)
{
    if (!call->context)
        return;
    call->client = drive_client_free(call->client);
    drive_guest_drop_container(call);
    call->context = NULL;
}
