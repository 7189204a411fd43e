/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_resolver.h - identifies the device or file behind a path or descriptor that a VMM reports,
 * and describes the one that is wanted. Private to hypervisor/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "hypervisor/hypervisor.h"

/* The identity of a file: a block device by its number, anything else by its file system and
 * inode. */
struct vmm_identity {
    bool block_device;
    dev_t device; /* block device: its own number; otherwise that of its file system */
    ino_t inode;  /* 0 for a block device */
};

static inline bool vmm_identity_equal(const struct vmm_identity *a, const struct vmm_identity *b)
{
    return a->block_device == b->block_device && a->device == b->device && a->inode == b->inode;
}

/* The process' view of its files. Functions return 0, or -errno if the answer is unknown. */
struct vmm_resolver {
    /* A bound was reached; what was not found or accounted for tells nothing. */
    bool exhausted;
    uint64_t
        until_ns; /* of clock_processor(): when that bound is reached at the latest; 0: never */
    int shortage; /* -EMFILE and the like, once a file could not be examined for want of a resource:
                     what was not found may exist all the same; 0: none */
    int (*path)(struct vmm_resolver *resolver, const char *path, struct vmm_identity *ret_identity);
    int (*descriptor)(struct vmm_resolver *resolver, int fd, struct vmm_identity *ret_identity);
    /* Lists every block device or file that the process has open, at most `size`; returns their
     * number. */
    size_t (*held)(struct vmm_resolver *resolver, struct vmm_identity *ret_identities, size_t size);
};

/* Whether a bound was reached; to be asked before each step of a search, because the VMM chooses
 * how many steps there are. */
bool vmm_resolver_is_exhausted(struct vmm_resolver *resolver);

/* Records r if it is a lack of descriptors or memory, and returns it. */
int vmm_resolver_note(struct vmm_resolver *resolver, int r);

/* -ETIME, with the reason in `error`: there is more than was examined in time. */
int vmm_resolver_refuse(struct error *error);

/* 0, or, with the reason in `error`, a negative number: nothing may be concluded from what the
 * resolver answered. */
int vmm_resolver_doubt(const struct vmm_resolver *resolver, bool found, struct error *error);

/* Whether the process has the file open, or has so many open that the answer is unknown. A drive
 * that is not in the list of drives is only missing if the process does not have its device
 * open. */
bool vmm_may_hold(struct vmm_resolver *resolver, const struct vmm_identity *identity);

struct vmm_wanted {
    enum hypervisor_act act;
    struct vmm_identity identity;
    const char *recorded_drive; /* NULL: unknown */
};

/* What the VMM's list of drives says about the wanted device, after every listed drive was compared
 * with it and one was `found` or none. A device that no listed drive shows is missing only if the
 * process does not have it open either. If nothing may be concluded, *outcome becomes UNREACHABLE,
 * `error` says why, and the drive that was found does not count. */
enum hypervisor_list vmm_search_list(struct vmm_resolver *resolver, const struct vmm_wanted *wanted,
                                     bool found, enum hypervisor_outcome *outcome,
                                     struct error *error);
