/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h - the route `helper`: a program that is brought into a guest for about a second, and
 * grows file systems there or reports their usage.
 *
 * One helper serves all volumes of its sandbox that wait for it, and includes the others. At most
 * one runs in a sandbox and guest.helpers on the node; resizes take precedence over reports. A
 * sandbox's usage is requested at most once in HELPER_FRESH_NS: in between the last answer is used,
 * with its age.
 *
 * What an earlier daemon left behind, on record or recognised by its name in the share of a live
 * sandbox, is removed before the sandbox gets another helper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent-client/guest_call.h"
#include "lib/clock.h"
#include "model/reason.h"
#include "reconciler/helper/report.h"
#include "store/store.h"

/* ---- one run -------------------------------------------------------------------------------- */

/* One helper in one guest: placed, run, removed. For reconciler/helper/ and
 * reconciler/drive/.
 *
 *   recorded → program placed in the share → container run → directory removed → record deleted
 *
 * After a kill at any step, the possible remains are on record; a clean-up takes the same steps
 * backwards.
 */

struct context;
struct helper_run;

/* What one run is for. */
struct helper_task {
    /* If it has a name, what an earlier run left under that is removed; else the run makes one. */
    struct store_helper_run sandbox;
    bool grow;     /* otherwise only report */
    bool withheld; /* places may be those of volumes that must not be resized */
    unsigned paths;
    const char *path[HELPER_VOLUMES + 1]; /* in the guest; copied; ended by NULL */
    const char *call; /* of a drive (drive_client.h), in place of the paths; copied. NULL: none */
};

struct helper_outcome {
    enum volume_reason reason; /* NONE: there is a report; of a clean-up: nothing is left */
    struct error error;        /* if it is not NONE */
    struct helper_report report;
    const char *answer; /* to the call, in place of the report; borrowed for the callback */
    size_t answer_length;
    bool left; /* something may be left in the guest or its share under the sandbox's name */
    struct error removal_error; /* why, if something is left */
};

typedef void helper_run_done(struct helper_run *run, const struct helper_outcome *outcome,
                             void *userdata);

/* Exactly one `done` follows from the loop, never from within. 0 or -ENOMEM. */
int helper_run_new(const struct context *context, const struct helper_task *task,
                   helper_run_done *done, void *userdata, struct helper_run **ret_run);
/* Returns NULL. The remains of a running helper stay, on record. */
struct helper_run *helper_run_free(struct helper_run *run);

/* The name of its container and directory; "" before it has one. */
const char *helper_run_name(const struct helper_run *run);

/* ---- those that wait for one (helpers.c) ---------------------------------------------------- */

#define HELPER_FRESH_NS (300 * NSEC_PER_SEC)

struct config;
struct helper_call;
struct helpers;
struct store_volume;

enum helper_purpose { HELPER_RESIZE, HELPER_STATS };

/* targets.c: whether this route exists for the volume. */
bool helper_is_possible(const struct config *config, const struct store_volume *volume);

/* Exactly one `done` follows, from the loop and never from within; the call is freed then.
 * deadline_ns: how long to wait for a helper to begin, from now; 0: no limit. 0 or -ENOMEM. */
int helper_call_new(struct helpers *helpers, const struct store_volume *volume,
                    enum helper_purpose purpose, uint64_t deadline_ns, guest_helper_done *done,
                    void *userdata, struct helper_call **ret_call);
/* Returns NULL. A helper that runs for the call continues. */
struct helper_call *helper_call_free(struct helper_call *call);

struct helpers *helpers_new(const struct context *context); /* borrowed. NULL: no memory */
struct helpers *helpers_free(struct helpers *helpers);      /* returns NULL */
/* After the first scan: finds and removes what an earlier daemon left. */
void helpers_start(struct helpers *helpers);
/* A helper that another module ran could not be removed: that is tried again until it succeeds.
 * NULL: it was not tried yet. */
void helpers_note_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                           const struct error *error);
/* At times: forgets old answers. */
void helpers_sweep(struct helpers *helpers);
/* crustd is stopping: no further helper begins, and calls that wait for one are ended. A helper
 * that still runs after resize.call_timeout_seconds is left in the guest, on record. */
void helpers_stop(struct helpers *helpers);
/* No helper runs, and none is about to. */
bool helpers_are_idle(const struct helpers *helpers);
