/* SPDX-License-Identifier: Apache-2.0 */
/* child_watches.h - which inotify watch belongs to which child directory.
 *
 * There is one allocation per child: a hash handle (56 bytes), two numbers and the name, at most
 * 320 bytes for the longest name. There is no second table by name: arming an inode that is watched
 * already returns the same watch descriptor, so the kernel answers "is it armed?", and correctly
 * even when the name has passed to another directory.
 */
#pragma once

#include "lib/hash.h"
#include <stdbool.h>

struct child_watch {
    UT_hash_handle hh;
    int descriptor;
    unsigned tree; /* this and name, in this order, are the key of an unarmed child */
    char name[];
};

struct child_watches {
    struct child_watch *armed;   /* by watch descriptor */
    struct child_watch *unarmed; /* those without a watch; by tree and name */
};

/* Renames the entry if the watch descriptor has one already. 0 or -ENOMEM. */
int child_watches_arm(struct child_watches *children, int descriptor, unsigned tree,
                      const char *name);
/* Records that the child has no watch. 0 (also if recorded already) or -ENOMEM. */
int child_watches_miss(struct child_watches *children, unsigned tree, const char *name);

struct child_watch *child_watches_find(const struct child_watches *children, int descriptor);
void child_watches_forget(struct child_watches *children, struct child_watch *child);
void child_watches_forget_missed(struct child_watches *children, unsigned tree, const char *name);

/* Frees everything; does not remove the kernel's watches. */
void child_watches_done(struct child_watches *children);
