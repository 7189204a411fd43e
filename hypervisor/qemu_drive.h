/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_drive.h - finds out which of QEMU's drives is the device, and whether its size may be
 * re-read. No I/O of its own: a resolver identifies the reported files. Private to hypervisor/. */
#pragma once

#include "hypervisor/hypervisor.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_resolver.h"

/* Finds the root node whose file is the wanted device. HYPERVISOR_DONE: *ret_drive is set, borrowed
 * from the report, and `act` may be done to it. READ_ONLY and UNSUPPORTED set it too, to name the
 * drive; DRIVE_NOT_FOUND and MISMATCH leave it unchanged. `error` has the reason. */
enum hypervisor_outcome qemu_drive_find(const struct qemu_report *report,
                                        const struct vmm_wanted *wanted,
                                        struct vmm_resolver *resolver,
                                        const struct qemu_node **ret_drive, struct error *error);

/* The outcome for QEMU's refusal. */
enum hypervisor_outcome qemu_refusal(const char *error_class, const char *text);
