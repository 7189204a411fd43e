/* SPDX-License-Identifier: Apache-2.0 */
/* child_watches.h - which inotify watch stands for which child directory.
 *
 * One allocation per child: a hash handle (56 bytes), two numbers and the name, that is at most 320
 * bytes for the longest name. There is no second table by name: arming an inode that is watched
 * already gives the same watch descriptor, so the kernel answers "is it armed?", and truthfully
 * even when the name has passed to another directory.
 */
#pragma once

#include "lib/hash.h"
#include <stdbool.h>

struct child_watch {
    UT_hash_handle hh;
    int descriptor;
    unsigned tree; /* and name are, in this order, the key of an unarmed child */
    char name[];
};

struct child_watches {
    struct child_watch *armed;   /* by watch descriptor */
    struct child_watch *unarmed; /* no watch to be had; by tree and name */
};

/* A watch descriptor that is there already is given its new name. 0 or -ENOMEM. */
int child_watches_arm(struct child_watches *children, int descriptor, unsigned tree,
                      const char *name);
/* Remembers that it has no watch. 0 (also if known already) or -ENOMEM. */
int child_watches_miss(struct child_watches *children, unsigned tree, const char *name);

struct child_watch *child_watches_find(const struct child_watches *children, int descriptor);
void child_watches_forget(struct child_watches *children, struct child_watch *child);
void child_watches_forget_missed(struct child_watches *children, unsigned tree, const char *name);

/* Frees everything, with no word to the kernel. */
void child_watches_done(struct child_watches *children);
