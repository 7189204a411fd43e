/* SPDX-License-Identifier: Apache-2.0 */
/* drive_unmount.h - takes a drive away from the guest, or changes nothing and says who holds it.
 *
 * Done means: nobody in the guest has the file system or the disk open, and everything that was
 * written is on the disk. The proof is an exclusive open(2) of the disk, which the kernel refuses
 * while anybody has the file system mounted, in whatever namespace.
 *
 * Of containers the request names those that were given the mount: it is taken from them first, and
 * does not count as held by them. Where the rest fails they get it back at once. What can be seen
 * to be in the way is looked for before.
 *
 * Blocks, and is for a process of its own.
 *
 * Source: umount2(2), open(2) (O_EXCL of a block device), Documentation/ABI (the attribute `delete`
 * of a SCSI device), Documentation/ABI/testing/sysfs-bus-pci (`rescan` of the bus, `remove` of a
 * function).
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/result.h"
#include "lib/status.h"

struct drive_unmount_work {
    const struct drive_unmount_request *request;
    const char *sysfs;    /* "/sys" */
    const char *devices;  /* "/dev" */
    const char *proc;     /* "/proc" */
    uint64_t deadline_ns; /* for the kernel to let go of the disk, and for visits to containers; on
                             the boottime clock */
};

/* A status of drive_call.h's list, with a text unless OK. */
enum status_code drive_unmount_run(const struct drive_unmount_work *work,
                                   struct drive_unmount_answer *ret_answer, struct error *error);
