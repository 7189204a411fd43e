/* SPDX-License-Identifier: Apache-2.0 */
/* process_table.h - finds the VMM or shim of a sandbox, by the sandbox's id in its arguments.
 *
 * All processes are read into a table, which serves many searches. A process that was found is
 * checked against /proc/PID before it is returned. A process that is not in a recent reading counts
 * as missing; `stale` means that one started just now may be missing.
 *
 * The table is always read as a whole, in parts: any user can make a reading take long, so each
 * call reads a bounded number of processes and arguments, and the last complete reading serves
 * meanwhile. A process that hangs keeps its entries of that reading.
 *
 * Only arguments of root's processes are believed (process.h), and a VMM must also be tied to its
 * sandbox by its parent or its cgroup, which the kernel reports. If two believable processes claim
 * the same sandbox, neither is believed. A few of the processes that are not trusted are kept for
 * messages. Reading and holding the table: observe_cache_…() of observed_sandbox.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/process.h"
#include "model/sandbox.h"
#include "observe/observed_sandbox.h"

struct process_table;

int process_table_new(struct process_table **ret_table); /* 0 or -errno */
struct process_table *process_table_free(struct process_table *table);

struct indexed_process {
    pid_t pid;
    uint64_t start_ns;               /* CLOCK_BOOTTIME */
    enum hypervisor_kind hypervisor; /* according to argv[0] */
    uint32_t guest_cid;              /* of QEMU's vhost-vsock device; 0: none */
};

enum process_index_outcome {
    PROCESS_INDEX_FOUND,
    PROCESS_INDEX_NONE,       /* there is none, or (`stale`) none is known yet */
    PROCESS_INDEX_UNFINISHED, /* not all processes are read yet: call again */
};

enum { PROCESS_DOUBT_BYTES = 192 };

struct process_search {
    struct indexed_process process; /* if FOUND */
    bool stale;
    bool is_contested;               /* if NONE: several trusted processes claim to be it */
    uint64_t sure_since_ns;          /* every process started by then is known; 0: unknown */
    bool has_unread;                 /* if NONE: some process could not be read */
    char doubt[PROCESS_DOUBT_BYTES]; /* if NONE: why a process that names the sandbox is not
                                        trusted; "" */
};

/* An enum process_index_outcome or -errno. */
int process_index_find(struct observe_cache *cache, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search);

/* The same among the processes that are known: nothing is read. */
bool process_index_find_known(struct observe_cache *cache, enum process_role role,
                              const char *sandbox_id, struct indexed_process *ret_process);

/* ---- unknown sandboxes ----------------------------------------------------------------------- */

/* Decides when it is certain that a sandbox has no shim.
 *
 * A shim runs before the first question about its sandbox can come. So a reading of all processes
 * that began after that question and missed none of root's finds the shim if it exists. The time of
 * the first question is kept for the sandboxes that were asked about last.
 */

/* Begins or continues a question about the sandbox. To be called before the search for its
 * processes. */
void unknown_sandboxes_ask(struct observe_cache *cache, const char *sandbox_id);

/* OBSERVED_ABSENT: the sandbox has no shim; OBSERVED_UNFINISHED: not certain yet, ask again;
 * -errno. */
int unknown_sandboxes_find(struct observe_cache *cache, const char *sandbox_id);
