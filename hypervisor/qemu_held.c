/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_held.c - compares descriptors with reported paths. */
#include "hypervisor/qemu_held.h"

#include "hypervisor/qemu_source.h"

static size_t remove_equal(struct vmm_identity *held, size_t count,
                           const struct vmm_identity *identity)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (!vmm_identity_equal(&held[i], identity))
            held[kept++] = held[i];
    return kept;
}

size_t qemu_held_unnamed(const struct qemu_report *report, struct vmm_resolver *resolver,
                         struct vmm_identity *held, size_t count)
{
    struct vmm_identity identity;
    struct qemu_source source;

    for (size_t i = 0; i < report->nodes.count && !vmm_resolver_is_exhausted(resolver); i++)
        if (qemu_source_read(&source, &report->nodes.entries[i], &report->nodes) &&
            !source.is_set && resolver->path(resolver, source.file, &identity) == 0)
            count = remove_equal(held, count, &identity);
    return count;
}
