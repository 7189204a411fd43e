/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.h - the calls that wait for helpers, by sandbox, and each sandbox's last answers. Private
 * to reconciler/helper/.
 *
 * waiting.c answers the calls that can be answered, serve.c runs the next helper and processes its
 * result, waiting.c starts and ends the service. Changes only set a timer (helpers_serve_soon());
 * all decisions are made in serve.c, from the loop.
 */
#pragma once

#include "lib/hash.h"
#include "lib/loop.h"
#include "reconciler/helper/helper.h"
#include "reconciler/helper/run.h"
#include "reconciler/helper/share.h"
#include "reconciler/helper/targets.h"

struct helpers {
    const struct context *context;
    struct helper_sandbox
        *sandboxes; /* by sandbox_ref: sandboxes with calls, a helper, or a recent answer */
    unsigned running;
    uint64_t calls; /* number of calls so far, which orders them */
    bool stopping;
    struct loop_timer timer;
    struct loop_timer later; /* the next attempt to remove leftovers */
    struct loop_timer end;   /* after a stop: running helpers are left, on record */
};

struct helper_call {
    struct helper_call *next; /* of its sandbox, oldest first */
    struct helpers *helpers;
    int64_t sandbox_ref, volume_id, binding_id;
    uint64_t device_bytes;
    enum helper_purpose purpose;
    uint64_t number;
    bool served; /* the running helper is for it, too */
    bool expired;
    bool barred; /* by the time it could be served, its volume may no longer use a helper */
    enum volume_reason inability; /* the remembered inability of the sandbox */
    struct loop_timer deadline;
    guest_helper_done *done;
    void *userdata;
};

struct helper_sandbox {
    UT_hash_handle hh;
    struct helpers *helpers;
    int64_t sandbox_ref;
    struct helper_call *calls;
    struct helper_run *run; /* a helper, or a clean-up */
    bool grows;
    struct helper_targets *targets; /* of the run; NULL: it is a clean-up */
    bool searched;                  /* its share was searched for what an earlier daemon left */
    bool alone; /* the last helper failed as a whole: the next one gets one volume only */
    struct helper_known known;
    struct helper_leftovers leftovers;
    uint64_t used_ns;
};

/* waiting.c. NULL: no memory. */
struct helper_sandbox *helper_sandbox_get(struct helpers *helpers, int64_t sandbox_ref);
void helper_sandbox_drop(struct helper_sandbox *sandbox);
/* From within, the caller may call again, or free other calls. */
void helper_call_refuse(struct helper_call *call, enum volume_reason reason, const char *text);
/* Answers the calls that need no further helper. */
void helpers_answer(struct helpers *helpers);
/* The helper that ran for these calls has ended: answers each of them. */
void helper_sandbox_answer_served(struct helper_sandbox *sandbox);

/* serve.c */
void helpers_serve_soon(struct helpers *helpers);
/* Leaves all running helpers in their guests, on record. */
void helpers_abandon(struct helpers *helpers);

/* waiting.c: searches for helpers that may still be in the guest. 0 or -ENOMEM. */
int helper_sandbox_search(struct helper_sandbox *sandbox);
