/* SPDX-License-Identifier: Apache-2.0 */
/* drive.h - drives: disks of the host that a client has attached to a running VM and mounted in it.
 *
 * Bounds and choices are those of crust.drive.v1. The fields HostPath, VMPath, FilesystemType,
 * Options and RateLimiter are firecracker-containerd's proposal "Drive Mount Support"; the rate
 * limiter's are Firecracker's token bucket (docs/api_requests/patch-block of Firecracker). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    DRIVE_ID_CHARS = 36,     /* [A-Za-z0-9_-]; a UUID fits */
    DRIVE_SERIAL_CHARS = 20, /* what virtio-blk has room for; the other disks have more */
    DRIVE_OPTIONS = 32,
    DRIVE_OPTION_CHARS = 255,
    DRIVE_FS_TYPE_CHARS = 31,
    DRIVE_PATH_CHARS = 1023,       /* of host_path, vm_path and paths in containers */
    DRIVE_CONTAINERS = 16,         /* of one drive */
    DRIVE_CONTAINER_ID_CHARS = 64, /* as in OCI: [A-Za-z0-9._-] */
};

/* The database keeps the names. REQUESTED to READY are reached on the way in, in this order,
 * ATTACHED only where the guest is asked after the attach; UNMOUNTING to REMOVED on the way out.
 * Each is committed before the act that follows it, so after a crash that act may have been done,
 * in part, or not. */
enum drive_state {
    DRIVE_REQUESTED, /* the next act opens the host's disk */
    DRIVE_CLAIMED,   /* … hands it to the VMM */
    DRIVE_ATTACHED,  /* … asks the guest what it has of it */
    DRIVE_SEEN,      /* … has the guest find and mount it */
    DRIVE_MOUNTED,   /* the guest has mounted and synced it: no act follows before READY */
    DRIVE_READY,
    DRIVE_UNMOUNTING, /* the next act has the guest unmount it, or takes what the VMM has left of a
                         device that somebody took from a guest that had not unmounted it */
    DRIVE_UNMOUNTED,  /* … has the guest let go of the disk, if its VMM chose the serial */
    DRIVE_REMOVING, /* … takes it from the VMM, until the VMM and the host agree that it is gone */
    DRIVE_REMOVED,
    DRIVE_FAILED,
    DRIVE_LOST,
    DRIVE_STATES,
};

const char *drive_state_name(enum drive_state state);

/* DRIVE_STATES: a state of another version, whose name is "other" here. */
enum drive_state drive_state_from_name(const char *name);

/* Nothing more is done about the drive: REMOVED, FAILED or LOST. */
bool drive_state_is_end(enum drive_state state);

/* The guest has said that it does not have the disk mounted, or was never asked to mount it: so
 * nothing in its memory is missing on the disk. */
bool drive_state_is_flushed(enum drive_state state);

/* What is done about the file system before it is mounted. */
enum drive_fsck { DRIVE_FSCK_NONE, DRIVE_FSCK_PREEN, DRIVE_FSCKS };
const char *drive_fsck_name(enum drive_fsck fsck);
enum drive_fsck drive_fsck_from_name(const char *name); /* DRIVE_FSCKS: none of them */

/* Which entries get the group: the pod's fsGroupChangePolicy. */
enum drive_group_policy { DRIVE_GROUP_ALWAYS, DRIVE_GROUP_ON_ROOT_MISMATCH, DRIVE_GROUP_POLICIES };
const char *drive_group_policy_name(enum drive_group_policy policy);
enum drive_group_policy drive_group_policy_from_name(const char *name);

/* A token bucket: `size` tokens (bytes or operations) flow in every refill_ms; a burst beyond that
 * once. size 0: no limit. */
struct drive_bucket {
    uint64_t size;
    uint64_t refill_ms;
    uint64_t one_time_burst;
};

struct drive_limits {
    struct drive_bucket bandwidth;
    struct drive_bucket operations;
};
