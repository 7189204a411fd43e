/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_process.h - what a worker does with a VMM: one function for each kind; and the identity of
 * the files that a VMM reports, as its process sees them. Private to hypervisor/.
 *
 * An act is one conversation in blocking code, which reads from top to bottom. It begins by reading
 * the VMM's state, so a command that was sent and whose answer was lost is found done. It knows no
 * loop, no store and no log. The reply is zeroed; the act fills it, error texts included.
 *
 * Of a process everything is opened as O_PATH only: names are looked up and their identity is read.
 */
#pragma once

#include <sys/stat.h>

#include "hypervisor/hypervisor.h"

/* deadline_ns is absolute (CLOCK_BOOTTIME), and takes the place of the request's allowed_ns. A
 * request's strings are valid for the call. The reply's `entries` are allocated by the
 * act and freed by its caller. */
typedef void vmm_act(const struct hypervisor_request *request, uint64_t deadline_ns,
                     struct hypervisor_reply *reply);

vmm_act qemu_act, cloud_hypervisor_act, firecracker_act;

/* How many descriptors of a process are examined at most. */
enum { VMM_DESCRIPTORS = 4096 };

struct vmm_process {
    pid_t pid;
    int root;        /* /proc/PID/root */
    int descriptors; /* /proc/PID/fd */
    bool exhausted;  /* it has more descriptors open than are examined */
    int shortage;    /* -EMFILE and the like, once a file could not be examined for want of a
                        resource: what was not found may exist all the same; 0: none */
};

/* 0, or -errno: the process is gone or may not be examined. */
int vmm_process_init(struct vmm_process *process, pid_t pid, struct error *error);
void vmm_process_done(struct vmm_process *process); /* also after a failure, and again */

static inline bool vmm_disk_equal(const struct hypervisor_disk *a, const struct hypervisor_disk *b)
{
    return a->regular_file == b->regular_file && a->device == b->device && a->inode == b->inode;
}

/* The disk at a path, or behind a descriptor, that the VMM reports. 0, or -errno if that is
 * unknown. */
int vmm_process_path(struct vmm_process *process, const char *path,
                     struct hypervisor_disk *ret_disk);
int vmm_process_descriptor(struct vmm_process *process, int fd, struct hypervisor_disk *ret_disk);

/* Whether the process has the disk open. VMM_MAY_HOLD: not all could be examined. */
enum vmm_holding { VMM_HOLDS_NOT, VMM_HOLDS, VMM_MAY_HOLD };
enum vmm_holding vmm_process_holds(struct vmm_process *process, const struct hypervisor_disk *disk);

/* What the process has open as descriptor `name`: type, device and inode as the kernel knows them,
 * without a request to the file system, which may hang (FUSE, NFS). 0 or -errno. */
int vmm_process_stat(const struct vmm_process *process, const char *name, struct stat *ret_stat);

/* What the VMM's list of drives says about the request's device, after every listed drive was
 * compared with it; `found`: one of them is it. A device that no listed drive shows is missing only
 * if the process does not have it open either. If nothing may be concluded, *outcome becomes
 * UNREACHABLE, `error` says why, and the drive that was found does not count. */
enum hypervisor_list vmm_process_judge(struct vmm_process *process,
                                       const struct hypervisor_request *request, bool found,
                                       enum hypervisor_outcome *outcome, struct error *error);
