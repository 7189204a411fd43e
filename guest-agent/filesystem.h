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
};

/* Grows the file system to the present size of its devices. Never shrinks. Blocks for as long as
 * the kernel takes. Outcome or -errno. */
int filesystem_grow(int directory, const struct filesystem *filesystem, struct error *error);
