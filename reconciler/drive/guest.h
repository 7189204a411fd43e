/* SPDX-License-Identifier: Apache-2.0 */
/* guest.h - has a guest mount and unmount the disk of a drive, and reports whether it is mounted
 * there.
 *
 * There are two routes. crust-guest-agent in the guest (`companion`) is called by
 * crust.guest.v1.Drives. In a guest that has only kata-agent (`container`) the same calls are made
 * by crustd's helper, in containers that kata-agent runs in its own mount namespace.
 *
 * The only state kept between calls is the recorded route. Each call may be repeated, also after
 * crustd was killed during one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"
#include "reconciler/decide/decide_drive.h"
#include "store/drive_mounts.h"

struct context;

enum drive_guest_act {
    DRIVE_GUEST_LOOK,    /* only reads */
    DRIVE_GUEST_MOUNT,   /* OK: mounted at vm_path as the row asks for, synced, and in all of the
                            containers. Mounted and FAILED_PRECONDITION: not in one of the containers
                          */
    DRIVE_GUEST_UNMOUNT, /* OK: nobody in the guest has the disk, and all data is written to it */
    DRIVE_GUEST_GROW,    /* OK: the file system fills the disk's present size */
};

struct drive_guest_request {
    enum drive_guest_act act;
    const struct store_drive_mount *drive; /* copied */
    uint64_t bytes;      /* GROW: the disk's present size. MOUNT: the same; 0: the recorded size */
    uint64_t allowed_ns; /* for the whole call */
};

struct drive_guest_reply {
    enum status_code status;       /* as listed in agent-client/drive_call.h */
    enum drive_in_guest guest;     /* at the end of the call */
    char device[STORE_NAME_BYTES]; /* the guest's name of the disk; "" not known */
    char remark[256];   /* if OK: entries whose group could not be changed, what fsck repaired; ""
                           none */
    struct error error; /* for people, when not OK */
    bool by_container;  /* it has cost the guest a container */
};

struct drive_guest_call;

typedef void drive_guest_done(struct drive_guest_call *call, const struct drive_guest_reply *reply,
                              void *userdata);

/* Exactly one `done` from the loop, never from within; the owner frees the call then or later.
 * Freeing a running call ends the conversation, but not the work in the guest. 0 or -ENOMEM. */
int drive_guest_call_new(const struct context *context, const struct drive_guest_request *request,
                         drive_guest_done *done, void *userdata,
                         struct drive_guest_call **ret_call);
struct drive_guest_call *drive_guest_call_free(struct drive_guest_call *call); /* returns NULL */

/* Whether the call should not be freed while its VM runs, because it is creating, running or
 * removing a container in the guest. A container whose creation is interrupted may keep the disk
 * mounted for good, and one that runs a helper would stay until crustd starts again. */
bool drive_guest_call_must_end(const struct drive_guest_call *call);
