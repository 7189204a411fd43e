/* SPDX-License-Identifier: Apache-2.0 */
/* guest_state.h - the state of a drive's call into a guest. Private to reconciler/drive/.
 *
 * guest.c begins a call, chooses the route, asks crust-guest-agent and reports. guest_container.c
 * is the other route.
 */
#pragma once

#include "agent-client/drive_client.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/guest.h"
#include "reconciler/helper/share.h"
#include "store/store.h"

struct container_run;
struct helper_guest;
struct helper_run;

struct drive_guest_call {
    const struct context *context;
    enum drive_guest_act act;
    struct store_drive_mount drive; /* its strings are owned */
    struct store_helper_run sandbox;
    uint64_t bytes;
    uint64_t ends_at; /* of the whole call, on clock_boottime() */
    struct loop_timer beginning;
    struct drive_guest_reply reply;
    drive_guest_done *done;
    void *userdata;

    /* For the route by crust-guest-agent. */
    struct drive_client *client;
    size_t containers; /* MOUNT: asked for */

    /* For the route by a container. */
    int share;                   /* the sandbox's shared directory; -1: not open */
    struct helper_guest *traits; /* asked whether the guest has the share */
    bool share_comes; /* the runtime makes the share with the sandbox's first container */
    char directory[HELPER_NAME_BYTES]; /* there, of the drive's container */
    struct helper_run *helper;
    struct container_run *container;
};

/* ---- guest.c ---- */

/* The time that is left to the call; at least 1. */
uint64_t drive_guest_time(const struct drive_guest_call *call);

/* These report to the owner, who may free the call: nothing may follow them. */
void drive_guest_finish(struct drive_guest_call *call);
void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text);
void drive_guest_fail_errno(struct drive_guest_call *call, int r, const char *what);

/* Fills in the reply, which is given later. */
void drive_guest_note_refusal(struct drive_guest_call *call, enum status_code status,
                              const char *text);

/* An act as a text for a helper (drive_client.h), and the helper's answer to the call's own act. 0,
 * -EBADMSG, -EMSGSIZE, -ENOMEM. */
int drive_guest_make_text(struct drive_guest_call *call, enum drive_guest_act act, char **ret_text);
void drive_guest_take_text(struct drive_guest_call *call, const char *text, size_t length);

/* ---- guest_container.c ---- */

/* Makes the call by kata-agent and helpers. */
void drive_guest_use_container(struct drive_guest_call *call);
void drive_guest_drop_container(struct drive_guest_call *call);
/* Whether the guest has the drive's container, or may have it. */
bool drive_guest_is_held(struct drive_guest_call *call);
