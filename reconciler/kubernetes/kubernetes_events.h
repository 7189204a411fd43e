/* SPDX-License-Identifier: Apache-2.0 */
/* kubernetes_events.h - kubernetes.events: rows of the journal as Events in Kubernetes' API.
 *
 * Rows are read after each reconcile pass, once they are committed. Nothing waits for the API
 * server: there is one request at a time, and what cannot be sent for too long is dropped and
 * counted. The journal has everything.
 */
#pragma once

#include <stdint.h>

struct context;
struct kubernetes_events;

/* NULL: out of memory. node: borrowed. */
struct kubernetes_events *kubernetes_events_new(const struct context *context, const char *node);
struct kubernetes_events *kubernetes_events_free(struct kubernetes_events *events); /* NULL */

/* As kubernetes.events says now. At the start: from the row on with which the store was opened. */
void kubernetes_events_start(struct kubernetes_events *events);
void kubernetes_events_configure(struct kubernetes_events *events);
/* The store is a different one. */
void kubernetes_events_begin_anew(struct kubernetes_events *events);

/* Outside a transaction: reads some of what was committed since. */
void kubernetes_events_follow(struct kubernetes_events *events);

/* Since crustd's start. Each event ends as one of these. */
struct kubernetes_events_counts {
    uint64_t sent;
    uint64_t merged;  /* into an equal one, which has their count */
    uint64_t refused; /* by the API server: no right, no such namespace */
    uint64_t dropped; /* not delivered in time, or too many */
};

void kubernetes_events_count(const struct kubernetes_events *events,
                             struct kubernetes_events_counts *ret_counts);
