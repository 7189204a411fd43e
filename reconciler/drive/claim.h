/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - finds the host's disk of a drive mount, checks it, and opens it exclusively.
 *
 * A block device is opened with O_EXCL. The kernel then refuses every other exclusive use of it and
 * of the disk that it is a part of: mounts, swap, device mapper, md, another claim. A VMM that gets
 * the descriptor keeps the claim for as long as it holds a copy, and the claim ends with the VMM
 * (open(2), block/bdev.c; tried with QEMU 7.2). This does not detect a VMM that opened the device
 * itself: in_use.c searches for it by number. Nor does it detect a loop device above it (losetup,
 * mount -o loop), so those are asked.
 *
 * O_EXCL has no effect on a regular file. The file must belong to root, have one link, be writable
 * by root only, and must not back a loop device.
 *
 * This is the only place in crustd that opens a block device, with loops.c, which opens the loop
 * devices that are asked. It may block, so it runs in a worker (below). */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "config/config.h"
#include "lib/result.h"
#include "lib/workers.h"
#include "model/drive.h"
#include "store/drive_mounts.h"

struct context;
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
    const char *prefixes[CONFIG_LIST_ITEMS]; /* directories, absolute */
    unsigned prefix_count;
    bool writable;
    bool is_new; /* no VM has it, so the backing of a loop device must have no other user */
    bool keep;   /* in a worker: the descriptor is wanted; else the disk is closed again */
};

/* Returns an enum drive_claim_outcome, or -errno of a failure unrelated to the disk. `error` has
 * the path and the reason. The caller owns *ret_fd: O_CLOEXEC, and read-only unless `writable`.
 * *ret_disk also identifies a block device that was refused; its size is 0 unless it was opened.
 * *ret_backing (NULL: not asked for, which takes an answer of its storage) is what backs a loop
 * device, or of kind OTHER: a loop device holds no claim of that, so in_use.c searches for its
 * users as well. */
int drive_claim(const struct drive_claim_request *request, int *ret_fd,
                struct store_drive_mount_disk *ret_disk, struct store_drive_mount_disk *ret_backing,
                struct error *error);

/* The rest of an absolute path below the directory; NULL: the path is not below it. */
const char *drive_path_below(const char *path, const char *directory);

/* ---- claim call ----------------------------------------------------------------------------- */

/* Runs drive_claim() in a worker, which gives crustd the descriptor, and with it the exclusive
 * claim.
 *
 * open(2) of a block device may block for as long as storage does not answer, even with O_NONBLOCK:
 * the kernel waits for the device's mutex, which another open of a dead disk holds; the SCSI layer
 * waits for its error handling (sd_open() in drivers/scsi/sd.c); and the kernel may read the
 * partition table (bdev_open() in block/bdev.c).
 */

enum drive_claim_failure { DRIVE_CLAIM_HANGS = -ETIMEDOUT };

struct drive_claim_reply {
    int outcome; /* as drive_claim() returns; HANGS: not finished in time */
    int fd;      /* set it to -1 to keep it; -1: none */
    struct store_drive_mount_disk disk;
    struct store_drive_mount_disk backing;
    struct error error; /* for people, unless OPEN */
};

/* Zero-initialised, and embedded in its owner. */
struct drive_claim_call {
    struct job job;
    bool keep;
    uint64_t patience_ns;
    const char *name; /* of the disk, in errors; borrowed */
    void (*done)(struct drive_claim_call *call, struct drive_claim_reply *reply);
};

typedef void drive_claim_done(struct drive_claim_call *call, struct drive_claim_reply *reply);

/* Exactly one `done` from the loop, never from within, if it returns 0; else the errors of
 * job_start(). The request is not needed afterwards. After HANGS nothing is claimed, even if the
 * disk answers later: the worker is killed and ends once the kernel lets it. Until then no other
 * worker is asked for this disk. */
int drive_claim_start(struct drive_claim_call *call, const struct drive_claim_request *request,
                      const char *name, uint64_t patience_ns, drive_claim_done *done);
void drive_claim_stop(struct drive_claim_call *call);

/* ---- in use --------------------------------------------------------------------------------- */

/* Finds out who on this node uses a disk.
 *
 * O_EXCL (above) detects mounts, swap, device mapper and other claims. It does not detect a VMM
 * that opened the device without it, or the users of a regular file. So this searches by identity:
 *
 *   - the record: volumes on the disk that live sandboxes have, or that are staged for containers
 *     to come, and other drive mounts of it;
 *   - the open descriptors of all processes of the node, by the device's number or by file system
 *     and inode. A VMM that has the disk open counts, and so does any other process that may write
 *     to it. Readers that are no VMMs (udev, blkid) do not count.
 *
 * A VMM also counts if it has a related device (below). The backing of a loop device counts as the
 * disk itself. A read-only drive tolerates users that only read; a writable drive tolerates none.
 * crustd's own descriptors do not count.
 *
 * The answer holds for the moment of the search. To exclude a race, claim the disk, record it
 * (store_set_drive_mount_disk()), and only then search, before the VMM gets it. Of two drives that
 * do so at the same time at least one finds the other.
 */
enum drive_in_use_outcome {
    DRIVE_IN_USE_NOT,
    DRIVE_IN_USE_BY_OTHERS, /* the text names one user: sandbox, process, volume or drive, and
                               whether it may write */
    DRIVE_IN_USE_BY_ORPHAN, /* likewise, and the user is to be ended by an operator */
    DRIVE_IN_USE_UNKNOWN,   /* the text names what could not be examined */
};

struct drive_in_use_request {
    const struct store_drive_mount_disk *disk;
    const struct store_drive_mount_disk *backing; /* of a loop device; NULL, OTHER: none */
    const char *drive_id;                         /* its own row does not count; NULL: none */
    pid_t own_vmm; /* a VMM that got the disk for this drive earlier: its descriptors do not count;
                      0: none */
    bool writable;
};

struct drive_in_use_reply {
    enum drive_in_use_outcome outcome;
    struct error error; /* for people, unless NOT */
};

/* Zero-initialised, and embedded in its owner. */
struct drive_in_use_call {
    struct job job;
    void (*done)(struct drive_in_use_call *call, const struct drive_in_use_reply *reply);
};

typedef void drive_in_use_done(struct drive_in_use_call *call,
                               const struct drive_in_use_reply *reply);

/* Exactly one `done`, from the loop or from within. */
void drive_in_use_start(struct drive_in_use_call *call, const struct context *context,
                        const struct drive_in_use_request *request, drive_in_use_done *done);
void drive_in_use_stop(struct drive_in_use_call *call);

/* ---- loops ---------------------------------------------------------------------------------- */

/* Loop devices above a disk, and the backing of a loop device. A loop device takes no exclusive
 * claim of the block device that it stands on, and the kernel, not a process, has that or the file
 * open. So the loop devices are asked, which takes an answer of their storage: only the worker that
 * claims a disk does so. */

/* Where the host has mounted the block device, or "swap"; cut if it does not fit.
 * OBSERVED, OBSERVED_ABSENT: nowhere, or -errno: the mounts cannot be read. */
int drive_loops_find_mount(const struct drive_claim_request *request, uint32_t major,
                           uint32_t minor, char *ret_where, size_t size);

/* DRIVE_CLAIM_OPEN: no loop device but the one of the number `spared` (-1: none) is backed by the
 * disk, or by one that shares data with it; and if it is_new, no loop device below it is backed by
 * another one. Otherwise as drive_claim(). */
int drive_loops_refuse(const struct drive_claim_request *request, const struct stat *disk,
                       int spared, struct error *error);

/* Identifies the backing of the disk, open as fd, if that is a loop device; else its kind is OTHER.
 * If it is_new, that may not be or stand on a loop device, and may not have a user that O_EXCL
 * would have found: a mount, a device above it, another loop device. Returns as drive_claim(). */
int drive_loops_examine(const struct drive_claim_request *request, int fd,
                        const struct store_drive_mount_disk *disk,
                        struct store_drive_mount_disk *ret_backing, struct error *error);

/* ---- relatives ------------------------------------------------------------------------------ */

enum { DRIVE_RELATIVES = 320 /* a disk has at most 256 partitions */ };

/* The devices that share sectors with a disk: the disk that a partition belongs to, the lower
 * devices of an LVM or dm-crypt volume, the partitions of a disk. */
struct drive_relatives {
    dev_t device[DRIVE_RELATIVES];
    unsigned count;
    dev_t disk;  /* whose are being added */
    bool is_cut; /* there are more */
};

/* Adds those of one disk, without that itself. false: there may be more of them. */
bool drive_relatives_add(int sysfs, uint32_t major, uint32_t minor,
                         struct drive_relatives *relatives);

bool drive_relatives_include(const struct drive_relatives *relatives, dev_t device);

/* ---- serial --------------------------------------------------------------------------------- */

/* The serial by which a guest finds the disk of a drive mount. Pure.
 *
 * "crust-" and 14 characters of base32: 70 bits of a SHA-256 over boot, sandbox and drive. So a
 * drive has the same serial after a restart of crustd, and two drives of a node share one only by
 * an unlikely collision. virtio-blk has room for 20 characters.
 */

void drive_serial_make(const char *boot_id, const char *sandbox_id, const char *drive_id,
                       char ret_serial[static DRIVE_SERIAL_CHARS + 1]);
