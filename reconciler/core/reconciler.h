/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler.h - the controller core: observes what is queued, decides, acts one step at a time.
 *
 * One pass runs at the end of each iteration of the event loop. It observes a bounded number of
 * queued objects, records the facts, decides each affected volume and commits everything; only then
 * do actions start. Their results come back as facts in a later pass.
 *
 * The reconciler does not depend on watch/. events.c makes the watchers' events call the functions
 * below, and provides `reconciler_watchers`, by which the reconciler arms a watch before it reads.
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
    struct instance *instance;         /* the location of the store's file */
    const struct error *why_in_memory; /* the error of the file; NULL: the store is that file */
    const struct config *config;       /* copied */
    int root;                          /* O_PATH of --root, borrowed */
    const struct reconciler_watchers *watchers; /* borrowed */
    int journal_output;    /* where log.journal writes to, borrowed; 0: nowhere */
    const char *node;      /* the node's name there and in Kubernetes' Events, borrowed */
    bool tells_kubernetes; /* kubernetes.events applies */
    /* Called once, from the loop, when the first scan is complete. May be NULL. */
    void (*synced)(void *userdata);
    /* Called from the loop whenever no work is left (--once, stopping). May be NULL. */
    void (*settled)(void *userdata);
    void *userdata;
};

int reconciler_new(const struct reconciler_options *options, struct reconciler **ret_reconciler,
                   struct error *error);
struct reconciler *reconciler_free(struct reconciler *reconciler);

/* Begins with a scan of everything. The watchers must be running: watch first, then scan. */
void reconciler_start(struct reconciler *reconciler);

/* Observes everything and clears all waiting times, so that every failed step is retried at
 * once. */
void reconciler_retry_everything(struct reconciler *reconciler);

/* Something may have changed: it is queued, and observed in the next pass. reconciler_queue_tree():
 * the whole tree must be read, because its root was replaced or events were lost. */
void reconciler_queue_directory(struct reconciler *reconciler, enum reconciler_tree tree,
                                const char *name);
void reconciler_queue_tree(struct reconciler *reconciler, enum reconciler_tree tree);
void reconciler_queue_device(struct reconciler *reconciler, uint32_t major, uint32_t minor);
/* A SCSI device, given by its path below /sys, reported that its capacity changed. */
void reconciler_queue_announcement(struct reconciler *reconciler, const char *devpath);
void reconciler_queue_all_volumes(struct reconciler *reconciler);
void reconciler_queue_everything(struct reconciler *reconciler);
void reconciler_queue_mounts(struct reconciler *reconciler);
/* The exit of a sandbox's VMM was observed. */
void reconciler_queue_exit(struct reconciler *reconciler, const char *sandbox_id, pid_t pid);

/* Takes over a new configuration (paths keep their values from the start) and observes
 * everything. */
void reconciler_configure(struct reconciler *reconciler, const struct config *config);

/* No new action starts; `settled` is called once those in flight are done and recorded. */
void reconciler_stop(struct reconciler *reconciler);
