/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - which directories there are: a tree is read name by name, a few per turn.
 *
 * The tree's root is watched before its scan begins, so a directory made meanwhile is found by one
 * or the other. What the store knows and the tree no longer has is looked at too, and found absent.
 * Directories of the sandbox trees only name sandboxes to look at, those of the bundle trees
 * containers, whose sandboxes are looked at.
 *
 * A sandbox has a directory in more than one tree, and a look is about all of them. So that it is
 * looked at once, the last of the trees that has it marks it, and what the store knows or an entry
 * names is left to them too.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/core/internal.h"

static bool names_sandboxes(enum reconciler_tree tree)
{
    return tree > TREE_CRUST_VOLUMES && tree < TREE_BUNDLES;
}

static DIR *open_tree(struct reconciler *reconciler, enum reconciler_tree tree)
{
    cleanup(fd_closep) int fd = -1;
    const char *path = look_path(reconciler, tree);
    DIR *dir;
    int r;

    r = path_open_directory_in_root(reconciler->root, path, &fd);
    if (r < 0) {
        if (r != -ENOENT)
            log_warning(NULL, "cannot open %s: %s", path, strerror(-r));
        return NULL;
    }
    if (tree < TREE_BUNDLES)
        sources_note_root(&reconciler->cleanup.sources, tree, fd);
    dir = fdopendir(fd);
    if (dir)
        (void)take_fd(&fd);
    return dir;
}

struct known {
    struct reconciler *reconciler;
    enum reconciler_tree tree;
    int directory; /* -1: the root is not there */
};

static int mark_if_absent(void *userdata, const char *key)
{
    struct known *known = userdata;
    struct stat st;

    if (known->directory < 0 || fstatat(known->directory, key, &st, AT_SYMLINK_NOFOLLOW) < 0)
        marks_add_name(&known->reconciler->directories[known->tree], key);
    return 0;
}

/* What is known already and may be gone. */
static void mark_known_entries(struct reconciler *reconciler, enum reconciler_tree tree, DIR *dir)
{
    struct known known = {reconciler, tree, dir ? dirfd(dir) : -1};

    (void)store_each_entry(reconciler->store, look_layout_of(tree), mark_if_absent, &known);
}

static bool is_in_trees_from(const struct reconciler *reconciler, enum reconciler_tree first,
                             const char *name)
{
    struct stat st;

    for (enum reconciler_tree tree = first; tree < TREE_BUNDLES; tree++)
        if (reconciler->scan[tree] &&
            fstatat(dirfd(reconciler->scan[tree]), name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return true;
    return false;
}

bool scan_comes_to(const struct reconciler *reconciler, const char *sandbox_id)
{
    return is_in_trees_from(reconciler, TREE_GO_SANDBOXES, sandbox_id);
}

static int mark_sandbox(void *userdata, const char *sandbox_id, pid_t vmm_pid)
{
    struct reconciler *reconciler = userdata;

    (void)vmm_pid;
    if (!scan_comes_to(reconciler, sandbox_id))
        marks_add_name(&reconciler->sandboxes, sandbox_id);
    return 0;
}

static void scan_end(struct reconciler *reconciler, enum reconciler_tree tree)
{
    if (reconciler->scan[tree])
        (void)closedir(reconciler->scan[tree]);
    reconciler->scan[tree] = NULL;
}

static void scan_begin(struct reconciler *reconciler, enum reconciler_tree tree)
{
    scan_end(reconciler, tree);
    reconciler->scan_wanted[tree] = false;
    if (tree >= TREE_BUNDLES + reconciler->bundles)
        return;
    reconciler->scan[tree] = open_tree(reconciler, tree);
    if (tree <= TREE_CRUST_VOLUMES)
        mark_known_entries(reconciler, tree, reconciler->scan[tree]);
}

/* The sandboxes' trees are read from the same time on: each relies on the later ones. */
static void begin_wanted(struct reconciler *reconciler)
{
    bool sandboxes = false;

    for (enum reconciler_tree tree = TREE_GO_SANDBOXES; tree < TREES; tree++)
        sandboxes = sandboxes || reconciler->scan_wanted[tree];
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (reconciler->scan_wanted[tree] ||
            (sandboxes && names_sandboxes(tree) && reconciler->scan[tree]))
            scan_begin(reconciler, tree);
    if (sandboxes)
        (void)store_each_live_sandbox(reconciler->store, mark_sandbox, reconciler);
}

/* One name; false at the end. */
static bool scan_step(struct reconciler *reconciler, enum reconciler_tree tree)
{
    struct dirent *entry = readdir(reconciler->scan[tree]);

    if (!entry) {
        scan_end(reconciler, tree);
        return false;
    }
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        return true;
    if (!names_sandboxes(tree))
        marks_add_name(&reconciler->directories[tree], entry->d_name);
    else if (observe_is_sandbox_id(entry->d_name) &&
             !is_in_trees_from(reconciler, tree + 1, entry->d_name))
        marks_add_name(&reconciler->sandboxes, entry->d_name);
    return true;
}

/* Marks stay few at a time: a large tree does not become one large list in memory. */
enum { SCAN_MARKS = 64 };

static bool has_room(const struct reconciler *reconciler, enum reconciler_tree tree)
{
    return marks_count(&reconciler->directories[tree]) < SCAN_MARKS &&
           marks_count(&reconciler->sandboxes) < SCAN_MARKS;
}

void scan_some(struct reconciler *reconciler)
{
    begin_wanted(reconciler);
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        for (unsigned names = 0;
             names < SCAN_MARKS && reconciler->scan[tree] && has_room(reconciler, tree); names++)
            (void)scan_step(reconciler, tree);
}

bool scan_is_done(const struct reconciler *reconciler)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (reconciler->scan_wanted[tree] || reconciler->scan[tree])
            return false;
    return true;
}

void scan_done(struct reconciler *reconciler)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        scan_end(reconciler, tree);
}
