/* SPDX-License-Identifier: Apache-2.0 */
/* visibility.h - whether what is seen of the node can be believed, and since when.
 *
 * A directory that was never there is empty; one that was there and is gone is not: then nothing
 * that it would tell of is known. The time begins anew with the daemon, whenever something comes
 * back into view, and whenever a watcher reports that a tree is another one than before.
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
    dev_t kubelet[CONFIG_LIST_ITEMS]; /* file system of its pods, when first seen; 0 not yet */
    bool kubelet_seen[CONFIG_LIST_ITEMS];
    uint64_t well_since_ns; /* CLOCK_BOOTTIME; 0: something is out of view */
    char problem[400];      /* what is; "; " between several */
};

/* A root is there, open as fd: whatever is learned of it from now on, it was there. */
void visibility_note_root(struct visibility *visibility, enum reconciler_tree tree, int fd);

/* Observes the watched roots, the watchers and the kubelet's directories. */
void visibility_check(struct visibility *visibility);

/* Something was not as it should be since the last check: the time begins anew. */
void visibility_disturb(struct visibility *visibility);
