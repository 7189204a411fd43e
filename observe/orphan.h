/* SPDX-License-Identifier: Apache-2.0 */
/* orphan.h - VMMs that have outlived their sandbox's shim, and what they have open. */
#pragma once

#include "observe/sandbox.h"

enum observed_shim {
    OBSERVED_SHIM_RUNS,
    OBSERVED_SHIM_ENDED,
    OBSERVED_SHIM_UNKNOWN,
    OBSERVED_SHIM_UNFINISHED, /* not all processes are read yet: call again */
};

/* Of the sandbox whose VMM is this process. With records it takes more to be sure (orphan.c).
 * An enum observed_shim; what cannot be read is UNKNOWN. */
int observe_shim(struct observe_cache *cache, const char *sandbox_id, pid_t vmm_pid,
                 uint64_t vmm_start_ns, bool has_records);

/* QEMU or Cloud Hypervisor of a sandbox without records, if its process is known already: an absent
 * sandbox is an ordinary answer, which must not cost a reading of all processes. OBSERVED: *sandbox
 * has what its process says, and is `unrecorded`; OBSERVED_ABSENT. */
int observe_unrecorded(struct observe_cache *cache, const char *sandbox_id,
                       struct observed_sandbox *sandbox);

/* Calls back with each VMM that names a sandbox in the last reading of all processes. If there was
 * none, one is begun. 0, what the callback returned, or PROGRESS_MORE: that one is not complete,
 * call again. */
int observe_each_vmm(struct observe_cache *cache,
                     int (*callback)(void *userdata, const char *sandbox_id, pid_t pid,
                                     uint64_t start_ns),
                     void *userdata);

/* The block devices that the VMM has open, as drives that have only a number; one may be there
 * twice. 0, or -errno: they cannot all be read, or the process has ended. */
int observe_held_drives(pid_t pid, uint64_t start_ns, struct observed_sandbox *ret_held);
