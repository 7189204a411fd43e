/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - what all modules of the reconciler are given, and none of them owns. */
#pragma once

#include <stdbool.h>

struct config;
struct doubts;
struct loop;
struct observe_cache;
struct store;
struct work_queue;

/* The pointers stay the same for as long as the reconciler lives. A reload changes what `config`
 * points to, and a database that fails or comes back changes what `store` is open on. */
struct context {
    struct loop *loop;
    struct store *store;
    const struct config *config;
    int root;                    /* O_PATH of --root */
    int sysfs;                   /* O_PATH of paths.sysfs */
    struct observe_cache *cache; /* of what sandboxes' records said */
    struct doubts *doubts;       /* what of sandboxes is not believed */
    struct work_queue *queue;    /* what to observe and to decide again */
    bool synced;                 /* the first scan is complete; nothing is decided before */
    bool stopping;               /* no new step starts */
};
