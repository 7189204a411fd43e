/* SPDX-License-Identifier: Apache-2.0 */
/* guest.h - has a guest mount and unmount the disk of a drive, and reports whether it is mounted
 * there. Private to reconciler/drive/.
 *
 * There are two routes. crust-guest-agent in the guest (guest.c) is called by
 * crust.guest.v1.Drives. In a guest that has only kata-agent (guest_container.c) the same calls are
 * made by crustd's helper, in containers that kata-agent runs in its own mount namespace.
 *
 * The only state kept between calls is the recorded route. Each call may be repeated, also after
 * crustd was killed during one.
 */
#pragma once

#include "agent-client/drive_client.h"
#include "reconciler/core/context.h"
#include "reconciler/decide/decide_drive.h"
#include "reconciler/helper/helper.h"
#include "store/drive_mounts.h"
#include "store/store.h"

struct container_run;
struct helper_run;

enum { DRIVE_REMARK_BYTES = 256 };

/* The result of an act. Facts about the VMM and the guest go into struct drive_work at once. */
struct drive_result {
    enum status_code status;
    bool is_brief;      /* the act failed because another client has the monitor for a moment */
    bool wants_disk;    /* the act failed because the VMM needs a descriptor of the disk */
    bool retry_at_once; /* the guest is still at work: ask again at once */
    bool by_container;  /* the guest was asked at the price of a container */
    struct store_drive_mount_disk disk; /* CLAIM; also filled if the claim was refused */
    bool is_taken;                      /* somebody unknown has the disk open exclusively */
    bool is_searched;                   /* for whom, once */
    bool is_by_name;                    /* END: the disk was opened by the kernel's name */
    char guest_device[STORE_NAME_BYTES];
    char serial[DRIVE_SERIAL_CHARS + 1]; /* if the VMM chose it and has the drive, else "" */
    char remark[DRIVE_REMARK_BYTES];
    struct error error;
};

/* Its owner fills in the first members, and keeps what they point to. */
struct drive_guest_call {
    const struct context *context; /* NULL: no call runs */
    const struct store_drive_mount *drive;
    const struct store_helper_run *sandbox;
    /* LIST only reads. MOUNT is OK if the drive is mounted as the row asks for, synced, and in all
     * of the containers; mounted and FAILED_PRECONDITION: not in one of them. UNMOUNT is OK if
     * nobody in the guest has the disk, and all data is written to it. */
    enum drive_client_act act;
    uint64_t bytes;   /* GROW: the disk's present size. MOUNT: the same; 0: the recorded size */
    uint64_t ends_at; /* of the whole call, on clock_boottime() */
    struct drive_result *result; /* the status is one of those in agent-client/drive_call.h */
    void (*done)(struct drive_guest_call *call);

    enum drive_in_guest guest; /* at the end of the call */

    /* For the route by crust-guest-agent. */
    struct drive_client *client;
    size_t containers; /* MOUNT: asked for */

    /* For the route by a container. */
    int share;                  /* the sandbox's shared directory; -1: not open */
    struct helper_guest traits; /* asked whether the guest has the share */
    bool share_comes;           /* the runtime makes the share with the sandbox's first container */
    char directory[HELPER_NAME_BYTES]; /* there, of the drive's container */
    struct helper_run *helper;
    struct container_run *container;
};

/* ---- guest.c ---- */

/* Exactly one `done` follows, perhaps from within. */
void drive_guest_start(struct drive_guest_call *call);
/* Ends the conversation, if there is one, but not the work in the guest. */
void drive_guest_stop(struct drive_guest_call *call);
/* Whether the call should not be stopped while its VM runs, because it is creating, running or
 * removing a container in the guest. A container whose creation is interrupted may keep the disk
 * mounted for good, and one that runs a helper would stay until crustd starts again. */
bool drive_guest_must_end(const struct drive_guest_call *call);

/* The time that is left to the call; at least 1. */
uint64_t drive_guest_time(const struct drive_guest_call *call);

/* These report to the owner: nothing may follow them. */
void drive_guest_finish(struct drive_guest_call *call);
void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text);
void drive_guest_fail_errno(struct drive_guest_call *call, int r, const char *what);

/* Fills in the result, which is reported later. */
void drive_guest_note_refusal(struct drive_guest_call *call, enum status_code status,
                              const char *text);

/* An act as a text for a helper (drive_client.h), and the helper's answer to the call's own act. 0,
 * -EBADMSG, -EMSGSIZE, -ENOMEM. */
int drive_guest_make_text(struct drive_guest_call *call, enum drive_client_act act,
                          char **ret_text);
void drive_guest_take_text(struct drive_guest_call *call, const char *text, size_t length);

/* ---- guest_container.c ---- */

/* Makes the call by kata-agent and helpers. */
void drive_guest_use_container(struct drive_guest_call *call);
void drive_guest_drop_container(struct drive_guest_call *call);
/* Whether the guest has the drive's container, or may have it. */
bool drive_guest_is_held(struct drive_guest_call *call);
