/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - what every module of the reconciler is handed and none of them owns: the loop, the
 * store, the configuration, and the other modules. */
#pragma once

#include <stdbool.h>

#include "config/config.h"
#include "model/sandbox.h"
#include "model/volume.h"

struct actor;
struct database;
struct devices;
struct distrusted;
struct helpers;
struct loop;
struct monitors;
struct observe_cache;
struct observe_sandbox_paths;
struct observed_publish_path;
struct reconciler_health;
struct scan;
struct store;
struct store_volume;
struct trees;
struct unresolved;
struct watch_health;
struct watchers;
struct work_queue;

/* The pointers stay the same for as long as the reconciler lives. A reload changes what `config`
 * points to. */
struct context {
    struct loop *loop;
    struct store *store;
    const struct config *config;
    int root;                      /* O_PATH of --root */
    int sysfs;                     /* O_PATH of paths.sysfs */
    struct observe_cache *cache;   /* of what the sandboxes' records contain */
    struct distrusted *distrusted; /* facts about sandboxes that crustd does not believe */
    struct work_queue *queue;      /* what to observe and decide again */
    struct helpers *helpers;       /* programs that are brought into guests */
    struct watchers *watchers;
    struct trees *trees;
    struct scan *scan;
    struct unresolved *unresolved;
    struct devices *devices;
    struct actor *actor;
    struct monitors *monitors; /* wanted when a sandbox is gone */
    struct watch_health *watch_health;
    struct database *database;
    bool synced;   /* the first scan is complete; no volume is decided before */
    bool stopping; /* no new action starts */
};

/* ---- node paths ----------------------------------------------------------------------------- */

struct node_lists {
    const char *bundles[CONFIG_LIST_ITEMS], *kubelet[CONFIG_LIST_ITEMS];
};

/* The paths borrow ret_lists. */
void node_sandbox_paths(const struct context *context, struct node_lists *ret_lists,
                        struct observe_sandbox_paths *ret_paths);

/* Observes where a path lies below the kubelet's directories. As observe_publish_path(); whatever
 * it returns, *ret_path is set. */
int node_publish_path(const struct context *context, const char *target_path,
                      struct observed_publish_path *ret_path);

/* The directory of a layout's metadata, and the directory that removed metadata is moved to. */
const char *node_volumes_path(const struct config *config, enum volume_layout layout);
const char *node_trash_path(const struct config *config, enum volume_layout layout);

/* ---- permit --------------------------------------------------------------------------------- */

/* What crustd may do to a volume: the stricter of the configuration and the volume's own policy. */
enum resize_policy resize_policy_of(const struct config *config, const struct store_volume *volume);

/* Why the configuration forbids notifying VMMs of this kind of a new size, a static text; NULL: it
 * is allowed. */
const char *permit_find_forbidding(const struct config *config, enum hypervisor_kind kind);

/* ---- trees ---------------------------------------------------------------------------------- */

/* The trees of directories that crustd reads: where they are, and what they contain. */

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
    char *bundle[RECONCILER_BUNDLES]; /* directories of bundles, below root; NULL: a free place */
    struct tree_user *users;          /* sandboxes with their bundles in one of those */
    bool keeps_open, is_open;
    enum reconciler_tree opened;
    int directory;
};

void trees_done(struct trees *trees);

/* Whether the tree holds metadata directories, or directories named after sandboxes; otherwise it
 * holds bundles. */
bool tree_has_volumes(enum reconciler_tree tree);
bool tree_has_sandboxes(enum reconciler_tree tree);

/* NULL: the tree does not exist (yet). */
const char *trees_path(const struct trees *trees, enum reconciler_tree tree);

/* The tree's directory, which stays open until trees_release(). 0, an enum path_failure or another
 * -errno. */
int trees_open(struct trees *trees, enum reconciler_tree tree, int *ret_directory);
void trees_release(struct trees *trees);

/* In a reconcile pass a tree of which many entries are read is opened once, and released when the
 * pass ends: a descriptor kept for longer would prevent its file system from being unmounted. */
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
