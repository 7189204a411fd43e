/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_memory.h - what the names that a VMM reported were found to be. Private to hypervisor/.
 *
 * A VMM chooses how many drives it reports and how long the paths to them are, so a search for one
 * of them may take longer than a pass of the loop may. It is then begun anew in a later pass, and
 * what is remembered here takes no time again.
 */
#pragma once

#include "hypervisor/vmm_resolver.h"

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
