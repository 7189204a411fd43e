/* SPDX-License-Identifier: Apache-2.0 */
/* stats_poll.h - asks guests, at a steady pace, how full and how well their file systems are.
 *
 * Each bound volume is asked once in guest.stats_seconds. Its moment within that time follows from
 * its binding's number, so that any number of volumes is spread evenly. One sandbox is asked one
 * question at a time, and the node at most STATS_POLLS; a guest that hangs costs one of these until
 * resize.call_timeout_seconds are over. A guest that did not answer is asked at every second,
 * fourth … 32nd of its moments.
 *
 * What comes of it is recorded in the reconciler's turns, several results in one. Private to
 * reconciler/.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "reconciler/act/slots.h"

enum { STATS_POLLS = 16 };

struct reconciler;
struct stats_question;

struct stats_poll {
    struct loop_timer timer;
    uint64_t polled_ns; /* whose moment came until then has been asked */
    struct marks due;   /* volume ids */
    struct slots lanes;
    struct stats_question *asked;
    struct stats_question *answered; /* to be recorded */
    bool record;                     /* now */
};

/* Time that has passed, in CLOCK_BOOTTIME, and guest.stats_seconds. */
struct stats_span {
    uint64_t from_ns, to_ns, period_ns;
};

/* Whether a binding's moment came within it, of a guest that did not answer so often in a row. */
bool stats_poll_is_moment(const struct stats_span *span, int64_t mapping_id, uint32_t failures);

/* Begins, or goes on by another configuration. */
void stats_poll_start(struct reconciler *reconciler);

/* Forgets all that is under way: ids mean nothing any more, or it is the end. */
void stats_poll_done(struct reconciler *reconciler);

/* In a turn: whether there is something to record, and to do so. 0 or -errno of the store. */
bool stats_poll_is_due(const struct reconciler *reconciler);
int stats_poll_record(struct reconciler *reconciler);
