/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - finds the host's disk of a drive mount, checks it, and opens it exclusively.
 *
 * A block device is opened with O_EXCL. The kernel then refuses every other exclusive use of it and
 * of the disk that it is a part of: mounts, swap, device mapper, md, another claim. A VMM that gets
 * the descriptor keeps the claim for as long as it holds a copy, and the claim ends with the VMM
 * (open(2), block/bdev.c; tried with QEMU 7.2). This does not detect a VMM that opened the device
 * itself: in_use.h searches for it by number. Nor a loop device that stands on it (losetup, mount
 * -o loop), so those are asked.
 *
 * O_EXCL has no effect on a regular file. The file must belong to root, have one link, be writable
 * by root only, and must not back a loop device.
 *
 * This is the only place in crustd that opens a block device, with loops.h, which opens the loop
 * devices that are asked. It may block, so claim_call.h runs it in a process of its own. */
#pragma once

#include "lib/result.h"
#include "store/drive_mounts.h"

struct observed_mounts;

enum drive_claim_outcome {
    DRIVE_CLAIM_OPEN,
    DRIVE_CLAIM_OUTSIDE,    /* the path is outside drives.host_prefixes */
    DRIVE_CLAIM_MISSING,    /* nothing is at the path */
    DRIVE_CLAIM_UNSUITABLE, /* not a disk, a file that others can change, empty, or on loop devices
                               that stand on each other */
    DRIVE_CLAIM_READ_ONLY,  /* but shall be writable */
    DRIVE_CLAIM_IN_USE,
    DRIVE_CLAIM_TAKEN,     /* open exclusively, and the host's tables do not show who has it */
    DRIVE_CLAIM_FORBIDDEN, /* crustd's unit or pod may not open block devices */
};

struct drive_claim_request {
    int root;  /* the host's root, as in path.h */
    int sysfs; /* an open directory */
    int (*read_mounts)(int sysfs, struct observed_mounts **ret_mounts); /* as observe_mounts() */
    const char *host_path;
    const char *const *prefixes; /* directories, absolute */
    unsigned prefix_count;
    bool writable;
    bool is_new; /* no VM has it, so what a loop device stands on must have no other user */
};

/* Returns an enum drive_claim_outcome, or -errno of a failure unrelated to the disk. `error` has
 * the path and the reason. The caller owns *ret_fd: O_CLOEXEC, and read-only unless `writable`.
 * *ret_disk also identifies a block device that was refused; its size is 0 unless it was opened.
 * *ret_backing (NULL: not asked for, which takes an answer of its storage) is what a loop device
 * stands on, or of kind OTHER: a loop device holds no claim of that, so in_use.h searches for its
 * users as well. */
int drive_claim(const struct drive_claim_request *request, int *ret_fd,
                struct store_drive_mount_disk *ret_disk, struct store_drive_mount_disk *ret_backing,
                struct error *error);

/* Where the host has mounted the block device, or "swap"; cut if it does not fit. For loops.h.
 * OBSERVED, OBSERVED_ABSENT: nowhere, or -errno: the mounts cannot be read. */
int drive_claim_find_mount(const struct drive_claim_request *request, uint32_t major,
                           uint32_t minor, char *ret_where, size_t size);
