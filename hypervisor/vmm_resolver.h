/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_resolver.h - which device or file a path or descriptor that a VMM reports really is, and
 * which one is wanted. Private to hypervisor/.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "hypervisor/hypervisor.h"

/* Who a file is: a block device by its number, anything else by where it lies. */
struct vmm_identity {
    bool block_device;
    dev_t device; /* block device: its own number; else that of its file system */
    ino_t inode;  /* 0 for a block device */
};

static inline bool vmm_identity_equal(const struct vmm_identity *a, const struct vmm_identity *b)
{
    return a->block_device == b->block_device && a->device == b->device && a->inode == b->inode;
}

/* A regular file that the process has open. */
struct vmm_file {
    struct vmm_identity identity;
    int fd;
};

/* The process' view of its files. Each returns 0, or -errno when it can't tell. */
struct vmm_resolver {
    /* A bound was reached; what was not found or accounted for tells nothing. */
    bool exhausted;
    int shortage; /* -EMFILE and the like once something could not be looked at for want of it: what
                     was not found may be there all the same; 0 */
    int (*path)(struct vmm_resolver *resolver, const char *path, struct vmm_identity *ret_identity);
    int (*descriptor)(struct vmm_resolver *resolver, int fd, struct vmm_identity *ret_identity);
    /* Every block device or file that the process has open, at most `size`; their number. */
    size_t (*held)(struct vmm_resolver *resolver, struct vmm_identity *ret_identities, size_t size);
    /* Every regular file that could be a drive's: all but those that are open for writing only, and
     * its memory. -EMSGSIZE: more than `size`. */
    int (*files)(struct vmm_resolver *resolver, struct vmm_file *ret_files, size_t size,
                 size_t *ret_count);
    /* The present size of a block device, as the host's kernel has it. */
    int (*bytes)(struct vmm_resolver *resolver, const struct vmm_identity *identity,
                 uint64_t *ret_bytes);
};

/* Takes note of r if it is a lack of descriptors or memory, and returns it. */
int vmm_resolver_note(struct vmm_resolver *resolver, int r);

/* Nothing may be concluded from what the resolver said: why. 0: it may. */
int vmm_resolver_doubt(const struct vmm_resolver *resolver, bool found, struct error *error);

/* Whether the process has the file open, or has so many open that nobody can tell. A drive that a
 * list of drives does not show is missing only if the process does not hold its device. */
bool vmm_may_hold(struct vmm_resolver *resolver, const struct vmm_identity *identity);

struct vmm_wanted {
    enum hypervisor_act act;
    struct vmm_identity identity;
    const char *recorded_drive; /* NULL: unknown */
};
