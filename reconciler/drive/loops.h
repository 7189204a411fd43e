/* SPDX-License-Identifier: Apache-2.0 */
/* loops.h - loop devices on a disk, and what a loop device stands on. Private to reconciler/drive/.
 *
 * A loop device takes no exclusive claim of the block device that it stands on, and the kernel, not
 * a process, has that or the file open. So the loop devices are asked, which takes an answer of
 * their storage: only the process that claims a disk does so.
 */
#pragma once

#include <sys/stat.h>

#include "reconciler/drive/claim.h"

/* DRIVE_CLAIM_OPEN: no loop device stands on the disk, or on one that shares data with it; nor, if
 * it is_new, does it stand on a loop device that stands on another one. Otherwise as
 * drive_claim(). */
int drive_loops_refuse(const struct drive_claim_request *request, const struct stat *disk,
                       struct error *error);

/* Identifies what the disk, open as fd, stands on if it is a loop device; kind OTHER: it is none.
 * If it is_new, that may not be or stand on a loop device, and may not have a user that O_EXCL
 * would have found: a mount, a device above it, another loop device. Returns as drive_claim(). */
int drive_loops_examine(const struct drive_claim_request *request, int fd,
                        const struct store_drive_mount_disk *disk,
                        struct store_drive_mount_disk *ret_backing, struct error *error);
