/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_process.h - identifies the files that a VMM reports, as seen through /proc/PID. Private to
 * hypervisor/.
 *
 * Everything is opened as O_PATH only: names are looked up and their identity is read.
 */
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "hypervisor/vmm_memory.h"
#include "hypervisor/vmm_resolver.h"
#include "lib/clock.h"
#include "lib/loop.h"

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
