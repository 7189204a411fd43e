/* SPDX-License-Identifier: Apache-2.0 */
/* drive_unmount.h - unmounts a drive for good, or changes nothing and names its holders.
 *
 * OK means that nobody in the guest has the file system or the disk open, and that all data is on
 * the disk. The proof is an exclusive open(2) of the disk, which the kernel refuses while the file
 * system is mounted in any namespace.
 *
 * The request names the containers that were given the mount: it is taken from them first, and does
 * not count as held by them. If the unmount then fails, they get it back at once. Obstacles that
 * can be seen are looked for before.
 *
 * Blocks: to be called in a process of its own.
 *
 * Source: umount2(2), open(2) (O_EXCL of a block device), Documentation/ABI (the attribute `delete`
 * of a SCSI device), Documentation/ABI/testing/sysfs-bus-pci (`rescan` of the bus, `remove` of a
 * function).
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/result.h"

struct drive_unmount_work {
    const struct drive_unmount_request *request;
    const char *sysfs;    /* "/sys" */
    const char *devices;  /* "/dev" */
    const char *proc;     /* "/proc" */
    uint64_t deadline_ns; /* on the boottime clock: for the kernel to release the disk, and for
                             visits to containers */
};

/* Returns a status listed in drive_call.h, with a text unless OK. */
enum status_code drive_unmount_run(const struct drive_unmount_work *work,
                                   struct drive_unmount_answer *ret_answer, struct error *error);
