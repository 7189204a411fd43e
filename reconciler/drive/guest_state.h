/* SPDX-License-Identifier: Apache-2.0 */
/* guest_state.h - the state of a drive's call into a guest. Private to reconciler/drive/.
 *
 * guest.c begins a call, chooses the route and reports; each route has a file of its own.
 */
#pragma once

#include "agent-client/drive_client.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/guest.h"
#include "store/store.h"

struct agent_call;

struct drive_guest_call {
    const struct context *context;
    enum drive_guest_act act;
    struct store_drive_mount drive; /* its options are owned */
    struct store_helper_run sandbox;
    unsigned scsi_id, lun;
    uint64_t bytes;
    uint64_t ends_at; /* on clock_boottime() */
    struct loop_timer deferred;
    struct drive_guest_reply reply;
    drive_guest_done *done;
    void *userdata;

    /* The companion's route. */
    struct drive_client *client;
    struct agent_call *agent; /* GROW */
};

/* ---- guest.c ---- */

/* What is left of the call's time; at least 1. */
uint64_t drive_guest_time(const struct drive_guest_call *call);

/* Reports from the loop that the call has failed. */
void drive_guest_fail_later(struct drive_guest_call *call, enum status_code status,
                            const char *text);

/* These report: nothing may follow, because the owner may free the call there. */
void drive_guest_finish(struct drive_guest_call *call);
void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text);

/* Fills `options` from the row's JSON array. 0, -EBADMSG, -ENOMEM. */
int drive_guest_options(const struct store_drive_mount *drive,
                        char options[static DRIVE_OPTIONS][DRIVE_OPTION_BYTES], size_t *ret_count);

/* ---- guest_companion.c ---- */

/* By crust-guest-agent in the guest. */
void drive_guest_ask_companion(struct drive_guest_call *call);
void drive_guest_drop_companion(struct drive_guest_call *call);
