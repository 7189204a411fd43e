/* SPDX-License-Identifier: Apache-2.0 */
/* guest.h - has a guest mount and unmount the disk of a drive, and says what the guest has of it.
 *
 * Two routes lead there. crust-guest-agent in the guest (`companion`) does everything itself, by
 * crust.guest.v1.Drives. In a guest that has only kata-agent (`container`) a container is created
 * with the disk among its storages: the agent waits for the disk at its address and mounts it
 * before it answers; removing the container unmounts it. What the agent does not do is done by
 * crustd's helper: the group and the sync in that container, the serial, size and access, protected
 * paths and the proof that nobody holds the disk in others, before and after.
 *
 * Containers that run are entered by crust-guest-agent alone: from a container nobody can.
 *
 * Nothing is remembered between calls but the route on record. Each call may be repeated, also
 * after crustd was killed in the middle of one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"
#include "lib/status.h"
#include "reconciler/decide/drive.h"
#include "store/drive_mounts.h"

struct context;

enum drive_guest_act {
    DRIVE_GUEST_LOOK,  /* changes nothing */
    DRIVE_GUEST_MOUNT, /* OK: mounted at vm_path as the row asks for, and synced, and in all of the
                          containers. Mounted and FAILED_PRECONDITION: not in one of them */
    DRIVE_GUEST_UNMOUNT, /* OK: nobody in the guest has the disk, and all of its data is on it */
    DRIVE_GUEST_GROW,    /* OK: the file system fills the disk's present size */
};

struct drive_guest_request {
    enum drive_guest_act act;
    const struct store_drive_mount *drive; /* copied */
    const char *address;                   /* of the disk in the guest, copied; "" unknown */
    uint64_t bytes; /* GROW: the disk's present size. MOUNT: the same, 0: as it is on record */
    uint64_t deadline_ns; /* from now, for all of it */
};

struct drive_guest_reply {
    enum status_code status;       /* as listed in agent-client/drive_call.h */
    enum drive_in_guest guest;     /* at the end of the call */
    char device[STORE_NAME_BYTES]; /* the guest's name of the disk; "" not known */
    char remark[256];   /* of a success: entries whose group could not be changed, what the
                           file system's check repaired; "" none */
    struct error error; /* for people, when not OK */
};

struct drive_guest_call;

typedef void drive_guest_done(struct drive_guest_call *call, const struct drive_guest_reply *reply,
                              void *userdata);

/* Exactly one `done` from the loop, never from within; the owner frees the call then or later.
 * Freeing a running call ends the conversation; what the guest does goes on. 0 or -ENOMEM. */
int drive_guest_call_new(const struct context *context, const struct drive_guest_request *request,
                         drive_guest_done *done, void *userdata,
                         struct drive_guest_call **ret_call);
struct drive_guest_call *drive_guest_call_free(struct drive_guest_call *call); /* returns NULL */

/* Whether it should not be freed while its VM lives: a container of crustd's own is being made, run
 * or removed in the guest. One whose creation is cut off may keep the disk mounted for good, and
 * one that runs a helper would stay until crustd starts again. */
bool drive_guest_call_must_end(const struct drive_guest_call *call);
