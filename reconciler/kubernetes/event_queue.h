/* SPDX-License-Identifier: Apache-2.0 */
/* event_queue.h - events that wait to be sent, and equal ones made one.
 *
 * The first of its kind is sent at once. Equal ones within the next ten minutes are counted, and
 * sent as one event with their count when these are over. Times are clock_boottime()'s, given by
 * the caller.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reconciler/kubernetes/event.h"

enum { EVENT_QUEUE_LENGTH = 256 };

struct queued_event {
    struct event event; /* count 0: it was taken, and only counts its equals */
    uint64_t since_ns;  /* when the first of those that it counts was added */
    uint64_t ready_ns;  /* when it may be taken; with count 0: forgotten */
};

struct event_queue {
    struct queued_event *item[EVENT_QUEUE_LENGTH];
    unsigned count;
    uint64_t merged;  /* events that others were counted into */
    uint64_t dropped; /* to make room, of age, or for want of memory */
};

void event_queue_clear(struct event_queue *queue);

void event_queue_add(struct event_queue *queue, const struct event *event, uint64_t now_ns);

/* Copies the event to be sent now. False: there is none. Drops those that are too old. */
bool event_queue_take(struct event_queue *queue, uint64_t now_ns, struct event *ret_event);

/* When there will be one; UINT64_MAX: not before another is added. */
uint64_t event_queue_when(const struct event_queue *queue);
