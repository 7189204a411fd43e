/* SPDX-License-Identifier: Apache-2.0 */
/* trees.c - see trees.h. */
#include "reconciler/core/trees.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/path.h"
#include "reconciler/command/command.h"
#include "reconciler/core/context.h"
#include "watch/watch.h"

void trees_done(struct trees *trees)
{
    for (unsigned i = 0; i < RECONCILER_BUNDLES; i++)
        free(trees->bundle[i]);
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

enum reconciler_tree tree_of_layout(enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? TREE_CRUST_VOLUMES : TREE_KATA_VOLUMES;
}

enum volume_layout tree_layout(enum reconciler_tree tree)
{
    return tree == TREE_CRUST_VOLUMES ? LAYOUT_CRUST : LAYOUT_KATA;
}

/* ---- bundles ------------------------------------------------------------------------------- */

/* Where something is missing for it, the sweep observes its sandboxes. A place of bundles stays:
 * the next sandbox of its engine has its bundles there. */
void trees_watch_bundles(struct trees *trees, const char *path)
{
    unsigned i = 0, number = 0;
    int r;

    while (i < RECONCILER_BUNDLES && trees->bundle[i] && strcmp(trees->bundle[i], path) != 0)
        i++;
    if (i == RECONCILER_BUNDLES || trees->bundle[i])
        return;
    trees->bundle[i] = strdup(path);
    if (!trees->bundle[i])
        return;
    r = watch_directories_add_tree(trees->context->watchers->directories, path, &number);
    assert(r < 0 || number == TREE_BUNDLES + i);
    if (r == 0)
        return;
    log_warning(NULL, "cannot watch %s: %s", path, strerror(-r));
    free(trees->bundle[i]);
    trees->bundle[i] = NULL;
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
