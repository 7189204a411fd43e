/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h - the route `helper`: a program brought into a guest for about a second, which grows or
 * counts file systems there.
 *
 * One helper serves all volumes of its sandbox that wait for it, and takes along the others. At
 * most one runs in a sandbox and guest.helpers on the node; growing goes before counting. Counting
 * is done at most once in HELPER_FRESH_NS per sandbox: in between the last answer serves, with its
 * age.
 *
 * What an earlier daemon left behind, on record or by its name in the share of a live sandbox, is
 * removed before the sandbox gets another helper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent-client/agent_messages.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "model/reason.h"

#define HELPER_FRESH_NS (300 * NSEC_PER_SEC)

struct helper_call;
struct helper_sandbox;
struct reconciler;
struct store_volume;

struct helpers {
    struct helper_sandbox *sandboxes; /* by sandbox_ref: who waits, runs, or was read of late */
    unsigned running;
    uint64_t calls; /* ever made: their order */
    struct loop_timer timer;
    struct loop_timer later; /* the next attempt to remove what was left */
    struct loop_timer end;   /* crustd is stopping: then what runs is left, on record */
};

enum helper_purpose { HELPER_GROW, HELPER_COUNT };

struct helper_reply {
    enum volume_reason reason; /* NONE: grown, or counted */
    struct error error;        /* when it is not NONE */
    struct agent_stats stats;  /* has_bytes false: not known */
    uint64_t age_ns;           /* of the stats */
};

/* Exactly one, from the loop and never from within helper_call_new(). The call is no more. */
typedef void helper_done(const struct helper_reply *reply, void *userdata);

/* Whether helpers may be brought into guests at all, by the configuration. */
bool helpers_are_on(const struct reconciler *reconciler);
/* targets.c: whether this route exists for the volume. */
bool helper_is_possible(const struct reconciler *reconciler, const struct store_volume *volume);

/* deadline_ns: how long to wait for a helper to begin, from now; 0: as long as it takes. 0 or
 * -ENOMEM. */
int helper_call_new(struct reconciler *reconciler, const struct store_volume *volume,
                    enum helper_purpose purpose, uint64_t deadline_ns, helper_done *done,
                    void *userdata, struct helper_call **ret_call);
/* Returns NULL. A helper that runs for it goes on. */
struct helper_call *helper_call_free(struct helper_call *call);

/* After the first scan: what an earlier daemon left is looked for and removed. */
void helpers_start(struct reconciler *reconciler);
/* From time to time: forgets what is old. */
void helpers_sweep(struct reconciler *reconciler);
/* crustd is stopping: no further helper begins, and nobody waits for one. What still runs after
 * resize.call_timeout_seconds is left where it is, on record. */
void helpers_stop(struct reconciler *reconciler);
/* No helper runs, and none is about to. */
bool helpers_are_idle(const struct reconciler *reconciler);
/* Ids mean nothing any more, or it is the end. What runs is left where it is, on record. */
void helpers_done(struct reconciler *reconciler);
