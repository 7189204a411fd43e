/* SPDX-License-Identifier: Apache-2.0 */
/* process_index.h - which process runs which sandbox.
 *
 * One reading of /proc serves many questions. An answer is never older than the process: it is
 * checked against /proc/PID before it is given. That a process is not there is believed of a
 * reading that is young enough; ret_stale says that a process started just now may be missing.
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
    enum hypervisor_kind hypervisor; /* by argv[0] */
    uint32_t guest_cid;              /* of QEMU's vhost-vsock device; 0 none */
};

int process_index_new(struct process_index **ret_index);
struct process_index *process_index_free(struct process_index *index);

enum process_index_outcome {
    PROCESS_INDEX_FOUND,
    PROCESS_INDEX_NONE, /* there is none, or none that is known yet: *ret_stale */
};

/* An enum process_index_outcome or -errno. */
int process_index_find(struct process_index *index, enum process_role role, const char *sandbox_id,
                       struct indexed_process *ret_process, bool *ret_stale);
