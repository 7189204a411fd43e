/* SPDX-License-Identifier: Apache-2.0 */
/* drive_holders.h - finds the processes in the guest that hold a drive's file system or its disk:
 * for error texts, and to decide whether to start an unmount.
 *
 * Source: proc(5) (fd, cwd, root, ns, mountinfo); mount_namespaces(7): an unmount in one namespace
 * also happens in its peers and slaves, and nowhere else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { DRIVE_HOLDERS_BYTES = 160 };

struct drive_holders {
    unsigned count; /* processes, without holders in the kernel (swap, loop devices) */
    char text[DRIVE_HOLDERS_BYTES]; /* the first ones: "12 (sleep), 14 (sh)" */
};

/* A mount of the file system that does not count as a holder: its place and mount namespace. */
struct drive_held_place {
    ino_t namespace;
    const char *mount_point;
};

/* The numbers of the file system and its disk. They differ for btrfs, whose devices are
 * anonymous. */
struct drive_held {
    dev_t files;  /* st_dev of its files; of btrfs, in the first subvolume */
    dev_t mounts; /* its device in mountinfo */
    dev_t disk;
    size_t place_count;
    const struct drive_held_place *places;
};

/* Finds processes that have a file, a directory or the disk itself open, and processes in whose
 * mount namespace the file system would stay mounted. Processes that end meanwhile and the caller
 * are left out. proc: "/proc". 0 or -errno. */
int drive_holders_find(const char *proc, const struct drive_held *held,
                       struct drive_holders *ret_holders);
