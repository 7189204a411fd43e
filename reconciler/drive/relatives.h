/* SPDX-License-Identifier: Apache-2.0 */
/* relatives.h - the devices that share sectors with a disk: the disk that a partition belongs to,
 * the lower devices of an LVM or dm-crypt volume, the partitions of a disk. Private to
 * reconciler/drive/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { DRIVE_RELATIVES = 320 /* a disk has at most 256 partitions */ };

struct drive_relatives {
    dev_t device[DRIVE_RELATIVES];
    unsigned count;
};

/* Adds those of one disk, without that itself. false: there may be more of them. */
bool drive_relatives_add(int sysfs, uint32_t major, uint32_t minor,
                         struct drive_relatives *relatives);

bool drive_relatives_include(const struct drive_relatives *relatives, dev_t device);
