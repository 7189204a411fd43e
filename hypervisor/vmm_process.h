/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_process.h - identifies the files that a VMM reports, as seen through /proc/PID. Private to
 * hypervisor/.
 *
 * Everything is opened as O_PATH only: names are looked up and their identity is read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "hypervisor/hypervisor.h"
#include "lib/clock.h"
#include "lib/loop.h"

/* ---- vmm resolver --------------------------------------------------------------------------- */

/* Identifies the device or file behind a path or descriptor that a VMM reports,
 * and describes the one that is wanted. */

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

/* ---- vmm memory ----------------------------------------------------------------------------- */

/* What the names that a VMM reported were found to be.
 *
 * A VMM chooses how many drives it reports and how long the paths to them are, so a search for one
 * of them may take longer than a pass of the loop may. It is then begun anew in a later pass, and
 * what is remembered here takes no time again.
 */

/* As many as a report names and a process' descriptors are: beyond that a VMM makes names up. */
enum { VMM_MEMORY_ENTRIES = 8192 };

struct vmm_memory {
    struct vmm_memory_entry *entries; /* by name; owned */
    size_t count;
};

/* Whether the name, a path or the number of a descriptor, is remembered; *ret_result is then what
 * examining it returned, and *ret_identity what it is if that was 0. */
bool vmm_memory_find(const struct vmm_memory *memory, const char *name, int *ret_result,
                     struct vmm_identity *ret_identity);

/* What cannot be remembered, for want of memory or beyond the bound, is examined again. */
void vmm_memory_add(struct vmm_memory *memory, const char *name, int result,
                    const struct vmm_identity *identity);

/* Forgets everything. */
void vmm_memory_done(struct vmm_memory *memory);

/* How many descriptors of a process are listed at most. */
enum { VMM_DESCRIPTORS = 4096 };

struct vmm_process {
    struct vmm_resolver resolver; /* callers pass its address; valid until vmm_process_done() */
    pid_t pid;
    int root;                  /* /proc/PID/root */
    int descriptors;           /* /proc/PID/fd */
    struct vmm_memory *memory; /* borrowed; NULL: what is examined is not remembered */
    size_t remembered;         /* in it, when this search began */
};

/* For the VMM, whose answer is searched from now on, in one go: the time for that begins.
 * 0, or -errno: the process is gone or may not be examined. */
int vmm_process_init(struct vmm_process *process, pid_t pid, struct error *error);
void vmm_process_done(struct vmm_process *process);

/* What was examined for this answer before takes no time again, and what is examined now is
 * remembered, too. */
void vmm_process_use_memory(struct vmm_process *process, struct vmm_memory *memory);

/* Whether the time was not enough, and a search that is begun anew gets further than this one. */
bool vmm_process_is_to_go_on(const struct vmm_process *process);

/* When it is to be begun: others have their turn meanwhile. */
static const uint64_t VMM_SEARCH_PAUSE_NS = 10 * NSEC_PER_MSEC;

/* Whether this pass of the loop has room for a search: several VMMs may answer in one. Otherwise it
 * is begun in the next pass, without a pause, before those that have had their turn. */
bool vmm_search_may_begin(const struct loop *loop);

/* What the process has open as descriptor `name`: type, device and inode as the kernel knows them,
 * without a request to the file system, which may hang (FUSE, NFS). 0 or -errno. */
int vmm_process_stat(const struct vmm_process *process, const char *name, struct stat *ret_stat);

/* The file of the request; borrows from it. */
struct vmm_wanted vmm_wanted_of(const struct hypervisor_request *request);
