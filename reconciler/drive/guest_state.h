/* SPDX-License-Identifier: Apache-2.0 */
/* guest_state.h - the state of a drive's call into a guest. Private to reconciler/drive/.
 *
 * guest.c begins a call, chooses the route and reports; each route has a file of its own.
 */
#pragma once

#include "agent-client/drive_client.h"
#include "hypervisor/drive.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/guest.h"
#include "store/store.h"

struct agent_call;
struct container_run;
struct drive_guest_line;
struct helper_guest;
struct helper_run;

struct drive_guest_call {
    const struct context *context;
    enum drive_guest_act act;
    struct store_drive_mount drive; /* its strings are owned */
    struct store_helper_run sandbox;
    char address[HYPERVISOR_DRIVE_ADDRESS_BYTES];
    uint64_t bytes;
    uint64_t deadline_ns; /* for the whole call */
    uint64_t ends_at;     /* on clock_boottime() */
    struct loop_timer beginning;
    struct drive_guest_reply reply;
    drive_guest_done *done;
    void *userdata;

    /* For the route by crust-guest-agent. */
    struct drive_client *client;
    struct agent_call *agent; /* GROW */
    size_t containers;        /* MOUNT: asked for */

    /* For the route by a container. */
    int share;                   /* the sandbox's shared directory; -1: not open */
    struct helper_guest *traits; /* asked whether the guest has the share */
    bool share_comes; /* the runtime makes the share with the sandbox's first container */
    char place[DRIVE_PATH_CHARS + 1]; /* MOUNT: vm_path, or the directory above it */
    unsigned climbed;                 /* how many directories above vm_path were tried */
    bool is_there;                    /* MOUNT: a call that was cut off left the disk mounted */
    bool is_releasing;                /* UNMOUNT: the disk is busy; the reply has the reason */
    bool is_undone;                   /* the container is removed again; the reply has the reason */
    bool is_second;                   /* the container could not be created before */
    struct loop_timer settling;       /* until it is created again */
    struct helper_run *helper;
    struct container_run *container;
};

/* ---- guest.c ---- */

/* Restarts the call's deadline. */
void drive_guest_begin_time(struct drive_guest_call *call);

/* The time that is left to the call; at least 1. */
uint64_t drive_guest_time(const struct drive_guest_call *call);

/* These report to the owner, who may free the call: nothing may follow them. */
void drive_guest_finish(struct drive_guest_call *call);
void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text);
void drive_guest_fail_errno(struct drive_guest_call *call, int r, const char *what);

/* Fills in the reply, which is given later. */
void drive_guest_note_refusal(struct drive_guest_call *call, enum status_code status,
                              const char *text);

/* Adds a remark about the entries whose group a mount could not change. */
void drive_guest_remark_walk(struct drive_guest_call *call, const struct drive_walk_count *walk);

/* Fills in what the row asks for. 0, -EBADMSG, -ENOMEM. */
int drive_guest_fill_mount(const struct drive_guest_call *call, struct drive_mount_request *mount);

int drive_guest_fill_containers(const struct drive_guest_call *call,
                                struct drive_containers *containers);

/* ---- guest_companion.c ---- */

/* Makes the call by crust-guest-agent in the guest. */
void drive_guest_ask_companion(struct drive_guest_call *call);
void drive_guest_drop_companion(struct drive_guest_call *call);

/* ---- guest.c ---- */

/* Whether the drive is recorded as mounted. A mount that was not answered is not recorded, and is
 * repeated. */
bool drive_guest_was_mounted(const struct drive_guest_call *call);
/* Makes the call by kata-agent and helpers. */
void drive_guest_use_container(struct drive_guest_call *call);
void drive_guest_drop_container(struct drive_guest_call *call);

/* ---- guest_container.c ---- */

/* Opens the sandbox's share, if it has one: sets share and share_comes. */
void drive_guest_open_share(struct drive_guest_call *call);
/* Whether a container in the guest has the drive mounted, or may have. */
bool drive_guest_is_held(struct drive_guest_call *call);
/* Removes the container, if one may exist; check or prove follows. */
void drive_guest_remove_holder(struct drive_guest_call *call);
/* hold: creates the container, after the check has succeeded. hold_again: after a proof that
 * failed, so that the drive is as it was before the detach. */
void drive_guest_hold(struct drive_guest_call *call);
void drive_guest_hold_again(struct drive_guest_call *call);

/* ---- guest_errands.c ---- */

/* Why this route, or any, cannot make the call; NULL: it can. */
const char *drive_guest_find_obstacle(struct drive_guest_call *call, enum status_code *ret_status);
/* Leads to drive_guest_hold(). */
void drive_guest_check(struct drive_guest_call *call);
void drive_guest_look(struct drive_guest_call *call);
/* May lead to drive_guest_hold_again(). */
void drive_guest_prove(struct drive_guest_call *call);
void drive_guest_grow(struct drive_guest_call *call);
