/* SPDX-License-Identifier: Apache-2.0 */
/* loops.h - loop devices on a disk, and what a loop device stands on. Private to reconciler/drive/.
 *
 * A loop device takes no exclusive claim of the block device that it stands on, and the kernel, not
 * a process, has that or the file open. So the loop devices are asked, which takes an answer of
 * their storage: only the process that claims a disk does so.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "model/drive.h"
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

/* ---- relatives ------------------------------------------------------------------------------ */

/* The devices that share sectors with a disk: the disk that a partition belongs to,
 * the lower devices of an LVM or dm-crypt volume, the partitions of a disk. */

enum { DRIVE_RELATIVES = 320 /* a disk has at most 256 partitions */ };

struct drive_relatives {
    dev_t device[DRIVE_RELATIVES];
    unsigned count;
};

/* Adds those of one disk, without that itself. false: there may be more of them. */
bool drive_relatives_add(int sysfs, uint32_t major, uint32_t minor,
                         struct drive_relatives *relatives);

bool drive_relatives_include(const struct drive_relatives *relatives, dev_t device);

/* ---- serial --------------------------------------------------------------------------------- */

/* The serial by which a guest finds the disk of a drive mount. Pure.
 *
 * "crust-" and 14 characters of base32: 70 bits of a SHA-256 over boot, sandbox and drive. So a
 * drive has the same serial after a restart of crustd, and two drives of a node share one only by
 * an unlikely collision. virtio-blk has room for 20 characters.
 */

void drive_serial_make(const char *boot_id, const char *sandbox_id, const char *drive_id,
                       char ret_serial[static DRIVE_SERIAL_CHARS + 1]);
