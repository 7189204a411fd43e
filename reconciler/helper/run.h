/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - one helper in one guest: placed, run, removed. For reconciler/helper/ and
 * reconciler/drive/.
 *
 *   recorded → program placed in the share → container run → directory removed → record deleted
 *
 * After a kill at any step, the possible remains are on record; a clean-up takes the same steps
 * backwards.
 */
#pragma once

#include "model/reason.h"
#include "reconciler/helper/report.h"
#include "store/store.h"

struct context;
struct helper_run;

enum { HELPER_LINE_BYTES = 2048, HELPER_ARGUMENTS = 24 };

/* What one run is for. */
struct helper_task {
    struct store_helper_run sandbox; /* the run sets its name, except for a clean-up */
    bool grow;                       /* otherwise only report */
    bool withheld;                   /* places may be those of volumes that must not be resized */
    unsigned paths;
    const char *path[HELPER_VOLUMES + 1]; /* in the guest; copied; ended by NULL */
    /* The program's, in place of those for volumes; copied; ended by NULL. NULL: for volumes. */
    const char *const *arguments;
    bool in_mounts_of_agent; /* as in container_run.h */
};

struct helper_outcome {
    enum volume_reason reason; /* NONE: there is a report; of a clean-up: nothing is left */
    struct error error;        /* if it is not NONE */
    struct helper_report report;
    char line[HELPER_LINE_BYTES]; /* what it printed, in place of the report, with arguments */
    bool not_created;             /* the agent refused to create the container: a path is not there,
                                     or another thing is wrong; nothing is left of it */
    bool left; /* something may be left in the guest or its share under the sandbox's name */
    struct error removal_error; /* why, if something is left */
};

typedef void helper_run_done(struct helper_run *run, const struct helper_outcome *outcome,
                             void *userdata);

/* Exactly one `done` follows from the loop, never from within. 0 or -ENOMEM. */
int helper_run_new(const struct context *context, const struct helper_task *task,
                   helper_run_done *done, void *userdata, struct helper_run **ret_run);
/* Removes what an earlier run left under the sandbox's name. */
int helper_run_clean_up(const struct context *context, const struct store_helper_run *sandbox,
                        helper_run_done *done, void *userdata, struct helper_run **ret_run);
/* Returns NULL. The remains of a running helper stay, on record. */
struct helper_run *helper_run_free(struct helper_run *run);

/* The name of its container and directory; "" before it has one. */
const char *helper_run_name(const struct helper_run *run);
