/* SPDX-License-Identifier: Apache-2.0 */
/* disk_users.h - who has a disk, as far as it is on record. */
#pragma once

#include "store/bounds.h"
#include "store/drive_mounts.h"

enum store_disk_user_kind {
    STORE_DISK_USER_ORPHAN, /* a VMM that has outlived its shim has it open */
    STORE_DISK_USER_VOLUME, /* of a sandbox that is alive */
    STORE_DISK_USER_STAGED, /* a volume of none: a container to come brings the disk into its VM */
    STORE_DISK_USER_DRIVE,
    STORE_DISK_USER_UNSTAGED, /* as VOLUME, and its metadata is gone */
};

struct store_disk_user {
    enum store_disk_user_kind kind;
    char name[STORE_TARGET_BYTES]; /* the drive's id, the volume's path, or its key while that is
                                      not known, the VMM's pid; "" unknown */
    char sandbox_id[STORE_SANDBOX_ID_BYTES]; /* "" of STAGED */
    bool writable;
};

/* The callback must not write; returning non-zero ends the walk and is what it returns. */
typedef int store_disk_user_callback(void *userdata, const struct store_disk_user *user);

/* Volumes on this disk whose metadata is there or that a live sandbox has, orphaned VMMs that
 * have it open, and drive mounts of it that have not ended, except the one of this id (NULL: none).
 * A diskseq of 0 says nothing: then the number alone counts. */
int store_each_disk_user(struct store *store, const struct store_drive_mount_disk *disk,
                         const char *drive_id, store_disk_user_callback *callback, void *userdata);
