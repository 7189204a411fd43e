/* SPDX-License-Identifier: Apache-2.0 */
/* guest_companion.c - mounts and unmounts a drive by crust-guest-agent in the guest.
 *
 * Moving the mount to its place is the agent's last step, so a MountDrive that it refuses has
 * mounted nothing. After an UnmountDrive that it refuses, it is unknown whether the drive is
 * mounted. If the agent does not run or is too old, the other route is taken, but not once the
 * agent was asked for something. A socket on which somebody else listens says nothing about the
 * agent: the call fails and names that process, and no other route hides it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "agent-client/agent_client.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/drive/guest_state.h"

/* ---- answers ---- */

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
    drive_guest_remark_walk(call, &answer->walk);
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
static void take_list(struct drive_guest_call *call, const struct drive_guest_list *list)
{
    const struct store_drive_mount *drive = &call->drive;

    call->reply.guest = list->incomplete ? DRIVE_IN_GUEST_UNKNOWN : DRIVE_IN_GUEST_ABSENT;
    for (size_t i = 0; i < list->count; i++) {
        const struct drive_guest_entry *entry = &list->entries[i];

        if (strcmp(entry->serial, drive->serial) != 0)
            continue;
        call->reply.guest = entry->state == DRIVE_GUEST_MOUNTED &&
                                    strcmp(entry->vm_path, drive->request.vm_path) == 0
                                ? DRIVE_IN_GUEST_MOUNTED
                                : DRIVE_IN_GUEST_ABSENT;
        take_device(call, entry->device);
    }
    if (call->reply.guest != DRIVE_IN_GUEST_UNKNOWN)
        return;
    call->reply.status = STATUS_UNAVAILABLE;
    (void)error_set(&call->reply.error, (int)call->reply.status,
                    "the guest's agent cannot list all of its drives");
}

static bool has_mounted_nothing(const struct drive_client_reply *reply)
{
    return reply->outcome == DRIVE_CLIENT_ANSWERED &&
           (reply->status == STATUS_INVALID_ARGUMENT || reply->status == STATUS_ALREADY_EXISTS ||
            reply->status == STATUS_FAILED_PRECONDITION);
}

/* Whether the guest had an agent that mounted the drive and entered containers: it should come
 * back. */
static bool had_agent(const struct drive_guest_call *call)
{
    return (call->act == DRIVE_GUEST_MOUNT || call->act == DRIVE_GUEST_LOOK) &&
           drive_guest_was_mounted(call) && store_drive_mount_has_containers(&call->drive);
}

static void on_answer(struct drive_client *client, const struct drive_client_reply *reply,
                      void *userdata)
{
    struct drive_guest_call *call = userdata;

    if ((reply->outcome == DRIVE_CLIENT_ABSENT && !had_agent(call)) ||
        reply->outcome == DRIVE_CLIENT_UNSUPPORTED) {
        call->client = drive_client_free(client);
        drive_guest_use_container(call);
        return;
    }
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
    } else {
        take_list(call, &reply->list);
    }
    call->client = drive_client_free(client);
    drive_guest_finish(call);
}

static enum status_code status_of(const struct agent_reply *reply)
{
    switch (reply->outcome) {
    case AGENT_DONE:
        return STATUS_OK;
    case AGENT_UNREACHABLE:
        return STATUS_UNAVAILABLE;
    case AGENT_DENIED:
        return STATUS_PERMISSION_DENIED;
    case AGENT_UNSUPPORTED:
    case AGENT_LAYER:
    case AGENT_NOT_GROWABLE:
    case AGENT_SHUT_DOWN:
    case AGENT_LIMIT:
        return STATUS_FAILED_PRECONDITION;
    case AGENT_READ_ONLY:
    case AGENT_GROWING:
    case AGENT_FAILED:
    case AGENT_UNEXPLAINED:
    case AGENT_OUTCOMES:
    default:
        return reply->status == STATUS_UNAVAILABLE || reply->status == STATUS_DEADLINE_EXCEEDED
                   ? (enum status_code)reply->status
                   : STATUS_INTERNAL;
    }
}

static void on_grown(struct agent_call *agent, const struct agent_reply *reply, void *userdata)
{
    struct drive_guest_call *call = userdata;

    if ((reply->outcome == AGENT_UNREACHABLE && !reply->is_foreign) ||
        reply->outcome == AGENT_UNSUPPORTED) {
        call->agent = agent_call_free(agent);
        drive_guest_use_container(call);
        return;
    }
    call->reply.status = status_of(reply);
    if (call->reply.status == STATUS_OK)
        call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
    else
        call->reply.error = reply->error;
    call->agent = agent_call_free(agent);
    drive_guest_finish(call);
}

/* ---- requests ---- */

static int ask(struct drive_guest_call *call, const char *address)
{
    cleanup(freep) struct drive_mount_request *mount = calloc(1, sizeof(*mount));
    cleanup(freep) struct drive_unmount_request *unmount = calloc(1, sizeof(*unmount));
    const struct drive_client_request request = {
        .act = call->act == DRIVE_GUEST_MOUNT     ? DRIVE_CLIENT_MOUNT
               : call->act == DRIVE_GUEST_UNMOUNT ? DRIVE_CLIENT_UNMOUNT
                                                  : DRIVE_CLIENT_LIST,
        .root = call->context->root,
        .address = address,
        .listener = {.vmm = call->sandbox.vmm_pid, .sandbox_id = call->sandbox.sandbox_id},
        .mount = mount,
        .unmount = unmount,
        .without_disks = call->drive.state == DRIVE_REQUESTED, /* no VM has the disk yet */
        .deadline_ns = drive_guest_time(call),
    };
    int r = mount && unmount ? drive_guest_fill_mount(call, mount) : -ENOMEM;

    if (r < 0)
        return r;
    (void)strcpy(unmount->drive_id, call->drive.request.drive_id);
    (void)strcpy(unmount->serial, call->drive.serial);
    unmount->containers = mount->containers;
    call->containers = mount->containers.count;
    return drive_client_new(call->context->loop, &request, on_answer, call, &call->client);
}

static int ask_to_grow(struct drive_guest_call *call, const char *address)
{
    const struct agent_request request = {
        .act = AGENT_RESIZE,
        .root = call->context->root,
        .address = address,
        .listener = {.vmm = call->sandbox.vmm_pid, .sandbox_id = call->sandbox.sandbox_id},
        .volume_path = call->drive.request.vm_path,
        .bytes = call->bytes,
        .deadline_ns = drive_guest_time(call),
    };

    return agent_call_new(call->context->loop, &request, on_grown, call, &call->agent);
}

void drive_guest_ask_companion(struct drive_guest_call *call)
{
    char address[STORE_ADDRESS_BYTES];
    struct error error;
    int r;

    if (!agent_companion_address(call->sandbox.agent_address,
                                 call->context->config->agent.companion_port, address,
                                 sizeof(address))) {
        drive_guest_use_container(call);
        return;
    }
    r = call->act == DRIVE_GUEST_GROW ? ask_to_grow(call, address) : ask(call, address);
    if (r == 0)
        return;
    (void)error_set_errno(&error, r, "cannot ask the guest's agent");
    drive_guest_fail(call, STATUS_UNAVAILABLE, error.text);
}

void drive_guest_drop_companion(struct drive_guest_call *call)
{
    call->client = drive_client_free(call->client);
    call->agent = agent_call_free(call->agent);
}
