/* SPDX-License-Identifier: Apache-2.0 */
/* trees.h - the trees of directories that are read: where they are, and what they hold. */
#pragma once

#include <stdbool.h>

#include "config/config.h"
#include "model/volume.h"

struct context;
struct reconciler_watchers;

enum { RECONCILER_BUNDLES = 8 };

/* The watchers number theirs alike. Those from TREE_BUNDLES on are found while crustd runs. */
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
    const struct reconciler_watchers *watchers;
    unsigned bundles;
    char *bundle[RECONCILER_BUNDLES]; /* directories of bundles, below root */
    bool keeps_open;
    struct {
        bool is_known;
        int outcome, fd;
    } root[TREES]; /* what is open now */
};

void trees_done(struct trees *trees);

/* Whether it holds metadata directories, or directories named by sandboxes; else bundles. */
bool tree_has_volumes(enum reconciler_tree tree);
bool tree_has_sandboxes(enum reconciler_tree tree);

/* NULL: there is no such tree (yet). */
const char *trees_path(const struct trees *trees, enum reconciler_tree tree);

/* The directory of a tree, for as long as trees_release() has not been called: what
 * path_open_directory_in_root() returns, and a descriptor that stays the tree's. */
int trees_open(struct trees *trees, enum reconciler_tree tree, int *ret_fd);
void trees_release(struct trees *trees);

/* Within a reconcile pass each is opened once, and released when the pass ends: kept for longer it
 * would keep its file system from being unmounted. */
void trees_keep_open(struct trees *trees, bool keeps_open);

/* Where a layout's directories stand. */
enum reconciler_tree tree_of_layout(enum volume_layout layout);
enum volume_layout tree_layout(enum reconciler_tree tree);

/* One more tree of bundles, where the containers of a sandbox come and go. */
void trees_watch_bundles(struct trees *trees, const char *path);
