/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - see scan.h.
 *
 * A tree's root is watched before its scan begins, so a directory made meanwhile is found by the
 * watch or by the scan. Directories that the store knows and the tree no longer has are observed
 * too, and found absent. Directories of the sandbox trees only name sandboxes to observe. Those of
 * the bundle trees name containers, whose sandboxes are observed.
 *
 * A sandbox has a directory in more than one tree, and one observation covers all of them. To
 * observe it only once, the last of the trees that contain it queues it; sandboxes that the store
 * knows or that an entry names are left to the trees as well.
 */
#include "reconciler/core/scan.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/cleanup/visibility.h"
#include "reconciler/core/context.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

enum { NAMES_PER_STEP = 64 };

static DIR *open_tree(struct scan *scan, enum reconciler_tree tree)
{
    const char *path = trees_path(scan->trees, tree);
    DIR *names = NULL;
    int r = directory_list_in_root(scan->context->root, path, &names);

    if (r < 0) {
        if (r != PATH_MISSING)
            log_warning(NULL, "cannot open %s: %s", path, strerror(-r));
        return NULL;
    }
    if (tree < TREE_BUNDLES)
        visibility_note_root(scan->visibility, tree, dirfd(names));
    return names;
}

struct known {
    struct work_queue *queue;
    enum reconciler_tree tree;
    int directory; /* -1: the root does not exist */
};

static int add_if_absent(void *userdata, const char *key)
{
    struct known *known = userdata;
    struct stat st;

    if (known->directory < 0 || fstatat(known->directory, key, &st, AT_SYMLINK_NOFOLLOW) < 0)
        work_queue_add_directory(known->queue, known->tree, key);
    return 0;
}

/* Queues entries that are on record and no longer in the tree. */
static void add_known_entries(struct scan *scan, enum reconciler_tree tree)
{
    DIR *dir = scan->open[tree];
    struct known known = {scan->context->queue, tree, dir ? dirfd(dir) : -1};

    (void)store_each_entry(scan->context->store, tree_layout(tree), add_if_absent, &known);
}

static bool is_in_trees_from(const struct scan *scan, enum reconciler_tree first, const char *name)
{
    struct stat st;

    for (enum reconciler_tree tree = first; tree < TREE_BUNDLES; tree++)
        if (scan->open[tree] &&
            fstatat(dirfd(scan->open[tree]), name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return true;
    return false;
}

bool scan_comes_to(const struct scan *scan, const char *sandbox_id)
{
    return is_in_trees_from(scan, TREE_GO_SANDBOXES, sandbox_id);
}

static int add_sandbox(void *userdata, const char *sandbox_id, pid_t vmm_pid)
{
    struct scan *scan = userdata;

    (void)vmm_pid;
    if (!scan_comes_to(scan, sandbox_id))
        work_queue_add_sandbox(scan->context->queue, sandbox_id);
    return 0;
}

static void end_tree(struct scan *scan, enum reconciler_tree tree)
{
    if (scan->open[tree])
        (void)closedir(scan->open[tree]);
    scan->open[tree] = NULL;
}

static void begin_tree(struct scan *scan, enum reconciler_tree tree)
{
    end_tree(scan, tree);
    scan->wanted[tree] = false;
    if (!trees_path(scan->trees, tree))
        return;
    scan->open[tree] = open_tree(scan, tree);
    if (tree_has_volumes(tree))
        add_known_entries(scan, tree);
}

/* The sandbox trees are always read together, because each relies on the later ones. */
static void begin_wanted(struct scan *scan)
{
    bool sandboxes = false;

    for (enum reconciler_tree tree = TREE_GO_SANDBOXES; tree < TREES; tree++)
        sandboxes = sandboxes || scan->wanted[tree];
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (scan->wanted[tree] || (sandboxes && tree_has_sandboxes(tree) && scan->open[tree]))
            begin_tree(scan, tree);
    if (sandboxes)
        (void)store_each_live_sandbox(scan->context->store, add_sandbox, scan);
}

static void read_name(struct scan *scan, enum reconciler_tree tree)
{
    const char *name = directory_next(scan->open[tree]);

    if (!name)
        end_tree(scan, tree);
    else if (!(tree_has_sandboxes(tree) && is_in_trees_from(scan, tree + 1, name)))
        work_queue_add_directory(scan->context->queue, tree, name);
}

void scan_some(struct scan *scan)
{
    begin_wanted(scan);
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        for (unsigned names = 0; names < NAMES_PER_STEP && scan->open[tree] &&
                                 work_queue_has_room(scan->context->queue, tree);
             names++)
            read_name(scan, tree);
}

bool scan_is_done(const struct scan *scan)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (scan->wanted[tree] || scan->open[tree])
            return false;
    return true;
}

void scan_want(struct scan *scan, enum reconciler_tree tree)
{
    scan->wanted[tree] = true;
}

void scan_want_all(struct scan *scan)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        scan_want(scan, tree);
}

/* Clears the over-limit flag only after a full scan that skipped nothing. */
static void want_passed_over(struct scan *scan)
{
    if (!scan->over_limit || !scan_is_done(scan))
        return;
    scan->over_limit = scan->passed_over;
    scan->passed_over = false;
    scan->wanted[TREE_KATA_VOLUMES] |= scan->over_limit;
    scan->wanted[TREE_CRUST_VOLUMES] |= scan->over_limit;
}

void scan_want_sweep(struct scan *scan)
{
    want_passed_over(scan);
    scan_want(scan, TREE_GO_SANDBOXES);
    scan_want(scan, TREE_RS_SANDBOXES);
}

void scan_pass_over(struct scan *scan)
{
    if (!scan->over_limit)
        log_warning(NULL, "the limit of %d volumes is reached: further directories are passed over",
                    STORE_VOLUMES);
    scan->over_limit = scan->passed_over = true;
}

bool scan_is_over_limit(const struct scan *scan)
{
    return scan->over_limit;
}

void scan_done(struct scan *scan)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        end_tree(scan, tree);
}
