/* SPDX-License-Identifier: Apache-2.0 */
/* drive_find.h - waits for a drive's disk and compares it with the request.
 *
 * The VMM notifies the guest of a new disk, which appears some milliseconds later. If the
 * notification is lost, or the guest has removed the disk itself, only a scan of the buses finds
 * it, so they are scanned once a second. Firecracker does not notify its guest: for a serial of its
 * form the PCI bus is also scanned before the first read, also because another disk may have the
 * same serial.
 *
 * These functions block: to be called in a process of their own.
 */
#pragma once

#include <errno.h>

#include "guest-agent/drive_disk.h"
#include "lib/result.h"
#include "lib/status.h"

struct drive_find_request {
    const char *sysfs;   /* "/sys" */
    const char *devices; /* "/dev" */
    const char *serial;
    uint64_t deadline_ns; /* on the boottime clock; 0: do not wait */
};

/* STATUS_OK; UNAVAILABLE: no such disk by the deadline; FAILED_PRECONDITION: several; INTERNAL: the
 * disks, or one of them, could not be read. The error is filled unless OK. */
enum status_code drive_find(const struct drive_find_request *request, struct drive_disk *ret_disk,
                            struct error *error);

/* Whether the disk has the size and the access that the drive was attached with. OK or
 * FAILED_PRECONDITION. */
enum status_code drive_find_check(const struct drive_disk *disk, uint64_t bytes, bool read_only,
                                  struct error *error);

enum drive_find_failure {
    DRIVE_FIND_IN_USE = -EBUSY,  /* with O_EXCL */
    DRIVE_FIND_DENIED = -EPERM,  /* by the device cgroup */
    DRIVE_FIND_ABSENT = -ENOENT, /* no node, that of another disk, or one without a disk */
};

/* Opens the disk's node. flags: of open(2). 0, IN_USE, ABSENT or another -errno. */
int drive_find_open(const struct drive_find_request *request, const struct drive_disk *disk,
                    int flags, int *ret_fd);

/* The same by the path of the node. */
int drive_find_open_node(const char *path, const struct drive_disk *disk, int flags, int *ret_fd);
