/* SPDX-License-Identifier: Apache-2.0 */
/* filesystem.h - a mounted ext2/3/4, xfs or btrfs, grown by ioctl.
 *
 * Needed, in the initial user namespace: CAP_SYS_RESOURCE for ext4, CAP_SYS_ADMIN for xfs and
 * btrfs. Any mount of the file system serves, a bind mount of a part of it too, if it is writable.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/result.h"

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
