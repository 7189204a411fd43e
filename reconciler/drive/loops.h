/* SPDX-License-Identifier: Apache-2.0 */
/* loops.h - loop devices on a disk, and what a loop device stands on. Private to reconciler/drive/.
 *
 * A loop device takes no exclusive claim of the block device that it stands on, and the kernel, not
 * a process, has that or the file open. So the loop devices are asked, which takes an answer of
 * their storage: only the process that claims a disk does so.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "reconciler/drive/backings.h"
#include "reconciler/drive/claim.h"

/* Whether the disk is a loop device. */
bool drive_loops_is_one(const struct store_drive_mount_disk *disk);

/* DRIVE_CLAIM_OPEN: no loop device stands on the disk, or on one that shares data with it.
 * Otherwise as drive_claim(). */
int drive_loops_refuse(const struct drive_claim_request *request, const struct stat *disk,
                       struct error *error);

/* Identifies what this loop device, open as fd, stands on, down through other loop devices. If the
 * disk is_new, none of that may have a user that O_EXCL would have found: a mount, a device above
 * it, another loop device; and DRIVE_BACKINGS must be all of it. Returns as drive_claim(). */
int drive_loops_examine(const struct drive_claim_request *request, int fd,
                        const struct store_drive_mount_disk *loop,
                        struct drive_backings *ret_backings, struct error *error);
