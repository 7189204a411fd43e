/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler_internal.h - the controller core: observes what is queued, decides, acts one step at a
 * time. Private to reconciler/.
 *
 * One pass runs at the end of each iteration of the event loop. It observes a bounded number of
 * queued objects, records the facts, decides each affected volume and commits everything; only then
 * do actions start. Their results come back as facts in a later pass.
 */
#pragma once

#include "config/config.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/command/clients.h"
#include "reconciler/core/context.h"
#include "reconciler/core/database.h"
#include "reconciler/core/lower_devices.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/volume_pass.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"
#include "watch/watch.h"

struct drives;
struct kubernetes_events;

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

struct reconciler {
    struct context context; /* handed to all modules */
    struct config config;
    struct reconciler_options options; /* its configuration is the one above */
    struct work_queue queue;
    struct watchers watchers;
    struct trees trees;
    struct scan scan;
    struct unresolved unresolved;
    struct devices devices;
    struct cleanup cleanup;
    struct database database;
    struct journal_lines journal_lines;

    struct expansion *expansions; /* clients that wait for a resize */
    struct stats_call *stats;     /* for a guest */
    struct stagings stagings;     /* for their metadata to be recorded */
    struct stats_poll stats_poll;
    struct examination examination;
    struct drives *drives;
    struct kubernetes_events *kubernetes_events;

    struct loop_prepare pass;
    uint64_t pass_began_ns;
    struct loop_timer attempt; /* when the next attempt of any volume is due */
    struct loop_timer sweep;
    bool seeks_vmms;         /* VMMs that have no row are still to be looked for */
    unsigned sweeps_put_off; /* since the last one */
    unsigned turn;           /* of the slow round that asks all VMMs again */
    struct loop_timer idle;
    struct loop_timer trim;
    uint64_t attempts_queued_ns; /* volumes whose attempts were due by then have been queued */
};

/* reconciler.c */
void reconciler_on_prepare(struct loop_prepare *prepare);
void reconciler_on_sweep(struct loop_timer *timer);
void reconciler_queue_everything(struct reconciler *reconciler);

/* wiring.c */
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
