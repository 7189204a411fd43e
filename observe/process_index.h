/* SPDX-License-Identifier: Apache-2.0 */
/* process_index.h - which process runs which sandbox.
 *
 * One reading of /proc answers many calls. A process that is found is checked against /proc/PID
 * before it is returned. That a process does not exist is taken from a reading if that is young
 * enough; `stale` says that a process started just now may be missing. One call reads so many
 * processes and arguments at most.
 *
 * Only arguments of root's processes are believed (process_trust.h), and a VMM must also be tied to
 * its sandbox by its parent or its cgroup, which the kernel reports. If two believable processes
 * claim the same sandbox, neither is believed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/hypervisor.h"

struct process_index;

enum process_role { PROCESS_VMM, PROCESS_SHIM };

struct indexed_process {
    pid_t pid;
    uint64_t start_ns;               /* CLOCK_BOOTTIME */
    enum hypervisor_kind hypervisor; /* according to argv[0] */
    uint32_t guest_cid;              /* of QEMU's vhost-vsock device; 0: none */
};

int process_index_new(struct process_index **ret_index);
struct process_index *process_index_free(struct process_index *index);

enum process_index_outcome {
    PROCESS_INDEX_FOUND,
    PROCESS_INDEX_NONE,       /* there is none, or none is known yet: `stale` */
    PROCESS_INDEX_UNFINISHED, /* there are more processes than one call reads: ask again */
};

/* Reads on until what is known is young. An enum progress_outcome or -errno. */
int process_index_refresh(struct process_index *index);

/* Goes on with a reading that has begun. An enum progress_outcome or -errno. */
int process_index_read_on(struct process_index *index);

/* While it is held, what is known is not read anew, so no answer is UNFINISHED. */
void process_index_hold(struct process_index *index, bool is_held);

enum { PROCESS_DOUBT_BYTES = 192 };

struct process_search {
    struct indexed_process process; /* if FOUND */
    bool stale;
    uint64_t sure_since_ns;          /* what had started by then is known; 0: not surely */
    bool has_unread;                 /* if NONE: a process could not be read, whoever's it is */
    char doubt[PROCESS_DOUBT_BYTES]; /* if NONE: why a claimant is not believed; "" */
};

/* An enum process_index_outcome or -errno. */
int process_index_find(struct process_index *index, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search);
