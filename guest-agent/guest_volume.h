/* SPDX-License-Identifier: Apache-2.0 */
/* guest_volume.h - the volumes of this guest: how each is found, how full it is, and how its file
 * system grows.
 *
 * Growing needs, in the initial user namespace, CAP_SYS_RESOURCE for ext4, and CAP_SYS_ADMIN for
 * xfs and btrfs. Any mount of the file system serves, a bind mount of a part of it too, if it is
 * writable.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent-client/agent_messages.h"
#include "guest-agent/task.h"
#include "lib/loop.h"
#include "lib/result.h"

/* ---- block devices in sysfs: guest_device.c ------------------------------------------------- */

/* Nothing here opens a device node, so it works in a container whose /dev has none.
 *
 * Sources: Documentation/ABI/stable/sysfs-block (size is in sectors of 512 bytes whatever the
 * device's own sector is), Documentation/ABI/testing/sysfs-block-dm. */

enum { DEVICE_NAME_BYTES = 64 };

/* The failures that callers distinguish. */
enum device_failure {
    DEVICE_MISSING = -ENOENT,    /* there is no block device of that number or name */
    DEVICE_IMPOSSIBLE = -EINVAL, /* nothing can have such a name or address */
};

/* Read an attribute of sysfs below a directory: at most size - 1 bytes and a NUL; a number; a size
 * in bytes; a device's number. The first returns how many bytes, or -errno, the others 0 or -errno.
 */
ssize_t device_read_attribute(int directory, const char *name, char *ret_bytes, size_t size);
int device_read_number(int directory, const char *name, uint64_t *ret_number);
int device_read_size(int directory, const char *name, uint64_t *ret_bytes);
int device_read_device(int directory, const char *name, dev_t *ret_device);
int device_write_attribute(const char *path, const char *text);

/* Bytes. 0, DEVICE_MISSING, another -errno. */
int device_size(dev_t device, uint64_t *ret_bytes);

/* The kernel's name, "vda"; its numbers when it is gone. */
void device_name(dev_t device, char ret_name[static DEVICE_NAME_BYTES]);

/* By the kernel's name. 0, DEVICE_MISSING, DEVICE_IMPOSSIBLE. */
int device_by_name(const char *name, dev_t *ret_device);

/* Whether a layer between the device and its disk keeps it from growing with the disk; a sentence
 * names the layer. */
bool device_layer(dev_t device, char *ret_text, size_t size);

/* Outcomes of finding a disk by where it is attached. */
enum {
    DEVICE_FOUND,
    DEVICE_ABSENT,
    DEVICE_AMBIGUOUS, /* several disks are there */
};

/* A disk by a path of one of these forms. An outcome, DEVICE_IMPOSSIBLE, another -errno.
 *
 *     /dev/NAME   the kernel's name
 *     pci:02/01   Kata's PCI path: the slots (hexadecimal) from the root bus downwards through
 *                 bridges; an optional function ".0" after each
 *     scsi:0:1    SCSI target and LUN, on any controller
 */
int device_by_path(const char *path, dev_t *ret_device);

/* ---- mounted file systems: filesystem.c ----------------------------------------------------- */

enum filesystem_kind {
    FILESYSTEM_OTHER, /* cannot be grown here */
    FILESYSTEM_EXT,   /* ext2, ext3, ext4: one driver, one magic number */
    FILESYSTEM_XFS,
    FILESYSTEM_BTRFS,
};

enum { FILESYSTEM_DEVICES = 16 }; /* of one btrfs */

struct filesystem {
    enum filesystem_kind kind;
    unsigned device_count;
    struct filesystem_device {
        dev_t device;
        uint64_t id;    /* btrfs's number for it */
        uint64_t bytes; /* btrfs: how much of it is in use already */
    } devices[FILESYSTEM_DEVICES];
};

/* "ext4", as in mountinfo. */
enum filesystem_kind filesystem_kind_from_name(const char *name);

/* The devices of the file system of an open directory; `device` is the one in mountinfo, which is
 * the answer except for btrfs. 0, -errno; -ESTALE: by now another file system. */
int filesystem_inspect(int directory, enum filesystem_kind kind, dev_t device,
                       struct filesystem *ret_filesystem);

/* How large ext4 or xfs is and can be, in its own blocks. */
struct filesystem_size {
    uint64_t blocks;
    uint64_t most_blocks; /* that it can ever have */
    uint32_t block_bytes;
    uint32_t first_block; /* of the first group */
    uint32_t group_blocks;
    uint32_t unit_blocks; /* it has a multiple of this many */
    bool is_guess;        /* by statfs(2), which leaves out the file system's own blocks */
};

enum { EXT_SUPERBLOCK_BYTES = 1024 }; /* as many as lie before it */

/* 0, or -EBADMSG: no superblock of ext2, ext3 or ext4. */
int filesystem_read_ext(const uint8_t superblock[static EXT_SUPERBLOCK_BYTES],
                        struct filesystem_size *ret_size);

/* How many blocks it is to have after the next step towards a device of so many bytes. */
uint64_t filesystem_next_size(const struct filesystem_size *size, uint64_t bytes);

/* Outcomes of growing. */
enum {
    FILESYSTEM_GROWN,  /* it fills its devices, by this call or before */
    FILESYSTEM_BUSY,   /* somebody else resizes it: try again soon */
    FILESYSTEM_DENIED, /* a capability is missing; the text says which */
    FILESYSTEM_READ_ONLY,
    FILESYSTEM_UNSUPPORTED, /* this kind of file system, or this kernel, cannot grow it mounted */
    FILESYSTEM_REFUSED,     /* it refuses the size of its device */
    FILESYSTEM_ERRORS,      /* it has recorded errors; nothing but fsck helps */
    FILESYSTEM_SHUT_DOWN,   /* after an error; volume_trouble() finds that out */
    FILESYSTEM_LIMIT,       /* it has grown to the most it can have, and its device is larger */
    FILESYSTEM_OUTCOMES,
};

/* Grows the file system to the present size of its devices, in steps: a process that is killed ends
 * after the one it is in. Never shrinks. Blocks for as long as the kernel takes. Outcome or
 * -errno. */
int filesystem_grow(int directory, const struct filesystem *filesystem, struct error *error);

/* ---- volumes: guest_volume.c ---------------------------------------------------------------- */

struct volume {
    char mount_point[PATH_MAX];
    char file_system[32]; /* "ext4" */
    enum filesystem_kind kind;
    dev_t device;               /* as in mountinfo */
    bool read_only;             /* the mount or its file system */
    bool file_system_read_only; /* by request, or after an error */
    bool shut_down;             /* its mount options say so */
};

/* Outcomes. */
enum {
    VOLUME_FOUND,
    VOLUME_UNKNOWN, /* no such mount or disk, or nothing is mounted from it; the text says which */
};

/* Finds the volume that a path means: a mount point, exactly as in /proc/self/mountinfo, or a
 * disk's path, as above. A disk means the file system on it, by a mount that can be written if
 * there is one. A mount point of Kata's Go runtime (/run/kata-containers/sandbox/storage/MDIvMDE=)
 * that is not mounted here, as in a sidecar, means the disk that its name encodes. Outcome or
 * -errno. */
int volume_find(const char *path, struct volume *ret_volume, struct error *error);

/* The same for a mount point only. */
int volume_find_mount(const char *path, struct volume *ret_volume, struct error *error);

/* A file system without a device of its own (tmpfs, virtiofs, overlay) has an anonymous number. */
bool volume_has_device(const struct volume *volume);

/* A known problem of the file system, as one sentence, and the outcome of filesystem_grow() that it
 * stands for; NULL if there is none. */
const char *volume_trouble(const struct volume *volume, int *ret_outcome);

/* Whether it is by this errno that open(2) and stat(2) fail on a file system that was shut down. */
bool volume_fails_as_shut_down(int error_number);

/* For growing: if the mount is read-only, another writable mount of the same file system, if there
 * is any. */
void volume_prefer_writable(struct volume *volume);

/* Opens the volume's root directory and checks that it still is that file system. 0 or -errno. */
int volume_open(const struct volume *volume, struct filesystem *ret_filesystem, int *ret_fd);

/* One mount of each file system of a kind that can be grown, if it can be reached and is writable
 * or was shut down: 256 at most. only: of this device alone; 0: of all. The caller frees the
 * volumes. 0 or -errno. */
int volume_list(dev_t only, struct volume **ret_volumes, size_t *ret_count);

/* How full it is, in bytes and inodes, if its statfs(2) does not wait: if it is on a device.
 *
 * As the kubelet counts: available is what a user who is not root can write. A file system that has
 * recorded errors, was shut down or does not answer is reported as abnormal. */
void stats_of(const struct volume *volume, struct agent_stats *ret_stats);

/* One GetVolumeStats. INVALID_ARGUMENT: there is no such volume. INTERNAL. */
enum status_code stats_read(const char *volume_path, struct agent_stats *ret_stats,
                            struct error *error);

/* ---- growing: resize.c ---------------------------------------------------------------------- */

/* One ResizeVolume: waits for the device, grows the file system, reports the result.
 *
 * The hypervisor's success does not mean that the guest has seen the new size yet, so a request may
 * come early. It waits, without keeping anybody else waiting, until a device of the volume has the
 * size asked for. Then the file system is grown to what its devices really have; a request for less
 * than that, or for the present size, is done at once. Nothing is ever shrunk. */
struct resize;

typedef void resize_done(struct resize *resize, enum status_code code, const char *text,
                         void *userdata);

/* bytes: the size to wait for; 0 is whatever the device has. timeout_ns: 0 is 10 s. `done` comes
 * once, from the loop. 0 or -ENOMEM. */
int resize_new(struct loop *loop, const char *volume_path, uint64_t bytes, uint64_t timeout_ns,
               resize_done *done, void *userdata, struct resize **ret_resize);
struct resize *resize_free(struct resize *resize); /* returns NULL; a resize that runs goes on */

enum { GROW_RUNS = -EBUSY }; /* perhaps for an earlier call */

/* Grows a file system in a task. There is one for each at most, and 16 in all: growing takes
 * milliseconds as a rule, for a very large file system minutes, and for ever while the file system
 * is frozen. Its outcome is FILESYSTEM_* or -errno. 0, GROW_RUNS, TASK_TOO_MANY, another -errno. */
int grow_start(struct loop *loop, const struct volume *volume, struct task_waiter *waiter,
               task_done *done);

/* Bytes of the mounted file system, without what it keeps for itself; 0: unknown. */
uint64_t grow_size(const struct volume *volume);

/* Whether it is larger than `before`, whoever grows it, or a task of this process has grown it in
 * the last minute. A text says how far it is. */
bool grow_progress(const struct volume *volume, uint64_t before, uint64_t device_bytes,
                   char *ret_text, size_t size);
