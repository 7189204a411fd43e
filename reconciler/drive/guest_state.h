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
struct helper_run;

struct drive_guest_call {
    const struct context *context;
    enum drive_guest_act act;
    struct store_drive_mount drive; /* its texts are owned */
    struct store_helper_run sandbox;
    char address[HYPERVISOR_DRIVE_ADDRESS_BYTES];
    uint64_t bytes;
    uint64_t deadline_ns; /* of the whole call */
    uint64_t ends_at;     /* on clock_boottime() */
    struct loop_timer beginning;
    struct drive_guest_reply reply;
    drive_guest_done *done;
    void *userdata;

    /* The companion's route. */
    struct drive_client *client;
    struct agent_call *agent; /* GROW */
    size_t containers;        /* MOUNT: asked for */

    /* The container's. */
    int share;                        /* the sandbox's; -1: not open */
    bool share_comes;                 /* with the sandbox's first container */
    char place[DRIVE_PATH_CHARS + 1]; /* MOUNT: vm_path, or the directory above it */
    unsigned climbed;                 /* how often another path was tried */
    bool is_undone;                   /* the reply says why */
    struct helper_run *helper;
    struct container_run *container;
};

/* ---- guest.c ---- */

/* Gives the call its whole time, from now on. */
void drive_guest_begin_time(struct drive_guest_call *call);

/* What is left of the call's time; at least 1. */
uint64_t drive_guest_time(const struct drive_guest_call *call);

/* These report: nothing may follow, because the owner may free the call there. */
void drive_guest_finish(struct drive_guest_call *call);
void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text);
void drive_guest_fail_errno(struct drive_guest_call *call, int r, const char *what);

/* Of a mount: the entries whose group could not be changed. */
void drive_guest_remark_walk(struct drive_guest_call *call, const struct drive_walk_count *walk);

/* What the row asks for. 0, -EBADMSG, -ENOMEM. */
int drive_guest_fill_mount(const struct drive_guest_call *call, struct drive_mount_request *mount);

int drive_guest_fill_containers(const struct drive_guest_call *call,
                                struct drive_containers *containers);

/* ---- guest_companion.c ---- */

/* By crust-guest-agent in the guest. */
void drive_guest_ask_companion(struct drive_guest_call *call);
void drive_guest_drop_companion(struct drive_guest_call *call);

/* ---- guest_container.c ---- */

/* On record as mounted. A mount that no answer was given for is not: it is made anew. */
bool drive_guest_was_mounted(const struct drive_guest_call *call);
/* Whether a container in the guest has the drive mounted, or may have. */
bool drive_guest_is_held(struct drive_guest_call *call);
/* By kata-agent and helpers. */
void drive_guest_use_container(struct drive_guest_call *call);
void drive_guest_drop_container(struct drive_guest_call *call);
/* What follows a check that found nothing wrong, and a proof that failed: the drive is as it was
 * before the detach. */
void drive_guest_hold(struct drive_guest_call *call);
void drive_guest_hold_again(struct drive_guest_call *call, const struct drive_guest_line *line);

/* ---- guest_errands.c ---- */

/* What this route cannot do, and what no route does; NULL: nothing. */
const char *drive_guest_find_obstacle(struct drive_guest_call *call, enum status_code *ret_status);
/* Leads to drive_guest_hold(). */
void drive_guest_check(struct drive_guest_call *call);
void drive_guest_look(struct drive_guest_call *call);
/* May lead to drive_guest_hold_again(). */
void drive_guest_prove(struct drive_guest_call *call);
void drive_guest_grow(struct drive_guest_call *call);
