/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - which directories there are: each tree is read name by name, a few per pass.
 *
 * It also has the count of what there is no room for: directories beyond STORE_VOLUMES are passed
 * over, and looked for again by the sweep. */
#pragma once

#include <dirent.h>
#include <stdbool.h>

#include "reconciler/core/trees.h"

struct context;
struct visibility;

/* The fields are the module's own. */
struct scan {
    const struct context *context;
    const struct trees *trees;
    struct visibility *visibility; /* is told of the roots that were there */
    DIR *open[TREES];              /* under way */
    bool wanted[TREES];
    bool over_limit;  /* directories were passed over */
    bool passed_over; /* in this scan, or since the last one */
};

void scan_done(struct scan *scan); /* nothing is under way; what is wanted stays wanted */

void scan_want(struct scan *scan, enum reconciler_tree tree);
void scan_want_all(struct scan *scan);
/* The sweep: a VMM may start long after its sandbox's directory, and others may have gone. */
void scan_want_sweep(struct scan *scan);

/* A few names of each tree into the work queue. */
void scan_some(struct scan *scan);
bool scan_is_done(const struct scan *scan);

/* A tree that is being read has it, and will queue it or has done so. */
bool scan_comes_to(const struct scan *scan, const char *sandbox_id);

/* There are too many volumes for one more. */
void scan_pass_over(struct scan *scan);
bool scan_is_over_limit(const struct scan *scan);
