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

struct tree_user;

struct trees {
    const struct context *context;
    const struct watchers *watchers;
    char *bundle[RECONCILER_BUNDLES]; /* directories of bundles, below root; NULL: none */
    struct tree_user *users;          /* which sandbox has its bundles in which of them */
    bool keeps_open;
    struct {
        bool is_known;
        int outcome, fd;
    } root[TREES]; /* open at present */
};

void trees_done(struct trees *trees);

/* Whether the tree holds metadata directories, or directories named after sandboxes; otherwise it
 * holds bundles. */
bool tree_has_volumes(enum reconciler_tree tree);
bool tree_has_sandboxes(enum reconciler_tree tree);

/* NULL: the tree does not exist (yet). */
const char *trees_path(const struct trees *trees, enum reconciler_tree tree);

/* Opens the directory of a tree. Returns what path_open_directory_in_root() returns; the descriptor
 * belongs to the tree and is valid until trees_release(). */
int trees_open(struct trees *trees, enum reconciler_tree tree, int *ret_fd);
void trees_release(struct trees *trees);

/* Within a reconcile pass each tree is opened once, and released when the pass ends: a descriptor
 * kept for longer would prevent its file system from being unmounted. */
void trees_keep_open(struct trees *trees, bool keeps_open);

/* The tree of a layout's metadata directories. */
enum reconciler_tree tree_of_layout(enum volume_layout layout);
enum volume_layout tree_layout(enum reconciler_tree tree);

/* Adds a tree of bundles, in which the containers of a sandbox come and go; and ends it, if no
 * other sandbox has its bundles there. */
void trees_watch_bundles(struct trees *trees, const char *path, const char *sandbox_id);
void trees_leave_bundles(struct trees *trees, const char *sandbox_id);

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
