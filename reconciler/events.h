/* SPDX-License-Identifier: Apache-2.0 */
/* events.h - the watchers, whose events reach the core, and what the core asks of them. */
#pragma once

#include "config/config.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/core/watchers.h"

struct reconciler;

struct events {
    struct reconciler_watchers callbacks; /* for struct reconciler_options */
    struct reconciler *reconciler;        /* borrowed */
    struct watch_directories *directories;
    struct watch_block *block;
    struct watch_mounts *mounts;
    struct watch_processes *processes;
    void (*swept)(void *userdata);
    void *userdata;
};

/* swept: called at the end of each sweep of the watchers. The struct must not move afterwards. */
void events_init(struct events *events, void (*swept)(void *userdata), void *userdata);
/* Starts every watcher, for a core that has the callbacks already. 0 or -errno; then as well
 * events_done(). */
int events_start(struct events *events, struct loop *loop, int root, const struct config *config,
                 struct reconciler *reconciler, struct error *error);
/* Also after events_init() alone, and of zeros. */
void events_done(struct events *events);
