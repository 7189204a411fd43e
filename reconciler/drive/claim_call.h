/* SPDX-License-Identifier: Apache-2.0 */
/* claim_call.h - runs drive_claim() in a process of its own.
 *
 * open(2) of a block device may block for as long as storage does not answer, even with O_NONBLOCK:
 * the kernel waits for the device's mutex, which another open of a dead disk holds; the SCSI layer
 * waits for its error handling (sd_open() in drivers/scsi/sd.c); and the kernel may read the
 * partition table (bdev_open() in block/bdev.c).
 *
 * The process returns the descriptor over a socket, and with it the exclusive claim.
 */
#pragma once

#include <errno.h>
#include <stdint.h>

#include "lib/loop.h"
#include "reconciler/drive/claim.h"

enum drive_claim_failure { DRIVE_CLAIM_HANGS = -ETIMEDOUT };

struct drive_claim_reply {
    int outcome; /* as drive_claim() returns; HANGS: not finished in time */
    int fd;      /* set it to -1 to keep it; -1: none */
    struct store_drive_mount_disk disk;
    struct store_drive_mount_disk backing;
    struct error error; /* for people, unless OPEN */
};

struct drive_claim_call;

typedef void drive_claim_done(struct drive_claim_call *call, struct drive_claim_reply *reply,
                              void *userdata);

/* Exactly one `done` from the loop, never from within. keep: the descriptor is wanted; otherwise
 * the disk is closed again before `done`. The request is not needed afterwards. After HANGS nothing
 * is claimed, even if the disk answers later: the process is killed and ends once the kernel lets
 * it. Until then no other process is started for this disk. 0; the errors of child_new(); another
 * -errno.
 */
int drive_claim_call_new(struct loop *loop, const struct drive_claim_request *request, bool keep,
                         uint64_t patience_ns, drive_claim_done *done, void *userdata,
                         struct drive_claim_call **ret_call);

struct drive_claim_call *drive_claim_call_free(struct drive_claim_call *call); /* returns NULL */
