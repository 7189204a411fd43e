/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler.h - the controller core: observes what is queued, decides, acts one step at a time.
 *
 * One pass runs at the end of each iteration of the event loop. It observes a bounded number of
 * queued objects, records the facts, decides each affected volume and commits everything; only then
 * do actions start. Their results come back as facts in a later pass.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"
#include "reconciler/core/trees.h"

struct instance;
struct store;

struct reconciler_options {
    struct loop *loop;
    struct store *store;
    struct instance *instance;         /* the location of the store's file */
    const struct error *why_in_memory; /* the error of the file; NULL: the store is that file */
    const struct config *config;       /* copied */
    int root;                          /* O_PATH of --root, borrowed */
    int journal_output;                /* where log.journal writes to, borrowed; 0: nowhere */
    const char *node;      /* the node's name there and in Kubernetes' Events, borrowed */
    bool tells_kubernetes; /* kubernetes.events applies */
    /* Called once, from the loop, when the first scan is complete. May be NULL. */
    void (*synced)(void *userdata);
    /* Called from the loop at the end of each sweep of the watchers. May be NULL. */
    void (*swept)(void *userdata);
    /* Called from the loop whenever no work is left (--once, stopping). May be NULL. */
    void (*settled)(void *userdata);
    /* Called when the database's file fails with this failure, or, with STORE_OPENED, when it is
     * good again: the process is to be executed anew. */
    void (*restart)(void *userdata, int failure, const char *why);
    void *userdata;
};

int reconciler_new(const struct reconciler_options *options, struct reconciler **ret_reconciler,
                   struct error *error);
struct reconciler *reconciler_free(struct reconciler *reconciler);

/* Starts the watchers: before the first scan, so that nothing is missed. 0 or -errno. */
int reconciler_watch(struct reconciler *reconciler, struct error *error);
/* Begins with a scan of everything. */
void reconciler_start(struct reconciler *reconciler);

/* Observes everything and clears all waiting times, so that every failed step is retried at
 * once. */
void reconciler_retry_everything(struct reconciler *reconciler);

/* Takes over a new configuration (paths keep their values from the start) and observes
 * everything. */
void reconciler_configure(struct reconciler *reconciler, const struct config *config);

/* No new action starts; `settled` is called once those in flight are done and recorded. */
void reconciler_stop(struct reconciler *reconciler);
