/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - finds the directories that exist: each tree is read name by name, a few per pass.
 *
 * It also tracks whether there are more directories than the store has room for: those beyond
 * STORE_VOLUMES are skipped, and the sweep tries them again.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>

#include "reconciler/core/trees.h"

struct context;
struct watch_health;

/* The fields are private to the module. */
struct scan {
    const struct context *context;
    const struct trees *trees;
    struct watch_health *watch_health; /* notified of the roots that exist */
    DIR *open[TREES];                  /* trees being read */
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
