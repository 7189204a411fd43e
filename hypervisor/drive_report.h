/* SPDX-License-Identifier: Apache-2.0 */
/* drive_report.h - the drives that a VMM says it has, and which of them is the device. No I/O of
 * its own: what a reported file is, a resolver says. Private to hypervisor/.
 *
 * For VMMs that name each drive by an id and the path it was given, which are Cloud Hypervisor and
 * Firecracker. QEMU's graph of nodes is another matter (qemu_drive.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "hypervisor/hypervisor.h"
#include "hypervisor/vmm_resolver.h"

enum {
    DRIVE_ID_BYTES = 128,
    DRIVE_PATH_BYTES = 4096,
    DRIVE_ADDRESS_BYTES = 16,
    DRIVE_REPORT_ENTRIES = 1024,
};

struct drive {
    char id[DRIVE_ID_BYTES];
    char *path; /* as the VMM was given it; owned */
    bool read_only;
    char address[DRIVE_ADDRESS_BYTES]; /* in the guest, pci:03; "" the VMM does not say */
    const char *obstacle;              /* static: why its size can't be re-read; NULL: it can */
};

struct drive_report {
    struct drive *entries; /* owned */
    size_t count;
};

void drive_report_done(struct drive_report *report);

/* Appends a copy with this path (drive->path is not looked at). -EBADMSG for an id or path out of
 * bounds, or an id that is there already: a report that contradicts itself is not to be acted upon.
 * -EMSGSIZE past the bound, -ENOMEM. */
int drive_report_add(struct drive_report *report, const struct drive *drive, const char *path,
                     struct error *error);

/* Finds the drive whose path leads to the device, which the process must hold open as well.
 * HYPERVISOR_DONE: *ret_drive is set, borrowed from the report, and `act` may be done to it.
 * READ_ONLY and UNSUPPORTED set it too, to say which drive was meant; DRIVE_NOT_FOUND and MISMATCH
 * leave it alone. `error` says why not. */
enum hypervisor_outcome drive_report_find(const struct drive_report *report,
                                          const struct vmm_wanted *wanted,
                                          struct vmm_resolver *resolver,
                                          const struct drive **ret_drive, struct error *error);
