/* SPDX-License-Identifier: Apache-2.0 */
/* trees.c - see trees.h. */
#include "reconciler/core/trees.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "lib/path.h"
#include "reconciler/command/command.h"
#include "reconciler/core/context.h"
#include "watch/watch.h"

struct tree_user {
    UT_hash_handle hh;
    unsigned bundle; /* index */
    char sandbox_id[];
};

static void forget_user(struct trees *trees, struct tree_user *user)
{
    HASH_DEL(trees->users, user);
    free(user);
}

void trees_done(struct trees *trees)
{
    struct tree_user *user, *next;

    trees_keep_open(trees, false);
    HASH_ITER (hh, trees->users, user, next) {
        forget_user(trees, user);
    }
    for (unsigned i = 0; i < RECONCILER_BUNDLES; i++) {
        free(trees->bundle[i]);
        trees->bundle[i] = NULL;
    }
}

bool tree_has_volumes(enum reconciler_tree tree)
{
    return tree <= TREE_CRUST_VOLUMES;
}

bool tree_has_sandboxes(enum reconciler_tree tree)
{
    return tree > TREE_CRUST_VOLUMES && tree < TREE_BUNDLES;
}

const char *trees_path(const struct trees *trees, enum reconciler_tree tree)
{
    const struct config *config = trees->context->config;

    if (tree >= TREE_BUNDLES)
        return tree < TREES ? trees->bundle[tree - TREE_BUNDLES] : NULL;
    switch ((int)tree) {
    case TREE_KATA_VOLUMES:
        return config->paths.kata_volumes;
    case TREE_CRUST_VOLUMES:
        return config->paths.crust_volumes;
    case TREE_GO_SANDBOXES:
        return config->paths.kata_go_sandboxes;
    case TREE_GO_VMS:
        return config->paths.kata_go_vms;
    default:
        return config->paths.kata_rs_sandboxes;
    }
}

int trees_open(struct trees *trees, enum reconciler_tree tree, int *ret_fd)
{
    if (!trees->root[tree].is_known) {
        trees->root[tree].fd = -1;
        trees->root[tree].outcome = path_open_directory_in_root(
            trees->context->root, trees_path(trees, tree), &trees->root[tree].fd);
        trees->root[tree].is_known = true;
    }
    *ret_fd = trees->root[tree].fd;
    return trees->root[tree].outcome;
}

static void release_tree(struct trees *trees, unsigned tree)
{
    if (trees->root[tree].is_known)
        fd_close(trees->root[tree].fd);
    trees->root[tree].is_known = false;
}

void trees_release(struct trees *trees)
{
    for (unsigned i = 0; i < TREES && !trees->keeps_open; i++)
        release_tree(trees, i);
}

void trees_keep_open(struct trees *trees, bool keeps_open)
{
    trees->keeps_open = keeps_open;
    trees_release(trees);
}

enum reconciler_tree tree_of_layout(enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? TREE_CRUST_VOLUMES : TREE_KATA_VOLUMES;
}

enum volume_layout tree_layout(enum reconciler_tree tree)
{
    return tree == TREE_CRUST_VOLUMES ? LAYOUT_CRUST : LAYOUT_KATA;
}

/* ---- bundles ------------------------------------------------------------------------------- */

static bool add_user(struct trees *trees, unsigned bundle, const char *sandbox_id)
{
    struct tree_user *user = calloc(1, sizeof(*user) + strlen(sandbox_id) + 1);

    if (!user)
        return false;
    user->bundle = bundle;
    strcpy(user->sandbox_id, sandbox_id);
    HASH_ADD_STR(trees->users, sandbox_id, user);
    if (user->hh.tbl)
        return true;
    free(user);
    return false;
}

/* Where the path is kept, or else can be; RECONCILER_BUNDLES: nowhere. */
static unsigned find_bundle(const struct trees *trees, const char *path)
{
    unsigned unused = RECONCILER_BUNDLES;

    for (unsigned i = RECONCILER_BUNDLES; i-- > 0;) {
        if (!trees->bundle[i])
            unused = i;
        else if (strcmp(trees->bundle[i], path) == 0)
            return i;
    }
    return unused;
}

static bool begin_bundle(struct trees *trees, unsigned bundle, const char *path)
{
    unsigned number;
    int r;

    trees->bundle[bundle] = strdup(path);
    if (!trees->bundle[bundle])
        return false;
    r = watch_directories_add_tree(trees->watchers->directories, path, &number);
    if (r == 0 && number == TREE_BUNDLES + bundle)
        return true;
    if (r == 0) {
        watch_directories_remove_tree(trees->watchers->directories, number);
        r = -EEXIST;
    }
    log_warning(NULL, "cannot watch %s: %s", path, strerror(-r));
    free(trees->bundle[bundle]);
    trees->bundle[bundle] = NULL;
    return false;
}

static void end_bundle(struct trees *trees, unsigned bundle)
{
    for (const struct tree_user *user = trees->users; user; user = user->hh.next)
        if (user->bundle == bundle)
            return;
    release_tree(trees, TREE_BUNDLES + bundle); /* another directory's number, next time */
    watch_directories_remove_tree(trees->watchers->directories, TREE_BUNDLES + bundle);
    free(trees->bundle[bundle]);
    trees->bundle[bundle] = NULL;
}

/* Where something is missing for it, the sweep observes its sandboxes. */
void trees_watch_bundles(struct trees *trees, const char *path, const char *sandbox_id)
{
    const struct tree_user *user;
    unsigned bundle = find_bundle(trees, path);

    HASH_FIND_STR(trees->users, sandbox_id, user);
    if (user && user->bundle == bundle)
        return;
    trees_leave_bundles(trees, sandbox_id);
    if (bundle == RECONCILER_BUNDLES ||
        (!trees->bundle[bundle] && !begin_bundle(trees, bundle, path)))
        return;
    if (!add_user(trees, bundle, sandbox_id))
        end_bundle(trees, bundle);
}

void trees_leave_bundles(struct trees *trees, const char *sandbox_id)
{
    struct tree_user *user;
    unsigned bundle;

    HASH_FIND_STR(trees->users, sandbox_id, user);
    if (!user)
        return;
    bundle = user->bundle;
    forget_user(trees, user);
    end_bundle(trees, bundle);
}

/* ---- watchers ------------------------------------------------------------------------------- */

#define UNARMED                                                                                    \
    "directories could not be watched and are only observed by the sweep: raise "                  \
    "fs.inotify.max_user_watches"
#define DOWN                                                                                       \
    "no events from %s: changes are only found by the sweep; raise "                               \
    "fs.inotify.max_user_instances, or the limit of open files"

static void warn_if_down(enum watch_source source, const struct watch_counters *counters)
{
    const char *name = watch_source_name(source);

    if (!counters->up)
        log_warning(&(struct log_ids){.source = name}, DOWN, name);
}

void watchers_check(struct watchers *watchers)
{
    watch_block_check(watchers->block);
    watch_directories_check_roots(watchers->directories);
    watch_directories_observe_unarmed(watchers->directories);
    warn_if_down(WATCH_UEVENT, watch_block_counters(watchers->block));
    warn_if_down(WATCH_INOTIFY, watch_directories_counters(watchers->directories));
    if (watch_directories_unarmed(watchers->directories))
        log_warning(&(struct log_ids){.source = "inotify"}, "%u " UNARMED,
                    watch_directories_unarmed(watchers->directories));
}

static void report_source(struct reconciler_health *health, enum watch_source source,
                          const struct watch_counters *counters)
{
    const char *name = watch_source_name(source);

    health->source[health->sources++] =
        (struct reconciler_source){name, counters->up, counters->events, counters->overflows};
    if (!counters->up) {
        health->degraded = true;
        snprintf(health->problem, sizeof(health->problem), DOWN, name);
    }
}

void watchers_report(const struct watchers *watchers, struct reconciler_health *ret_health)
{
    unsigned unarmed = watch_directories_unarmed(watchers->directories);

    if (unarmed) {
        ret_health->degraded = true;
        snprintf(ret_health->problem, sizeof(ret_health->problem), "%u " UNARMED, unarmed);
    }
    report_source(ret_health, WATCH_INOTIFY, watch_directories_counters(watchers->directories));
    report_source(ret_health, WATCH_UEVENT, watch_block_counters(watchers->block));
    report_source(ret_health, WATCH_MOUNTS, watch_mounts_counters(watchers->mounts));
    report_source(ret_health, WATCH_PROCESS, watch_processes_counters(watchers->processes));
}

void watchers_done(struct watchers *watchers)
{
    watch_processes_free(watchers->processes);
    watch_mounts_free(watchers->mounts);
    watch_block_free(watchers->block);
    watch_directories_free(watchers->directories);
}
