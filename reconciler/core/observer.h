/* SPDX-License-Identifier: Apache-2.0 */
/* observer.h - observes one directory or sandbox of the node, and records its present state.
 *
 * The directory is watched first and read afterwards, so that a change after the reading causes an
 * event. A reading that failed for want of a local resource (descriptors, memory) says nothing
 * about the object: nothing is recorded, and the object is observed again later. The volumes that
 * an observation affects are queued.
 */
#pragma once

#include "reconciler/core/trees.h"

struct monitors;
struct scan;
struct unresolved;

struct observer {
    const struct context *context;
    const struct reconciler_watchers *watchers;
    struct trees *trees;
    struct scan *scan;
    struct unresolved *unresolved;
    struct monitors *monitors; /* notified when a sandbox is gone */
};

/* All return 0 or -errno of the store, which ends the pass. */

/* entries.c: a metadata directory. */
int observer_observe_entry(const struct observer *observer, enum reconciler_tree tree,
                           const char *name);

/* sandboxes.c: a sandbox, or the bundle of one of its containers, which names the sandbox. */
int observer_observe_sandbox(const struct observer *observer, const char *sandbox_id);
/* Queues the sandboxes of running VMMs that have no row and hold a volume's device open. Returns
 * PROGRESS_MORE as long as there are processes left to read. */
int observer_queue_unrecorded(struct observer *observer);
int observer_observe_bundle(const struct observer *observer, enum reconciler_tree tree,
                            const char *name);
