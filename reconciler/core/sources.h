/* SPDX-License-Identifier: Apache-2.0 */
/* sources.h - whether what is seen of the node can be believed, and since when.
 *
 * A directory that was never there is empty; one that was there and is gone is not: then nothing
 * that it would tell of is known. The time begins anew with the daemon, whenever a source comes
 * back, and whenever a sense says that a tree is another one than before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "reconciler/core/reconciler.h"

struct sources {
    struct {
        bool seen;
        dev_t device;
        ino_t inode;
    } root[TREE_BUNDLES];
    dev_t kubelet[CONFIG_LIST_ITEMS]; /* file system of its pods, when first seen; 0 not yet */
    bool kubelet_seen[CONFIG_LIST_ITEMS];
    uint64_t well_since_ns; /* CLOCK_BOOTTIME; 0: they are not well now */
    char problem[192];      /* why not */
};

/* A root is there, open as fd: whatever is learned of it from now on, it was there. */
void sources_note_root(struct sources *sources, enum reconciler_tree tree, int fd);

/* Looks at all of them. */
void sources_check(struct reconciler *reconciler);

/* Something was not as it should be since the last look: the time begins anew. */
void sources_disturb(struct sources *sources);
