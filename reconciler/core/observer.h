/* SPDX-License-Identifier: Apache-2.0 */
/* observer.h - finds the directories and sandboxes of the node, observes one of them, and records
 * its present state.
 *
 * The directory is watched first and read afterwards, so that a change after the reading causes an
 * event. A reading that failed for want of a local resource (descriptors, memory) says nothing
 * about the object: nothing is recorded, and the object is observed again later. The volumes that
 * an observation affects are queued.
 */
#pragma once

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>

#include "config/config.h"
#include "reconciler/core/context.h"

struct observed_sandbox;
struct publish_walk;

/* All return 0 or -errno of the store, which ends the pass. */

/* A metadata directory. */
int observer_observe_entry(const struct context *context, enum reconciler_tree tree,
                           const char *name);

/* The raw block claims that a sandbox has by its containers' bundles, and the end of those that no
 * sandbox has any more. */
int observer_put_block_claims(const struct context *context,
                              const struct observed_sandbox *observed);
int observer_end_block_claims(const struct context *context);

/* sandbox_pass.c: a sandbox, or the bundle of one of its containers, which names the sandbox. */
int observer_observe_sandbox(const struct context *context, const char *sandbox_id);
/* Queues the sandboxes of running VMMs that have no row and hold a volume's device open. Returns
 * PROGRESS_MORE as long as there are processes left to read. */
int observer_queue_unrecorded(struct context *context);
int observer_observe_bundle(const struct context *context, enum reconciler_tree tree,
                            const char *name);

/* ---- scan ----------------------------------------------------------------------------------- */

/* Finds the directories that exist: each tree is read name by name, a few per pass.
 *
 * It also tracks whether there are more directories than the store has room for: those beyond
 * STORE_VOLUMES are skipped, and the sweep tries them again.
 */
struct scan {
    const struct context *context;
    DIR *open[TREES]; /* trees being read */
    bool wanted[TREES];
    bool over_limit;  /* directories were skipped */
    bool passed_over; /* during this scan, or since the last one */
};

void scan_done(struct scan *scan); /* closes what is open; trees that are wanted stay wanted */

void scan_want(struct scan *scan, enum reconciler_tree tree);
void scan_want_all(struct scan *scan);
/* For the sweep: a VMM may start long after its sandbox's directory was made, and skipped
 * directories may fit now. */
void scan_want_sweep(struct scan *scan);

/* Adds a few names of each tree to the work queue. */
void scan_some(struct scan *scan);
bool scan_is_done(const struct scan *scan);

/* The store is full: directories were skipped. */
bool scan_is_over_limit(const struct scan *scan);

/* ---- unresolved names ----------------------------------------------------------------------- */

/* Searches for the paths whose hashes are directory names. */
struct unresolved {
    const struct context *context;
    bool wanted;               /* search again from the beginning */
    struct publish_walk *walk; /* the walk in progress */
    bool in_claims;            /* then the claims, page by page: */
    char after[PATH_MAX];
    const char *kubelet[CONFIG_LIST_ITEMS]; /* borrowed by the walk */
};

void unresolved_done(struct unresolved *unresolved);
bool unresolved_is_idle(const struct unresolved *unresolved);

/* One step of the search through all candidates, which is made if it is wanted and a name is still
 * unresolved by then. 1: there was something to do, 0: nothing; -errno of the store, or -ENOMEM. */
int unresolved_search(struct unresolved *unresolved);

/* Offer a path that has just become known. source: where, in the journal's words: layout, kubelet,
 * bundle, api; static. 0 or -errno of the store. */
int unresolved_offer(const struct context *context, const char *target_path, const char *source);
int unresolved_offer_claims(const struct context *context, const struct observed_sandbox *observed);

/* ---- distrusted sandboxes ------------------------------------------------------------------- */

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
