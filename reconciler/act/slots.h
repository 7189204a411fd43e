/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h - which volumes may act now: one act per sandbox, and a bound on all of them together.
 *
 * A volume that wants to act either gets its sandbox's slot at once or waits for it. When a slot is
 * free, the next volume is handed out, sandboxes taking turns. A volume that is handed out is
 * decided again, because things may have changed while it waited.
 *
 * An act that waits for something other than its VMM or guest rests: its sandbox stays taken, and
 * another sandbox may act in its place.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reconciler/core/work_queue.h"

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

/* true: the volume has its sandbox's slot and must give it back; false: it waits. */
bool slots_enter(struct slots *slots, int64_t sandbox_ref, int64_t volume_id);
/* The same, but ahead of all that wait by slots_enter() in the same sandbox. */
bool slots_enter_first(struct slots *slots, int64_t sandbox_ref, int64_t volume_id);
/* Another sandbox may act until slots_leave(). Where too many rest already, none may. */
void slots_rest(struct slots *slots, int64_t sandbox_ref);
void slots_leave(struct slots *slots, int64_t sandbox_ref);

/* The next volume to decide again, while there is a slot for it. */
bool slots_next(struct slots *slots, int64_t *ret_volume_id);
/* Whether slots_next() could have one. */
bool slots_have_next(const struct slots *slots);
/* Whether waiting volumes were lost for lack of memory since the last call. */
bool slots_take_loss(struct slots *slots);
