/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler.h - the controller core: observes what is queued, decides, acts one step at a time.
 *
 * One pass, at the end of each turn of the loop: a bounded number of queued things is observed, the
 * facts go into the store, each touched volume is decided, everything is committed, and only then
 * acts start. Results of acts come back as facts in a later pass.
 *
 * The reconciler knows no watcher. main.c has the watchers' events call the functions below, and
 * hands in `reconciler_watchers`, by which the reconciler has a watch armed before it reads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"
#include "reconciler/core/watchers.h"

struct instance;
struct store;

struct reconciler_options {
    struct loop *loop;
    struct store *store;
    struct instance *instance;                  /* where the store's file is */
    const struct error *why_in_memory;          /* NULL: the store is that file */
    const struct config *config;                /* copied */
    int root;                                   /* O_PATH of --root, borrowed */
    const struct reconciler_watchers *watchers; /* borrowed */
    /* Called once, from the loop, when the first scan is complete. May be NULL. */
    void (*synced)(void *userdata);
    /* Called from the loop whenever nothing is left to do now (--once, stopping). May be NULL. */
    void (*settled)(void *userdata);
    void *userdata;
};

int reconciler_new(const struct reconciler_options *options, struct reconciler **ret_reconciler,
                   struct error *error);
struct reconciler *reconciler_free(struct reconciler *reconciler);

/* Begins with a scan of everything. The watchers must run by now: watch first, then scan. */
void reconciler_start(struct reconciler *reconciler);

/* Observes everything and forgets what waits: all that failed is tried at once. */
void reconciler_retry_everything(struct reconciler *reconciler);

/* Something may have changed: it is queued, and observed in the next pass. A tree that a watcher
 * wants read as a whole is another one than before. */
void reconciler_queue_directory(struct reconciler *reconciler, enum reconciler_tree tree,
                                const char *name);
void reconciler_queue_tree(struct reconciler *reconciler, enum reconciler_tree tree);
void reconciler_queue_device(struct reconciler *reconciler, uint32_t major, uint32_t minor);
/* A SCSI device, by its path below /sys, reported that its capacity changed. */
void reconciler_queue_announcement(struct reconciler *reconciler, const char *devpath);
void reconciler_queue_all_volumes(struct reconciler *reconciler);
void reconciler_queue_everything(struct reconciler *reconciler);
void reconciler_queue_mounts(struct reconciler *reconciler);
/* The VMM of a sandbox was seen to exit. */
void reconciler_queue_exit(struct reconciler *reconciler, const char *sandbox_id, pid_t pid);

/* Takes over a new configuration (paths stay as they were at start) and observes everything. */
void reconciler_configure(struct reconciler *reconciler, const struct config *config);

/* No new act starts; `settled` is called once those in flight are done and recorded. */
void reconciler_stop(struct reconciler *reconciler);
