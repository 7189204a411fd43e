/* vmm_process.h - what the files that a VMM reports really are, seen through /proc/PID.
 * Private to hypervisor/.
 *
 * Nothing is ever opened but as O_PATH: names are only looked up and their identity read.
 */
#pragma once

#include <sys/types.h>

#include "reconciler/hypervisor/vmm_resolver.h"

struct vmm_process {
    struct vmm_resolver resolver; /* pass its address; valid until done */
    int root;                     /* /proc/PID/root */
    int descriptors;              /* /proc/PID/fd */
};

/* 0 or -errno: the process is gone or may not be looked at. */
int vmm_process_init(struct vmm_process *process, pid_t pid, struct error *error);
void vmm_process_done(struct vmm_process *process);

/* The file that a request is about; borrows from it. */
struct vmm_wanted vmm_wanted_of(const struct hypervisor_request *request);
