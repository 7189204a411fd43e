/* SPDX-License-Identifier: Apache-2.0 */
/* visibility.h - whether observations of the node can be relied upon, and since when.
 *
 * A directory that never existed counts as empty. If one existed and is gone, nothing is known
 * about what it would contain. The time starts over with the daemon, whenever something becomes
 * visible again, and whenever a watcher reports that a tree was replaced or lost events.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "reconciler/core/trees.h"

struct visibility {
    const struct context *context;
    const struct trees *trees;
    const struct reconciler_watchers *watchers;
    struct {
        bool seen;
        dev_t device;
        ino_t inode;
    } root[TREE_BUNDLES];
    dev_t kubelet[CONFIG_LIST_ITEMS]; /* file system of its pods when first seen; 0: not yet */
    bool kubelet_seen[CONFIG_LIST_ITEMS];
    uint64_t well_since_ns; /* CLOCK_BOOTTIME; 0: something is not visible */
    char problem[400];      /* what cannot be seen; several are separated by "; " */
};

/* A root exists, open as fd: from now on it is known to have existed. */
void visibility_note_root(struct visibility *visibility, enum reconciler_tree tree, int fd);

/* Observes the watched roots, the watchers and the kubelet's directories. */
void visibility_check(struct visibility *visibility);

/* Something was wrong since the last check: the time starts over. */
void visibility_disturb(struct visibility *visibility);
