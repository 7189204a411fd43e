/* SPDX-License-Identifier: Apache-2.0 */
/* drive_find.h - a drive's disk: waited for, and compared with what was asked for.
 *
 * The VMM tells the guest of a new disk, and the disk is there some milliseconds later. Where the
 * notice is lost, or the guest has removed the disk itself, only a scan of the buses finds it: it
 * is asked for once a second. Firecracker gives no notice: for a serial of its form the PCI bus is
 * scanned before the first look as well, also because another disk may have the same serial.
 *
 * These functions block, and are for a process of their own.
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
    uint64_t deadline_ns; /* on the boottime clock; 0: it is there now or not at all */
};

/* STATUS_OK; UNAVAILABLE: no such disk by the deadline; FAILED_PRECONDITION: several; INTERNAL: by
 * then the disks, or one of them, could not be read. The error is filled unless OK. */
enum status_code drive_find(const struct drive_find_request *request, struct drive_disk *ret_disk,
                            struct error *error);

/* Whether the disk has the size and the access that the drive was attached with. OK or
 * FAILED_PRECONDITION. */
enum status_code drive_find_check(const struct drive_disk *disk, uint64_t bytes, bool read_only,
                                  struct error *error);

enum drive_find_failure {
    DRIVE_FIND_IN_USE = -EBUSY,  /* with O_EXCL */
    DRIVE_FIND_ABSENT = -ENOENT, /* no node, one of another disk, or one whose disk is not there */
};

/* Opens the disk's node. flags: of open(2). 0, IN_USE, ABSENT or another -errno. */
int drive_find_open(const struct drive_find_request *request, const struct drive_disk *disk,
                    int flags, int *ret_fd);

/* The same by the path of a node, wherever that is. */
int drive_find_open_node(const char *path, const struct drive_disk *disk, int flags, int *ret_fd);
