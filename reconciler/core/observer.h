/* SPDX-License-Identifier: Apache-2.0 */
/* observer.h - one directory or sandbox of the node, as it is now, into the store.
 *
 * Watch first, then read: a change after the reading then causes an event. A reading that failed
 * for a reason of this machine (no descriptors, no memory) teaches nothing, so nothing is written
 * and the thing is observed again later. The volumes that an observation touches are queued.
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
    struct monitors *monitors; /* are told when a sandbox is gone */
};

/* All: 0 or -errno of the store, which ends the pass. */

/* entries.c: a metadata directory. */
int observer_observe_entry(const struct observer *observer, enum reconciler_tree tree,
                           const char *name);

/* sandboxes.c: a sandbox, or the bundle of one of its containers, which names it. */
int observer_observe_sandbox(const struct observer *observer, const char *sandbox_id);
int observer_observe_bundle(const struct observer *observer, enum reconciler_tree tree,
                            const char *name);
