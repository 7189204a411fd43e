/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - the host's disk of a drive mount: found, judged, and opened for nobody else.
 *
 * A block device is opened with O_EXCL. The kernel then refuses every other exclusive use of it and
 * of the disk that it is a part of: mounts, swap, device mapper, md, another claim. A VMM that gets
 * the descriptor keeps the claim for as long as it holds a copy, and the claim ends with the VMM
 * (open(2), block/bdev.c; tried with QEMU 7.2). A VMM that opened the device by itself is not seen
 * this way: VMMs' own lists are searched for it by number.
 *
 * Of a regular file O_EXCL says nothing. It must be root's, have one link, be writable by nobody
 * else, and be no loop device's backing file.
 *
 * This is the only place in crustd that opens a block device. It may block: claim_call.h has it run
 * in a process of its own. */
#pragma once

#include "lib/result.h"
#include "store/drive_mounts.h"

struct observed_mounts;

enum drive_claim_outcome {
    DRIVE_CLAIM_OPEN,
    DRIVE_CLAIM_OUTSIDE,    /* of the directories that the operator allows */
    DRIVE_CLAIM_MISSING,    /* nothing is there */
    DRIVE_CLAIM_UNSUITABLE, /* no disk, or a file that somebody else can change; empty */
    DRIVE_CLAIM_READ_ONLY,  /* and is to be written to */
    DRIVE_CLAIM_IN_USE,
    DRIVE_CLAIM_TAKEN,     /* open exclusively, and the host's tables do not say by whom */
    DRIVE_CLAIM_FORBIDDEN, /* to crustd: its unit or pod may open no block device */
};

struct drive_claim_request {
    int root;                             /* the host's root, as in path.h */
    int sysfs;                            /* an open directory */
    const struct observed_mounts *mounts; /* to say who uses it; may be NULL */
    const char *host_path;
    const char *const *prefixes; /* directories, absolute */
    unsigned prefix_count;
    bool writable;
};

/* Outcomes of drive_claim(): an enum drive_claim_outcome, or -errno of a failure that says nothing
 * about the disk. `error` says which path and why. ret_fd is the caller's, O_CLOEXEC, read-only
 * unless writable. ret_disk also says which block device the path leads to where that is refused,
 * with its size 0 unless it was opened. */
int drive_claim(const struct drive_claim_request *request, int *ret_fd,
                struct store_drive_mount_disk *ret_disk, struct error *error);
