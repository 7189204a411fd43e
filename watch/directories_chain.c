/* SPDX-License-Identifier: Apache-2.0 */
/* directories_chain.c - the watches on the directories that lead to a volume root.
 *
 * One directory may be part of several paths, a root and a child. Its mask is the union of what its
 * users need, and its watch is removed with the last of them.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "watch/watch_internal.h"

/* ---- watch descriptors ------------------------------------------------------------------- */

int directories_add_watch(const struct watch_directories *watch, int directory, uint32_t mask)
{
    char link[32];
    int descriptor;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", directory);
    descriptor = inotify_add_watch(watch->inotify_fd, link, mask | IN_ONLYDIR | IN_EXCL_UNLINK);
    return descriptor < 0 ? -errno : descriptor;
}

static uint32_t chain_mask(const struct chain *chain, int descriptor)
{
    uint32_t mask = chain->root == descriptor ? ROOT_MASK : 0;

    for (unsigned i = 0; i < chain->steps; i++)
        if (chain->step[i].descriptor == descriptor)
            mask |= chain->step[i].mask;
    return mask;
}

/* The events for which any user needs a watch; 0: it can be removed. */
static uint32_t needed_mask(const struct watch_directories *watch, int descriptor)
{
    uint32_t mask = child_watches_find(&watch->children, descriptor) ? CHILD_MASK : 0;

    for (unsigned i = 0; i < watch->trees; i++)
        mask |= chain_mask(&watch->tree[i].chain, descriptor);
    return mask;
}

void directories_release_watch(const struct watch_directories *watch, int descriptor)
{
    if (descriptor >= 0 && !needed_mask(watch, descriptor))
        (void)inotify_rm_watch(watch->inotify_fd, descriptor);
}

/* ---- the chain to a root ------------------------------------------------------------------- */

bool directories_is_absent(int r)
{
    return path_is_missing(r) || r == PATH_BEHIND_A_LINK || r == PATH_LEADS_OUT ||
           r == PATH_NAME_TOO_LONG;
}

static int open_prefix(const struct watch_directories *watch, const char *path, size_t length,
                       int *ret_fd)
{
    char prefix[PATH_MAX];

    (void)snprintf(prefix, sizeof(prefix), "%.*s", (int)length, path);
    return path_open_directory_in_root(watch->root, prefix, ret_fd);
}

/* Arms for `mask` and for what all other users need, but for nothing else: a directory that no
 * longer has to report new names would otherwise go on waking the daemon. The first call adds the
 * mask and returns the watch descriptor. */
static int set_watch(const struct watch_directories *watch, const struct chain *chain,
                     int directory, uint32_t mask)
{
    int descriptor = directories_add_watch(watch, directory, mask | IN_MASK_ADD);

    if (descriptor < 0)
        return descriptor;
    mask |= needed_mask(watch, descriptor) | chain_mask(chain, descriptor);
    return directories_add_watch(watch, directory, mask);
}

/* Arms one directory of the chain. A failure does not stop the walk, because the sweep checks the
 * path as well. */
static void step_onto(struct watch_directories *watch, struct chain *chain, int directory,
                      uint32_t mask)
{
    int descriptor = set_watch(watch, chain, directory, mask);

    if (descriptor < 0 || chain->steps == CHAIN_LENGTH)
        return;
    chain->step[chain->steps].descriptor = descriptor;
    chain->step[chain->steps].mask = mask;
    chain->steps++;
}

/* Goes one step down, to the prefix that ends at `end`. If that does not exist, its parent is armed
 * to report new names before a second try. */
static int step_down(struct watch_directories *watch, const char *path, size_t end,
                     struct chain *chain, int *directory)
{
    int child = -1, r;

    step_onto(watch, chain, *directory, GONE_MASK);
    r = open_prefix(watch, path, end, &child);
    if (directories_is_absent(r)) {
        step_onto(watch, chain, *directory, WAIT_MASK);
        r = open_prefix(watch, path, end, &child);
    }
    if (r < 0)
        return r;
    fd_close(*directory);
    *directory = child;
    return 0;
}

int directories_follow(struct watch_directories *watch, const char *path, struct chain *chain)
{
    cleanup(fd_closep) int directory = -1;
    size_t end = 0, length = strlen(path);
    int r = open_prefix(watch, "/", 1, &directory);

    while (r == 0 && end < length) {
        end += strspn(path + end, "/");
        end += strcspn(path + end, "/");
        r = step_down(watch, path, end, chain, &directory);
    }
    if (directories_is_absent(r))
        return 0;
    if (r < 0)
        return r;
    chain->root_exists = true;
    r = set_watch(watch, chain, directory, ROOT_MASK);
    if (r >= 0)
        chain->root = r;
    return r < 0 ? r : 0;
}

void directories_release_chain(const struct watch_directories *watch, const struct chain *chain)
{
    for (unsigned i = 0; i < chain->steps; i++)
        directories_release_watch(watch, chain->step[i].descriptor);
    directories_release_watch(watch, chain->root);
}

/* ---- child watches -------------------------------------------------------------------------- */

/* Two hash tables with entries of one type. A child is in at most one of them, as far as this
 * process knows. */

static struct child_watch *child_new(int descriptor, unsigned tree, const char *name)
{
    size_t length = strlen(name);
    struct child_watch *child = malloc(sizeof(*child) + length + 1);

    if (!child)
        return NULL;
    child->descriptor = descriptor;
    child->tree = tree;
    memcpy(child->name, name, length + 1);
    return child;
}

static size_t key_length(const char *name)
{
    return sizeof(unsigned) + strlen(name);
}

int child_watches_arm(struct child_watches *children, int descriptor, unsigned tree,
                      const char *name)
{
    struct child_watch *old = child_watches_find(children, descriptor);
    struct child_watch *child;

    if (children->unarmed)
        child_watches_forget_missed(children, tree, name);
    if (old && old->tree == tree && strcmp(old->name, name) == 0)
        return 0;
    child = child_new(descriptor, tree, name);
    if (!child)
        return -ENOMEM;
    if (old)
        child_watches_forget(children, old);
    HASH_ADD_INT(children->armed, descriptor, child);
    if (child->hh.tbl)
        return 0;
    free(child);
    return -ENOMEM;
}

/* The key is not only text, so the search needs an entry that holds it. */
static struct child_watch *find_missed(const struct child_watches *children,
                                       const struct child_watch *like)
{
    struct child_watch *found;

    HASH_FIND(hh, children->unarmed, &like->tree, key_length(like->name), found);
    return found;
}

int child_watches_miss(struct child_watches *children, unsigned tree, const char *name)
{
    struct child_watch *child = child_new(-1, tree, name);

    if (!child)
        return -ENOMEM;
    if (find_missed(children, child)) {
        free(child);
        return 0;
    }
    HASH_ADD(hh, children->unarmed, tree, key_length(name), child);
    if (child->hh.tbl)
        return 0;
    free(child);
    return -ENOMEM;
}

void child_watches_forget_missed(struct child_watches *children, unsigned tree, const char *name)
{
    struct child_watch *like, *found;

    if (!children->unarmed)
        return;
    like = child_new(-1, tree, name);
    found = like ? find_missed(children, like) : NULL;
    free(like);
    if (!found)
        return;
    HASH_DEL(children->unarmed, found);
    free(found);
}

struct child_watch *child_watches_find(const struct child_watches *children, int descriptor)
{
    struct child_watch *child;

    HASH_FIND_INT(children->armed, &descriptor, child);
    return child;
}

void child_watches_forget(struct child_watches *children, struct child_watch *child)
{
    HASH_DEL(children->armed, child);
    free(child);
}

void child_watches_done(struct child_watches *children)
{
    struct child_watch *child, *next;

    HASH_ITER (hh, children->armed, child, next) {
        child_watches_forget(children, child);
    }
    HASH_ITER (hh, children->unarmed, child, next) {
        HASH_DEL(children->unarmed, child);
        free(child);
    }
}
