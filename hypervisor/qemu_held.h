/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_held.h - what a QEMU has open and does not name. Private to hypervisor/. */
#pragma once

#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_resolver.h"

enum { QEMU_HELD_ENTRIES = 1024 };

/* Takes those out of the list that a reported path leads to; returns how many are left. A drive
 * over an fd set has no path, so its device stays. So do all once the resolver is exhausted. */
size_t qemu_held_unnamed(const struct qemu_report *report, struct vmm_resolver *resolver,
                         struct vmm_identity *held, size_t count);
