/* SPDX-License-Identifier: Apache-2.0 */
/* trash.h - what was moved away, from the intent to the end: a row and a directory, step by step.
 *
 * A row of the store says what was to be done, and the disk shows how far it got. trash_advance()
 * compares the two and takes the next step of each, also for rows of an earlier daemon that was
 * killed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"
#include "store/store.h"

struct cleanup;
struct key_queue;

/* Whether the layout has a usable trash; fills the error if not. */
bool trash_is_usable(struct cleanup *cleanup, enum volume_layout layout, struct error *error);

/* Moves what was intended, after the intents have been committed durably: the ids of cleanups, as
 * numbers. trash_advance() then records the results. */
void trash_take(struct cleanup *cleanup, struct key_queue *cleanup_ids);

/* Runs until nothing can be done now; ret_wake_ns: when more is due (CLOCK_BOOTTIME), or
 * UINT64_MAX. -errno of the store: none of it is on record, call again. */
int trash_advance(struct cleanup *cleanup, uint64_t *ret_wake_ns);

/* Outcomes of trash_restore(); the error's text has details. */
enum {
    TRASH_RESTORED,
    TRASH_UNKNOWN, /* there is no such cleanup */
    TRASH_REFUSED, /* it removed nothing, or the files are gone */
    TRASH_TAKEN,   /* another directory exists in the place */
    TRASH_BUSY,    /* not possible now */
};
int trash_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error);
