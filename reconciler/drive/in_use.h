/* SPDX-License-Identifier: Apache-2.0 */
/* in_use.h - finds out who on this node uses a disk.
 *
 * O_EXCL (claim.h) detects mounts, swap, device mapper and other claims. It does not detect a VMM
 * that opened the device without it, or the users of a regular file. So this searches by identity:
 *
 *   - the record: volumes on the disk that live sandboxes have, or that are staged for containers
 *     to come, and other drive mounts of it;
 *   - the open descriptors of all processes of the node, by the device's number or by file system
 *     and inode. A VMM that has the disk open counts, and so does any other process that may write
 *     to it. Readers that are no VMMs (udev, blkid) do not count.
 *
 * A VMM also counts if it has a related device: the disk that a partition belongs to, a lower
 * device of an LVM or dm-crypt volume, or a partition of the disk. What a loop device stands on
 * counts as the disk itself.
 *
 * A read-only drive tolerates users that only read; a writable drive tolerates none.
 *
 * The answer holds for the moment of the search. To exclude a race, claim the disk, record it
 * (store_set_drive_mount_disk()), and only then search, before the VMM gets it. Of two
 * drives that do so at the same time at least one finds the other. crustd's own descriptors do not
 * count.
 */
#pragma once

#include <sys/types.h>

#include "lib/result.h"
#include "store/drive_mounts.h"

struct context;

enum drive_in_use_outcome {
    DRIVE_IN_USE_NOT,
    DRIVE_IN_USE_BY_OTHERS, /* the text names one user: sandbox, process, volume or drive, and
                               whether it may write */
    DRIVE_IN_USE_BY_ORPHAN, /* likewise, and the user is to be ended by an operator */
    DRIVE_IN_USE_UNKNOWN,   /* the text names what could not be examined */
};

struct drive_in_use_request {
    const struct store_drive_mount_disk *disk;    /* copied */
    const struct store_drive_mount_disk *backing; /* of a loop device; copied; NULL, OTHER: none */
    const char *drive_id; /* its own row does not count; copied; NULL: none */
    pid_t own_vmm; /* a VMM that got the disk for this drive earlier: its descriptors do not count;
                      0: none */
    bool writable;
};

struct drive_in_use_reply {
    enum drive_in_use_outcome outcome;
    struct error error; /* for people, unless NOT */
};

struct drive_in_use_call;

typedef void drive_in_use_done(struct drive_in_use_call *call,
                               const struct drive_in_use_reply *reply, void *userdata);

/* Searches in slices of a few milliseconds. Exactly one `done` from the loop, never from within;
 * the owner frees the call then or earlier. Needs the context's loop, store and sysfs. 0 or
 * -ENOMEM. */
int drive_in_use_call_new(const struct context *context, const struct drive_in_use_request *request,
                          drive_in_use_done *done, void *userdata,
                          struct drive_in_use_call **ret_call);

struct drive_in_use_call *drive_in_use_call_free(struct drive_in_use_call *call); /* NULL */
