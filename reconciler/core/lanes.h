/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - who may act now: one act per sandbox, a bound on all of them together.
 *
 * A lane is a sandbox. A volume that wants to act either gets its lane at once or waits in it; when
 * a slot is free, the next volume to be looked at again is handed out, lanes taking turns. Handed
 * out means only "decide again": things may have changed while it waited.
 *
 * An act that waits for something other than its VMM or guest rests: it keeps its lane and frees
 * its slot.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reconciler/core/marks.h"

struct lane;

struct lanes {
    struct lane *lanes;    /* by sandbox_ref */
    struct marks runnable; /* sandbox_refs whose lane is free and has volumes waiting */
    unsigned busy;         /* lanes in use that do not rest */
    unsigned resting;      /* at most LANES_RESTING */
    unsigned parallel;     /* at most so many acts at once */
};

enum { LANES_RESTING = 64 };

void lanes_init(struct lanes *lanes, unsigned parallel);
void lanes_done(struct lanes *lanes);

/* true: the volume has its lane and must give it back; false: it waits. */
bool lanes_enter(struct lanes *lanes, int64_t sandbox_ref, int64_t volume_id);
/* The same for what goes before all that waits by lanes_enter(), in the same sandbox. */
bool lanes_enter_first(struct lanes *lanes, int64_t sandbox_ref, int64_t volume_id);
/* Its slot is free until lanes_leave(). Where too many rest already, it keeps it. */
void lanes_rest(struct lanes *lanes, int64_t sandbox_ref);
void lanes_leave(struct lanes *lanes, int64_t sandbox_ref);

/* The next volume to decide again, while there is a slot for it. */
bool lanes_next(struct lanes *lanes, int64_t *ret_volume_id);
