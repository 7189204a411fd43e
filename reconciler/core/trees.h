/* SPDX-License-Identifier: Apache-2.0 */
/* trees.h - the trees of directories that crustd reads: where they are, and what they contain. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "config/config.h"
#include "model/volume.h"

struct context;
struct watchers;

enum { RECONCILER_BUNDLES = 8 };

/* The watchers use the same numbers. Trees from TREE_BUNDLES on are discovered while crustd
 * runs. */
enum reconciler_tree {
    TREE_KATA_VOLUMES,
    TREE_CRUST_VOLUMES,
    TREE_GO_SANDBOXES,
    TREE_GO_VMS,
    TREE_RS_SANDBOXES,
    TREE_BUNDLES,
    TREES = TREE_BUNDLES + RECONCILER_BUNDLES,
};

struct trees {
    const struct context *context;
    char *bundle[RECONCILER_BUNDLES]; /* directories of bundles, below root; NULL after the last */
};

void trees_done(struct trees *trees);

/* Whether the tree holds metadata directories, or directories named after sandboxes; otherwise it
 * holds bundles. */
bool tree_has_volumes(enum reconciler_tree tree);
bool tree_has_sandboxes(enum reconciler_tree tree);

/* NULL: the tree does not exist (yet). */
const char *trees_path(const struct trees *trees, enum reconciler_tree tree);

/* The tree of a layout's metadata directories. */
enum reconciler_tree tree_of_layout(enum volume_layout layout);
enum volume_layout tree_layout(enum reconciler_tree tree);

/* Adds a tree of bundles, in which the containers of a sandbox come and go, if it is a new one. */
void trees_watch_bundles(struct trees *trees, const char *path);

/* ---- watchers ------------------------------------------------------------------------------- */

/* The sources of events (watch/watch.h). A directory or a process is watched before it is read. */
struct reconciler_health;

struct watchers {
    struct watch_directories *directories; /* of the trees, by their numbers */
    struct watch_block *block;
    struct watch_mounts *mounts;
    struct watch_processes *processes;
};

/* For the sweep: compares what causes no events. */
void watchers_check(struct watchers *watchers);
/* Fills ret_health's sources. */
void watchers_report(const struct watchers *watchers, struct reconciler_health *ret_health);
void watchers_done(struct watchers *watchers);
