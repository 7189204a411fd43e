/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_resolver.c - the functions that do not depend on the kind of resolver. */
#include "hypervisor/vmm_resolver.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/result.h"

enum { HELD_ENTRIES = 1024 };

bool vmm_resolver_is_exhausted(struct vmm_resolver *resolver)
{
    if (!resolver->exhausted && resolver->until_ns)
        resolver->exhausted = clock_processor() >= resolver->until_ns;
    return resolver->exhausted;
}

int vmm_resolver_note(struct vmm_resolver *resolver, int r)
{
    if (result_is_shortage(r))
        resolver->shortage = r;
    return r;
}

int vmm_resolver_refuse(struct error *error)
{
    return error_set(error, -ETIME,
                     "the VMM has more drives and files, or longer paths to them, than crustd "
                     "examines");
}

int vmm_resolver_doubt(const struct vmm_resolver *resolver, bool found, struct error *error)
{
    if (resolver->exhausted)
        return vmm_resolver_refuse(error);
    if (resolver->shortage && !found)
        return error_set_errno(error, resolver->shortage, "cannot read all of the VMM's files");
    return 0;
}

bool vmm_may_hold(struct vmm_resolver *resolver, const struct vmm_identity *identity)
{
    cleanup(freep) struct vmm_identity *held = calloc(HELD_ENTRIES, sizeof(*held));
    size_t count = held ? resolver->held(resolver, held, HELD_ENTRIES) : HELD_ENTRIES;

    for (size_t i = 0; held && i < count; i++)
        if (vmm_identity_equal(&held[i], identity))
            return true;
    return count == HELD_ENTRIES || resolver->exhausted; /* there may be more */
}

enum hypervisor_list vmm_search_list(struct vmm_resolver *resolver, const struct vmm_wanted *wanted,
                                     bool found, enum hypervisor_outcome *outcome,
                                     struct error *error)
{
    bool lacks =
        *outcome == HYPERVISOR_DRIVE_NOT_FOUND && !vmm_may_hold(resolver, &wanted->identity);

    if (vmm_resolver_doubt(resolver, found, error) < 0) {
        *outcome = HYPERVISOR_UNREACHABLE;
        return HYPERVISOR_LIST_UNREAD;
    }
    if (found)
        return HYPERVISOR_LIST_HAS;
    return lacks ? HYPERVISOR_LIST_LACKS : HYPERVISOR_LIST_UNREAD;
}
