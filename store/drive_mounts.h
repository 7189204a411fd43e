/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mounts.h - disks that clients have attached to running VMs.
 *
 * One row per life of a drive_id. The row says what was asked for, which disk it is, how far it
 * got, and whether it is still wanted; it is written before each act, so that a daemon that starts
 * again knows what may have been done. */
#pragma once

#include "lib/result.h"
#include "model/drive.h"
#include "model/volume.h"
#include "store/bounds.h"

/* What the client asked for; equal requests have equal texts and numbers. */
struct store_drive_mount_request {
    char drive_id[DRIVE_ID_CHARS + 1];
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    char host_path[DRIVE_PATH_CHARS + 1];
    char vm_path[DRIVE_PATH_CHARS + 1];
    char fs_type[DRIVE_FS_TYPE_CHARS + 1];
    char *options;    /* a JSON array of texts; NULL: "[]" */
    char *containers; /* a JSON array of {container_id, path, sub_path, read_only}; NULL: "[]" */
    bool writable;
    enum drive_fsck fsck;
    bool has_fs_group;
    uint32_t fs_group;
    enum drive_group_policy fs_group_policy;
    struct drive_limits limits;
};

/* The disk that was opened for it: a block device by number and sequence, a file by inode. */
struct store_drive_mount_disk {
    enum device_kind kind; /* block or file */
    uint32_t major, minor;
    uint64_t diskseq;
    uint64_t file_device, inode;
    uint64_t size_bytes;
};

struct store_drive_mount {
    int64_t drive_ref; /* never given twice */
    int64_t sandbox_ref;
    bool sandbox_is_alive;
    struct store_drive_mount_request request;
    char serial[DRIVE_SERIAL_CHARS + 1];
    bool has_disk; /* it was claimed once */
    struct store_drive_mount_disk disk;
    char guest_device[STORE_NAME_BYTES]; /* "" */
    bool wanted;                         /* in the VM; otherwise it is on its way out */
    enum drive_state state;
    enum status_code status; /* of the last failure; STATUS_OK: none */
    char message[STORE_TEXT_BYTES];
    int64_t requested_ms, ready_ms, ended_ms; /* 0: not yet */
};

void store_drive_mount_done(struct store_drive_mount *drive); /* frees its texts */

/* Whether containers are to have it. */
bool store_drive_mount_has_containers(const struct store_drive_mount *drive);

enum store_drive_mount_added {
    STORE_DRIVE_MOUNT_ADDED,
    STORE_DRIVE_MOUNT_ID_TAKEN,   /* a drive of this id has not ended */
    STORE_DRIVE_MOUNT_PATH_TAKEN, /* another one has this vm_path in this sandbox */
    STORE_DRIVE_MOUNT_NO_SANDBOX, /* no such sandbox lives */
    STORE_DRIVE_MOUNT_TOO_MANY,   /* STORE_DRIVE_MOUNTS have not ended */
};

enum { STORE_DRIVE_MOUNTS = 1024 };

/* A new row in state requested, wanted. An enum store_drive_mount_added, or a failure. */
int store_add_drive_mount(struct store *store, const struct store_drive_mount_request *request,
                          const char *serial, int64_t *ret_drive_ref);

/* The one of this id that has not ended, or else the newest; without an id the one of this number.
 * An enum store_found, or a failure. ret_drive is to be done. */
int store_get_drive_mount(struct store *store, const char *drive_id, int64_t drive_ref,
                          struct store_drive_mount *ret_drive);

/* Those that have not ended, in the order in which they were asked for. The callback must not
 * write; returning non-zero ends the walk. */
typedef int store_drive_mount_callback(void *userdata, const struct store_drive_mount *drive);
int store_each_drive_mount(struct store *store, store_drive_mount_callback *callback,
                           void *userdata);

/* Its state from now on, and why it is not farther: status and message of the last failure, or
 * STATUS_OK and "". An end is for good. Journaled if the state or the status is another. */
int store_set_drive_mount_state(struct store *store, int64_t drive_ref, enum drive_state state,
                                enum status_code status, const char *message);

/* Whether it is to be in the VM; where it was to go, it stays after all, because the guest uses it.
 * Journaled. */
int store_set_drive_mount_wanted(struct store *store, int64_t drive_ref, bool wanted);

int store_set_drive_mount_disk(struct store *store, int64_t drive_ref,
                               const struct store_drive_mount_disk *disk);
/* By which the guest finds the disk, where the VMM has made it. */
int store_set_drive_mount_serial(struct store *store, int64_t drive_ref, const char *serial);
int store_set_drive_mount_guest_device(struct store *store, int64_t drive_ref, const char *device);
int store_set_drive_mount_limits(struct store *store, int64_t drive_ref,
                                 const struct drive_limits *limits);
