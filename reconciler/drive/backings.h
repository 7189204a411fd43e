/* SPDX-License-Identifier: Apache-2.0 */
/* backings.h - what a loop device stands on: a file, a block device, or another loop device and
 * what that stands on. Private to reconciler/drive/. */
#pragma once

#include "store/drive_mounts.h"

enum { DRIVE_BACKINGS = 8 };

/* From the top down, without their sizes. None: the disk is no loop device. */
struct drive_backings {
    struct store_drive_mount_disk backing[DRIVE_BACKINGS];
    unsigned count;
};
