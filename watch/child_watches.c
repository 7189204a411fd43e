/* SPDX-License-Identifier: Apache-2.0 */
/* child_watches.c - two hash tables with entries of one type.
 *
 * A child is in at most one of them, as far as this process knows. If an entry cannot be inserted
 * for want of memory, its creator frees it.
 */
#include "watch/child_watches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static int add_armed(struct child_watches *children, struct child_watch *child)
{
    HASH_ADD_INT(children->armed, descriptor, child);
    if (child->hh.tbl)
        return 0;
    free(child);
    return -ENOMEM;
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
    return add_armed(children, child);
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
