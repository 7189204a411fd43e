/* SPDX-License-Identifier: Apache-2.0 */
/* watch_health.c - checks the watched roots, the watchers, and the kubelet's root. */
#include "reconciler/cleanup/cleaner.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/command/command.h"
#include "reconciler/core/context.h"
#include "store/sandboxes.h"

void watch_health_note_root(struct watch_health *watch_health, enum reconciler_tree tree,
                            const struct stat *st)
{
    if (watch_health->root[tree].seen && (watch_health->root[tree].device != st->st_dev ||
                                          watch_health->root[tree].inode != st->st_ino))
        watch_health_disturb(watch_health);
    watch_health->root[tree].seen = true;
    watch_health->root[tree].device = st->st_dev;
    watch_health->root[tree].inode = st->st_ino;
}

/* Appends to the list of problems, separated by "; "; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void note_problem(struct watch_health *watch_health,
                                                               const char *format, ...)
{
    size_t size = sizeof(watch_health->problem);
    size_t length = strlen(watch_health->problem);
    va_list arguments;

    if (length > 0)
        length += (size_t)snprintf(watch_health->problem + length, size - length, "; ");
    if (length >= size)
        return;
    va_start(arguments, format);
    (void)vsnprintf(watch_health->problem + length, size - length, format, arguments);
    va_end(arguments);
}

/* Whether the root exists, or never existed; otherwise the problem is noted. */
static bool check_root(struct watch_health *watch_health, enum reconciler_tree tree)
{
    const char *path = trees_path(watch_health->context->trees, tree);
    struct stat st;
    int r = path_stat_in_root(watch_health->context->root, path, &st);

    if (r == PATH_MISSING && !watch_health->root[tree].seen)
        return true;
    if (r < 0) {
        note_problem(watch_health, "%s: %s", path,
                     r == PATH_MISSING ? "was there, and is gone" : strerror(-r));
        return false;
    }
    watch_health_note_root(watch_health, tree, &st);
    return true;
}

static bool check_watchers(struct watch_health *watch_health)
{
    struct reconciler_health health = {0};
    bool well = true;

    watchers_report(watch_health->context->watchers, &health);
    for (unsigned i = 0; i < health.sources; i++)
        if (!health.source[i].up) {
            note_problem(watch_health, "no events from %s", health.source[i].name);
            well = false;
        }
    return well;
}

/* Volumes of a kubelet's root that is missing now are judged by evidence.c; this only records
 * whether the root was seen. */
static void check_kubelet(struct watch_health *watch_health, unsigned number)
{
    const char *path = config_list_item(&watch_health->context->config->paths.kubelet, number);
    struct observed_kubelet kubelet;
    bool seen = observe_kubelet(watch_health->context->root, path, "", "", &kubelet) == 0 &&
                kubelet.canary[0];

    if (seen != watch_health->kubelet_seen[number])
        watch_health_disturb(watch_health);
    watch_health->kubelet_seen[number] = seen;
    if (seen && !watch_health->kubelet[number])
        watch_health->kubelet[number] = kubelet.device;
}

void watch_health_check(struct watch_health *watch_health)
{
    char before[sizeof(watch_health->problem)], hiding[sizeof(watch_health->problem)];
    bool well;

    memcpy(before, watch_health->problem, sizeof(before));
    watch_health->problem[0] = '\0';
    well = check_watchers(watch_health);
    /* A sandbox that cannot be read may have any volume. */
    well &= store_find_problem(watch_health->context->store, hiding, sizeof(hiding)) == 0;
    if (hiding[0]) {
        note_problem(watch_health, "sandbox %s", hiding);
        well = false;
    }
    for (enum reconciler_tree tree = 0; tree < TREE_BUNDLES; tree++)
        well = check_root(watch_health, tree) && well;
    for (unsigned i = 0; i < watch_health->context->config->paths.kubelet.count; i++)
        check_kubelet(watch_health, i);
    if (!well)
        watch_health_disturb(watch_health);
    else if (!watch_health->well_since_ns)
        watch_health->well_since_ns = clock_boottime();
    if (strcmp(before, watch_health->problem) != 0 && watch_health->problem[0])
        log_warning(NULL, "no stale metadata is removed for now: %s", watch_health->problem);
}

void watch_health_disturb(struct watch_health *watch_health)
{
    watch_health->well_since_ns = 0;
}
