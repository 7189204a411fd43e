/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_held.h - files that QEMU has open but does not report. Private to hypervisor/. */
#pragma once

#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_resolver.h"

enum { QEMU_HELD_ENTRIES = 1024 };

/* Removes those identities from the list to which a reported path leads; returns how many are left.
 * A drive over an fd set has no path, so its device stays. Once the resolver is exhausted, all
 * stay. */
size_t qemu_held_unnamed(const struct qemu_report *report, struct vmm_resolver *resolver,
                         struct vmm_identity *held, size_t count);
