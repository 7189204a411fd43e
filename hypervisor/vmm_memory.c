/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_memory.c - see vmm_memory.h. No longer than the answer whose names it holds. */
#include "hypervisor/vmm_memory.h"

#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"

struct vmm_memory_entry {
    UT_hash_handle hh;
    int result;
    struct vmm_identity identity;
    char name[];
};

bool vmm_memory_find(const struct vmm_memory *memory, const char *name, int *ret_result,
                     struct vmm_identity *ret_identity)
{
    const struct vmm_memory_entry *entry;

    HASH_FIND_STR(memory->entries, name, entry);
    if (!entry)
        return false;
    *ret_result = entry->result;
    *ret_identity = entry->identity;
    return true;
}

void vmm_memory_add(struct vmm_memory *memory, const char *name, int result,
                    const struct vmm_identity *identity)
{
    struct vmm_memory_entry *entry =
        memory->count < VMM_MEMORY_ENTRIES ? calloc(1, sizeof(*entry) + strlen(name) + 1) : NULL;

    if (!entry)
        return;
    entry->result = result;
    if (result == 0)
        entry->identity = *identity;
    strcpy(entry->name, name);
    HASH_ADD_STR(memory->entries, name, entry);
    if (entry->hh.tbl)
        memory->count++;
    else
        free(entry);
}

void vmm_memory_done(struct vmm_memory *memory)
{
    struct vmm_memory_entry *entry, *next;

    HASH_ITER (hh, memory->entries, entry, next) {
        HASH_DEL(memory->entries, entry);
        free(entry);
    }
    memory->count = 0;
}
