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
struct observed_sandbox;
struct scan;
struct unresolved;

struct observer {
    const struct context *context;
    const struct watchers *watchers;
    struct trees *trees;
    struct scan *scan;
    struct unresolved *unresolved;
    struct monitors *monitors; /* notified when a sandbox is gone */
};

/* All return 0 or -errno of the store, which ends the pass. */

/* A metadata directory. */
int observer_observe_entry(const struct observer *observer, enum reconciler_tree tree,
                           const char *name);

/* The raw block claims that a sandbox has by its containers' bundles, and the end of those that no
 * sandbox has any more. */
int observer_put_block_claims(const struct observer *observer,
                              const struct observed_sandbox *observed);
int observer_end_block_claims(const struct observer *observer);

/* sandbox_pass.c: a sandbox, or the bundle of one of its containers, which names the sandbox. */
int observer_observe_sandbox(const struct observer *observer, const char *sandbox_id);
/* Queues the sandboxes of running VMMs that have no row and hold a volume's device open. Returns
 * PROGRESS_MORE as long as there are processes left to read. */
int observer_queue_unrecorded(struct observer *observer);
int observer_observe_bundle(const struct observer *observer, enum reconciler_tree tree,
                            const char *name);

/* ---- distrusted sandboxes -------------------------------------------------------------------- */

/* Sandboxes for which something on the node makes a claim that crustd does not believe,
 * with the claim: logged once, and shown to the doctor while it lasts. */

struct distrusted;

int distrusted_new(struct distrusted **ret_distrusted);
struct distrusted *distrusted_free(struct distrusted *distrusted);

/* Sets the present doubt about the sandbox; NULL: none. Logs it if it is new. */
void distrusted_note(struct distrusted *distrusted, const char *sandbox_id, const char *text);

/* Calls back for each of them. */
void distrusted_each(const struct distrusted *distrusted,
                     void (*callback)(void *userdata, const char *sandbox_id, const char *text),
                     void *userdata);
