/* SPDX-License-Identifier: Apache-2.0 */
/* visibility.c - checks the watched roots, the watchers, and the kubelet's root. */
#include "reconciler/cleanup/visibility.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/kubelet.h"
#include "reconciler/command/command.h"
#include "reconciler/core/context.h"
#include "reconciler/core/watchers.h"
#include "store/sandboxes.h"

static void note_root(struct visibility *visibility, enum reconciler_tree tree,
                      const struct stat *st)
{
    if (visibility->root[tree].seen &&
        (visibility->root[tree].device != st->st_dev || visibility->root[tree].inode != st->st_ino))
        visibility_disturb(visibility);
    visibility->root[tree].seen = true;
    visibility->root[tree].device = st->st_dev;
    visibility->root[tree].inode = st->st_ino;
}

void visibility_note_root(struct visibility *visibility, enum reconciler_tree tree, int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0)
        note_root(visibility, tree, &st);
}

/* Appends to the list of problems, separated by "; "; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void note_problem(struct visibility *visibility,
                                                               const char *format, ...)
{
    size_t size = sizeof(visibility->problem);
    size_t length = strlen(visibility->problem);
    va_list arguments;

    if (length > 0)
        length += (size_t)snprintf(visibility->problem + length, size - length, "; ");
    if (length >= size)
        return;
    va_start(arguments, format);
    (void)vsnprintf(visibility->problem + length, size - length, format, arguments);
    va_end(arguments);
}

/* Whether the root exists, or never existed; otherwise the problem is noted. */
static bool check_root(struct visibility *visibility, enum reconciler_tree tree)
{
    const char *path = trees_path(visibility->trees, tree);
    struct stat st;
    int r = path_stat_in_root(visibility->context->root, path, &st);

    if (r == PATH_MISSING && !visibility->root[tree].seen)
        return true;
    if (r < 0) {
        note_problem(visibility, "%s: %s", path,
                     r == PATH_MISSING ? "was there, and is gone" : strerror(-r));
        return false;
    }
    note_root(visibility, tree, &st);
    return true;
}

static bool check_watchers(struct visibility *visibility)
{
    struct reconciler_health health = {0};
    bool well = true;

    visibility->watchers->report(visibility->watchers->userdata, &health);
    for (unsigned i = 0; i < health.sources; i++)
        if (!health.source[i].up) {
            note_problem(visibility, "no events from %s", health.source[i].name);
            well = false;
        }
    return well;
}

/* Volumes of a kubelet's root that is missing now are judged by evidence.c; this only records
 * whether the root was seen. */
static void check_kubelet(struct visibility *visibility, unsigned number)
{
    const char *path = config_list_item(&visibility->context->config->paths.kubelet, number);
    struct observed_kubelet kubelet;
    bool seen = observe_kubelet(visibility->context->root, path, "", "", &kubelet) == 0 &&
                kubelet.canary[0];

    if (seen != visibility->kubelet_seen[number])
        visibility_disturb(visibility);
    visibility->kubelet_seen[number] = seen;
    if (seen && !visibility->kubelet[number])
        visibility->kubelet[number] = kubelet.device;
}

void visibility_check(struct visibility *visibility)
{
    char before[sizeof(visibility->problem)], hiding[sizeof(visibility->problem)];
    bool well;

    memcpy(before, visibility->problem, sizeof(before));
    visibility->problem[0] = '\0';
    well = check_watchers(visibility);
    /* A sandbox that cannot be read may have any volume. */
    well &= store_find_problem(visibility->context->store, hiding, sizeof(hiding)) == 0;
    if (hiding[0]) {
        note_problem(visibility, "sandbox %s", hiding);
        well = false;
    }
    for (enum reconciler_tree tree = 0; tree < TREE_BUNDLES; tree++)
        well = check_root(visibility, tree) && well;
    for (unsigned i = 0; i < visibility->context->config->paths.kubelet.count; i++)
        check_kubelet(visibility, i);
    if (!well)
        visibility_disturb(visibility);
    else if (!visibility->well_since_ns)
        visibility->well_since_ns = clock_boottime();
    if (strcmp(before, visibility->problem) != 0 && visibility->problem[0])
        log_warning(NULL, "no stale metadata is removed for now: %s", visibility->problem);
}

void visibility_disturb(struct visibility *visibility)
{
    visibility->well_since_ns = 0;
}
