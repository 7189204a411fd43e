/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler_internal.h - the reconciler and its modules, wired together, and its clients.
 * Private to reconciler/. */
#pragma once

#include "config/config.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/command/clients.h"
#include "reconciler/core/context.h"
#include "reconciler/core/database.h"
#include "reconciler/core/journal_lines.h"
#include "reconciler/core/lower_devices.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/reconciler.h"
#include "reconciler/core/volume_pass.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"
#include "watch/watch.h"

struct drives;
struct kubernetes_events;

struct reconciler {
    struct context context; /* handed to all modules */
    struct config config;
    void (*on_synced)(void *userdata);
    void (*on_swept)(void *userdata);
    void (*settled)(void *userdata);
    void *userdata;

    struct work_queue queue;
    struct watchers watchers;
    struct trees trees;
    struct scan scan;
    struct unresolved unresolved;
    struct devices devices;
    struct cleanup cleanup;
    struct monitors monitors;
    struct database database;
    struct journal_lines journal_lines;

    struct expansion *expansions; /* clients that wait for a resize */
    struct stats_call *stats;     /* for a guest */
    struct stagings stagings;     /* for their metadata to be recorded */
    struct stats_poll stats_poll;
    struct examination examination;
    struct drives *drives;
    struct kubernetes_events *kubernetes_events;
    bool tells_kubernetes; /* the configuration decides; false: it is not asked */

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
