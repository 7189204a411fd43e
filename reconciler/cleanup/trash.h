/* SPDX-License-Identifier: Apache-2.0 */
/* trash.h - what was moved away, from its intent to its end: a row and a directory, step by step.
 *
 * A row of the store says what was to be done, the disk how far it came. trash_advance() compares
 * the two and takes the next step of each, whoever began it: the daemon of a moment ago, or one
 * that was killed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"
#include "store/store.h"

struct cleanup;
struct key_queue;

/* Whether there is a trash for this layout; fills the error where there is none. */
bool trash_is_usable(struct cleanup *cleanup, enum volume_layout layout, struct error *error);

/* Moves what was intended, whose intents are committed durably: the ids of cleanups, as numbers.
 * trash_advance() then says what came of it. */
void trash_take(struct cleanup *cleanup, struct key_queue *cleanup_ids);

/* Until nothing is left to be done now; ret_wake_ns: when there will be (CLOCK_BOOTTIME), or
 * UINT64_MAX. -errno of the store: nothing of it is on the record, do it again. */
int trash_advance(struct cleanup *cleanup, uint64_t *ret_wake_ns);

/* Outcomes of trash_restore(); the error's text says more. */
enum {
    TRASH_RESTORED,
    TRASH_UNKNOWN, /* there is no such cleanup */
    TRASH_REFUSED, /* it removed nothing, or the bytes are gone */
    TRASH_TAKEN,   /* the place has another directory by now */
    TRASH_BUSY,    /* not now */
};
int trash_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error);
