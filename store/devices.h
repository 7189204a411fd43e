/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - devices, their lower devices, and disks that announced a new size. */
#pragma once

#include "model/volume.h"
#include "store/bounds.h"
#include "store/drive_mounts.h"

struct store_device {
    enum device_kind kind;
    const char *name;            /* /dev/loop0, or the file's path */
    uint32_t major, minor;       /* block */
    uint64_t diskseq;            /* block; 0 unknown */
    uint64_t file_device, inode; /* file: st_dev and st_ino */
    uint64_t size_bytes;
    uint64_t now_ns;
};

/* Identity is (kind, major, minor, diskseq) or (kind, file_device, inode) within this boot; a new
 * identity is a new row. */
int store_put_device(struct store *store, const struct store_device *device, int64_t *ret_device_id,
                     bool *ret_changed);

/* Records a capacity-change event: the disk has grown, and keeps its old size until it is
 * rescanned. Ignored if the size changed after since_ns, because the event may have come with that
 * change; the size that the disk was first seen with does not count as a change. A new size, or
 * store_forget_announcements(), ends the announcement. ret_changed: it was not on record. */
int store_note_capacity_change(struct store *store, int64_t device_id, uint64_t since_ns,
                               bool *ret_changed);
int store_is_announced(struct store *store, int64_t device_id, bool *ret_announced);
int store_forget_announcements(struct store *store);

struct store_disk {
    int64_t device_id;
    char name[STORE_NAME_BYTES];
    uint32_t major, minor;
    uint64_t diskseq, size_bytes;
};
/* A disk that announced a new size, that is the device or one of its lower devices, and whose last
 * rescan was not after the given time. An enum store_found, or a failure. */
int store_find_announced(struct store *store, int64_t device_id, uint64_t before_ns,
                         struct store_disk *ret_disk);
/* It is about to be rescanned: journaled as rescan_disk_intended. */
int store_intend_rescan(struct store *store, int64_t volume_id, const struct store_disk *disk,
                        uint64_t now_ns);
/* It was rescanned and now has this size. error "": the announcement is answered. */
int store_put_rescan_result(struct store *store, int64_t volume_id, const struct store_disk *disk,
                            uint64_t bytes, const char *error);

/* The device's layers, itself first. */
enum { STORE_LAYERS = 32 };
struct store_layer {
    int64_t layer_id; /* a device */
    unsigned above;   /* position of what stands on it */
    const char *kind; /* static */
    char label[STORE_NAME_BYTES];
    uint64_t base_bytes, above_bytes; /* its size and that of the one above, when last in step */
    unsigned state;                   /* 0 in step, 1 pending, 2 stale: the worst is the device's */
    char remedy[STORE_TEXT_BYTES];    /* a command; "" */
};
/* The layers as last recorded; `kind` stays NULL. */
int store_get_layers(struct store *store, int64_t device_id,
                     struct store_layer ret_layer[static STORE_LAYERS], unsigned *ret_layers);
int store_put_layers(struct store *store, int64_t device_id, const struct store_layer *layer,
                     unsigned layers);

/* Which device a volume's path leads to now; 0: none. */
int store_set_volume_device(struct store *store, int64_t volume_id, int64_t device_id,
                            bool *ret_changed);

/* ---- disk users ----------------------------------------------------------------------------- */

/* Who has a disk, as far as it is on record. */

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
