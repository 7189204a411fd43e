/* SPDX-License-Identifier: Apache-2.0 */
/* process_index.h - finds the VMM or shim of a sandbox.
 *
 * One reading of /proc serves many searches. A process that was found is checked against /proc/PID
 * before it is returned. A process that is not in a recent reading counts as missing; `stale` means
 * that one started just now may be missing. Each call reads a bounded number of processes and
 * arguments.
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
#include "observe/sandbox.h"

struct process_index;

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
    PROCESS_INDEX_NONE,       /* there is none, or (`stale`) none is known yet */
    PROCESS_INDEX_UNFINISHED, /* not all processes are read yet: call again */
};

/* Makes the index recent, in several calls. An enum progress_outcome or -errno. */
int process_index_refresh(struct process_index *index);

/* Continues a reading that has begun. An enum progress_outcome or -errno. */
int process_index_read_on(struct process_index *index);

/* While the index is held, it is not read again, so no search is UNFINISHED. */
void process_index_hold(struct process_index *index, bool is_held);

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
int process_index_find(struct process_index *index, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search);

/* The same among the processes that are known: nothing is read. */
bool process_index_find_known(struct process_index *index, enum process_role role,
                              const char *sandbox_id, struct indexed_process *ret_process);

/* As observe_each_vmm() in sandbox.h. */
int process_index_each_vmm(struct process_index *index,
                           int (*callback)(void *userdata, const char *sandbox_id, pid_t pid,
                                           uint64_t start_ns),
                           void *userdata);

/* ---- absences ------------------------------------------------------------------------------- */

/* Decides when it is certain that a sandbox has no shim.
 *
 * A shim runs before the first question about its sandbox can come. So a reading of all processes
 * that began after that question and missed none of root's finds the shim if it exists. The time of
 * the first question is kept for the sandboxes that were asked about last.
 */

struct absences;

int absences_new(struct absences **ret_absences);
struct absences *absences_free(struct absences *absences);

/* Begins or continues a question about the sandbox. To be called before the search for its
 * processes. */
void absences_ask(struct absences *absences, const char *sandbox_id);

/* OBSERVED_ABSENT: the sandbox has no shim; OBSERVED_UNFINISHED: not certain yet, ask again;
 * -errno. */
int absences_find(struct absences *absences, struct process_index *processes,
                  const char *sandbox_id);
