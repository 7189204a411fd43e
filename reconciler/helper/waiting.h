/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.h - the calls that wait for helpers, by sandbox, and each sandbox's last answers. Private
 * to reconciler/helper/.
 *
 * waiting.c answers the calls that can be answered, serve.c runs the next helper and takes in its
 * result, helper.c begins and ends all of it. Changes only set a timer (helpers_serve_soon()); all
 * decisions are made in serve.c, from the loop.
 */
#pragma once

#include "lib/hash.h"
#include "lib/loop.h"
#include "reconciler/helper/helper.h"
#include "reconciler/helper/known.h"
#include "reconciler/helper/leftovers.h"
#include "reconciler/helper/run.h"
#include "reconciler/helper/targets.h"

struct helpers {
    const struct context *context;
    struct helper_sandbox
        *sandboxes; /* by sandbox_ref: sandboxes with calls, a helper, or a recent answer */
    unsigned running;
    uint64_t calls; /* ever made: their order */
    bool stopping;
    struct loop_timer timer;
    struct loop_timer later; /* the next attempt to remove what was left */
    struct loop_timer end;   /* crustd is stopping: then what runs is left, on record */
};

struct helper_call {
    struct helper_call *next; /* of its sandbox, oldest first */
    struct helpers *helpers;
    int64_t sandbox_ref, volume_id, binding_id;
    uint64_t device_bytes;
    enum helper_purpose purpose;
    uint64_t number;
    bool served; /* the helper that runs is for it, too */
    bool expired;
    bool barred; /* by the time of its turn, no helper may be used for its volume */
    enum volume_reason inability; /* what the sandbox is remembered for */
    struct loop_timer deadline;
    guest_helper_done *done;
    void *userdata;
};

struct helper_sandbox {
    UT_hash_handle hh;
    struct helpers *helpers;
    int64_t sandbox_ref;
    struct helper_call *calls;
    struct helper_run *run; /* a helper, or the removal of one */
    bool grows;
    struct helper_targets *targets; /* of the run; NULL: it is no helper's */
    bool searched;                  /* its share, for what an earlier daemon left */
    bool alone; /* the last helper failed as a whole: the next is given one volume */
    struct helper_known known;
    struct helper_leftovers leftovers;
    uint64_t used_ns;
};

/* waiting.c. NULL: no memory. */
struct helper_sandbox *helper_sandbox_get(struct helpers *helpers, int64_t sandbox_ref);
void helper_sandbox_drop(struct helper_sandbox *sandbox);
/* The callers may ask again, or free other calls, from within. */
void helper_call_refuse(struct helper_call *call, enum volume_reason reason, const char *text);
/* Answers the calls that need no further helper. */
void helpers_answer(struct helpers *helpers);
/* The helper that ran for these calls has ended: gives each its answer. */
void helper_sandbox_answer_served(struct helper_sandbox *sandbox);

/* serve.c */
void helpers_serve_soon(struct helpers *helpers);
/* Leaves all running helpers where they are, on record. */
void helpers_abandon(struct helpers *helpers);

/* helper.c: a name that may still be in the guest. 0 or -ENOMEM. */
int helper_sandbox_search(struct helper_sandbox *sandbox);
