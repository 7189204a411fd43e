/* SPDX-License-Identifier: Apache-2.0 */
/* stats_poll.h - asks guests, at a steady pace, for usage and condition of their file systems.
 *
 * Each bound volume is asked once in guest.stats_seconds. When follows from its binding's number,
 * so that the questions are spread evenly. One sandbox is asked one question at a time, and the
 * node at most STATS_POLLS; a guest that hangs costs one of these until resize.call_timeout_seconds
 * are over. A guest that did not answer is asked at every second, fourth … 32nd of its moments.
 *
 * Results are recorded in reconcile passes, several in one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { STATS_POLLS = 16 };

struct clients;
struct context;
struct stats_poll;

/* Time that has passed, in CLOCK_BOOTTIME, and guest.stats_seconds. */
struct stats_span {
    uint64_t from_ns, to_ns, period_ns;
};

/* Whether a binding's moment came within it, of a guest that did not answer so often in a row. */
bool stats_poll_is_moment(const struct stats_span *span, int64_t binding_id, uint32_t failures);

struct stats_poll *stats_poll_new(const struct context *context, struct clients *clients);
struct stats_poll *stats_poll_free(struct stats_poll *poll); /* returns NULL */

/* The first scan is complete: guests may be asked from now on. */
void stats_poll_begin(struct stats_poll *poll);
/* Begins, or continues with another configuration. */
void stats_poll_start(struct stats_poll *poll);
/* crustd is stopping: no more questions. */
void stats_poll_stop(struct stats_poll *poll);
/* Forgets all questions under way, because ids have lost their meaning, until stats_poll_begin().
 */
void stats_poll_reset(struct stats_poll *poll);

/* In a pass: whether there is something to record, and to do so. 0 or -errno of the store. */
bool stats_poll_is_due(const struct stats_poll *poll);
int stats_poll_record(struct stats_poll *poll);
