/* SPDX-License-Identifier: Apache-2.0 */
/* actor.h - the actor: carries out what was decided, one act per sandbox, a bounded number at once.
 *
 *   decided in a pass → committed with its intent → started → answered → recorded in a later pass
 *
 * An act is one step on a VMM, a guest or a disk of the host. It holds its sandbox's slot all that
 * time. It changes no record itself: its result is a fact for the next pass. Every act may be
 * repeated safely, so a kill at any moment costs only the repetition.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reconciler/core/work_queue.h"
#include "reconciler/decide/decide.h"

struct actor;
struct context;
struct store_volume;

struct actor *actor_new(const struct context *context); /* borrowed. NULL: no memory */
struct actor *actor_free(struct actor *actor);          /* returns NULL */

/* How many may act at once, from now on. */
void actor_set_parallel(struct actor *actor, unsigned parallel);

/* ---- within a pass: 0 or -errno of the store, which ends the pass ---- */

/* Records results and frees slots. If the pass is rolled back, the results are lost and the acts
 * repeated. */
int actor_record(struct actor *actor);
/* The volume acts, or waits for its sandbox's slot; nothing happens if it acts already. The intent
 * goes on record, and the act starts after the commit. */
int actor_decide(struct actor *actor, const struct store_volume *volume, enum decide_action action);
/* Whether a lower disk of the volume may be rescanned now. */
int actor_may_rescan(const struct actor *actor, const struct store_volume *volume, bool *ret_may);
/* A volume that waited, to be decided again. false: there is none, or no slot for it. */
bool actor_next_volume(struct actor *actor, int64_t *ret_volume_id);
/* Another action was decided for the volume, in the same pass: an act of it that has not started
 * never will. */
void actor_withdraw(struct actor *actor, int64_t volume_id, enum decide_action action);
/* Ends an act for a binding that the volume no longer has, which could only delay it. */
void actor_cancel_stale(struct actor *actor, const struct store_volume *volume);

/* ---- after it ---- */

void actor_start(struct actor *actor); /* the pass was committed */
void actor_drop(struct actor *actor);  /* it was rolled back */

/* ---- at any time ---- */

/* Decided or running, and not answered yet. */
bool actor_is_acting(const struct actor *actor, int64_t volume_id);
unsigned actor_count(const struct actor *actor); /* of those */
bool actor_has_results(const struct actor *actor);
bool actor_has_next_volume(const struct actor *actor);
/* Waiting volumes were lost for lack of memory: all volumes have to be decided again. Reported
 * once. */
bool actor_take_loss(struct actor *actor);

/* The pause until the next attempt after so many failures in a row, chosen at random. */
uint64_t actor_backoff(uint32_t failures);

/* ---- slots ---------------------------------------------------------------------------------- */

/* Which volumes may act now: one act per sandbox, and a bound on all of them together.
 *
 * A volume that wants to act either gets its sandbox's slot at once or waits for it. When a slot is
 * free, the next volume is handed out, sandboxes taking turns. A volume that is handed out is
 * decided again, because things may have changed while it waited.
 *
 * An act rests while it waits for something other than its VMM or guest: its sandbox stays taken,
 * and another sandbox may act in its place.
 */

struct sandbox_slot;

struct slots {
    struct sandbox_slot *sandboxes; /* by sandbox_ref: taken, or waited for */
    struct key_queue runnable;      /* sandbox_refs that are free and have volumes waiting */
    unsigned busy;                  /* sandboxes that are taken and do not rest */
    unsigned resting;               /* at most SLOTS_RESTING */
    unsigned parallel;              /* at most so many acts at once */
};

enum { SLOTS_RESTING = 64 };

void slots_init(struct slots *slots, unsigned parallel);
/* Forgets all that wait or act; `parallel` stays. */
void slots_done(struct slots *slots);

/* true: the volume has its sandbox's slot and must give it back; false: it waits. is_first: ahead
 * of those in the same sandbox that are not. */
bool slots_enter(struct slots *slots, int64_t sandbox_ref, int64_t volume_id, bool is_first);
/* Another sandbox may act meanwhile, but this one stays taken until slots_leave(). Not beyond
 * SLOTS_RESTING of them. */
void slots_rest(struct slots *slots, int64_t sandbox_ref);
void slots_leave(struct slots *slots, int64_t sandbox_ref);

/* The next volume to decide again, while there is a slot for it. */
bool slots_next(struct slots *slots, int64_t *ret_volume_id);
/* Whether slots_next() could have one. */
bool slots_have_next(const struct slots *slots);
/* Whether waiting volumes were lost for lack of memory since the last call. */
bool slots_take_loss(struct slots *slots);
