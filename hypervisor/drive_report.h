/* SPDX-License-Identifier: Apache-2.0 */
/* drive_report.h - the drives that a VMM reports, and which of them is the device. Private to
 * hypervisor/.
 *
 * For VMMs that report each drive with an id and the path that it was given: Cloud Hypervisor and
 * Firecracker. QEMU's graph of nodes has its own module (qemu_report.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "hypervisor/hypervisor.h"
#include "hypervisor/vmm_process.h"

enum {
    DRIVE_ID_BYTES = 128,
    DRIVE_PATH_BYTES = 4096,
    DRIVE_ADDRESS_BYTES = 16,
    DRIVE_SERIAL_BYTES = 64,
    DRIVE_REPORT_ENTRIES = 1024,
};

struct drive {
    char id[DRIVE_ID_BYTES];
    char *path; /* as given to the VMM; owned */
    bool read_only;
    char address[DRIVE_ADDRESS_BYTES]; /* in the guest, pci:03; "": not reported */
    char serial[DRIVE_SERIAL_BYTES];   /* as given to the VMM; "": not reported */
    const char *obstacle;              /* static: why its size cannot be re-read; NULL: it can */
};

struct drive_report {
    struct drive *entries; /* owned */
    size_t count;
};

void drive_report_done(struct drive_report *report);

/* The drive with this id; NULL: there is none. */
const struct drive *drive_report_get(const struct drive_report *report, const char *id);

/* Appends a copy with this path (drive->path is ignored). UNREACHABLE for an id or path that
 * exceeds its bounds, or an id that exists already, because a report that contradicts itself must
 * not be acted upon; for too many drives, and without memory. */
enum hypervisor_outcome drive_report_add(struct drive_report *report, const struct drive *drive,
                                         const char *path, struct error *error);

/* Whether `act` may be done to this drive, which is the device. DONE, READ_ONLY or UNSUPPORTED. */
enum hypervisor_outcome drive_report_judge(const struct drive *drive,
                                           const struct hypervisor_request *wanted,
                                           enum hypervisor_act act, struct error *error);

/* Finds the drive whose path leads to the device, which the process must also have open.
 * HYPERVISOR_DONE: *ret_drive is set, borrowed from the report, and `act` may be done to it.
 * READ_ONLY and UNSUPPORTED set it too, to name the drive; DRIVE_NOT_FOUND and MISMATCH leave it
 * unchanged. `error` has the reason. */
enum hypervisor_outcome drive_report_find(const struct drive_report *report,
                                          const struct hypervisor_request *wanted,
                                          struct vmm_process *process,
                                          const struct drive **ret_drive, struct error *error);
