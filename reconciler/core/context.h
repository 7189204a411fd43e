/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - what every module of the reconciler is handed and none of them owns. */
#pragma once

#include <stdbool.h>

struct config;
struct doubts;
struct helpers;
struct loop;
struct observe_cache;
struct store;
struct work_queue;

/* The pointers stay the same for as long as the reconciler lives. A reload changes what `config`
 * points to, and a database that fails or comes back changes which database `store` has open. */
struct context {
    struct loop *loop;
    struct store *store;
    const struct config *config;
    int root;                    /* O_PATH of --root */
    int sysfs;                   /* O_PATH of paths.sysfs */
    struct observe_cache *cache; /* of what the sandboxes' records contain */
    struct doubts *doubts;       /* facts about sandboxes that crustd does not believe */
    struct work_queue *queue;    /* what to observe and decide again */
    struct helpers *helpers;     /* told of what a helper for a drive has left behind */
    bool synced;                 /* the first scan is complete; no volume is decided before */
    bool stopping;               /* no new action starts */
};
