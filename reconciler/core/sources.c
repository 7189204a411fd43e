/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c - the watched roots, the senses, the kubelet's root. */
#include "reconciler/core/sources.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/kubelet.h"
#include "reconciler/core/internal.h"

static void note_root(struct sources *sources, enum reconciler_tree tree, const struct stat *st)
{
    if (sources->root[tree].seen &&
        (sources->root[tree].device != st->st_dev || sources->root[tree].inode != st->st_ino))
        sources_disturb(sources);
    sources->root[tree].seen = true;
    sources->root[tree].device = st->st_dev;
    sources->root[tree].inode = st->st_ino;
}

void sources_note_root(struct sources *sources, enum reconciler_tree tree, int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0)
        note_root(sources, tree, &st);
}

/* 0 there, 1 not there (and never was), or a problem is noted. */
static bool check_root(struct reconciler *reconciler, enum reconciler_tree tree)
{
    struct sources *sources = &reconciler->cleanup.sources;
    const char *path = look_path(reconciler, tree);
    struct stat st;
    int r = path_stat_in_root(reconciler->root, path, &st);

    if (r == -ENOENT && !sources->root[tree].seen)
        return true;
    if (r < 0) {
        (void)snprintf(sources->problem, sizeof(sources->problem), "%s: %s", path,
                       r == -ENOENT ? "was there, and is gone" : strerror(-r));
        return false;
    }
    note_root(sources, tree, &st);
    return true;
}

static bool check_senses(struct reconciler *reconciler)
{
    struct sources *sources = &reconciler->cleanup.sources;
    struct reconciler_health health = {0};

    reconciler->senses->report(reconciler->userdata, &health);
    for (unsigned i = 0; i < health.sources; i++)
        if (!health.source[i].up) {
            (void)snprintf(sources->problem, sizeof(sources->problem), "no events from %s",
                           health.source[i].name);
            return false;
        }
    return true;
}

/* That it is not there now is what each volume below it is told by; that it was is noted here. */
static void check_kubelet(struct reconciler *reconciler, unsigned number)
{
    struct sources *sources = &reconciler->cleanup.sources;
    const char *path = reconciler->config.paths.kubelet.item[number];
    struct observed_kubelet kubelet;
    bool seen = observe_kubelet(reconciler->root, path, "", "", &kubelet) == 0 && kubelet.canary[0];

    if (seen != sources->kubelet_seen[number])
        sources_disturb(sources);
    sources->kubelet_seen[number] = seen;
    if (seen && !sources->kubelet[number])
        sources->kubelet[number] = kubelet.device;
}

void sources_check(struct reconciler *reconciler)
{
    struct sources *sources = &reconciler->cleanup.sources;
    char before[sizeof(sources->problem)];
    bool well;

    memcpy(before, sources->problem, sizeof(before));
    sources->problem[0] = '\0';
    well = check_senses(reconciler);
    for (enum reconciler_tree tree = 0; tree < TREE_BUNDLES; tree++)
        well = check_root(reconciler, tree) && well;
    for (unsigned i = 0; i < reconciler->config.paths.kubelet.count; i++)
        check_kubelet(reconciler, i);
    if (!well)
        sources_disturb(sources);
    else if (!sources->well_since_ns)
        sources->well_since_ns = clock_boottime();
    if (strcmp(before, sources->problem) != 0 && sources->problem[0])
        log_warning(NULL, "nothing stale is removed for now: %s", sources->problem);
}

void sources_disturb(struct sources *sources)
{
    sources->well_since_ns = 0;
}
