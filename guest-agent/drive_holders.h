/* SPDX-License-Identifier: Apache-2.0 */
/* drive_holders.h - who in the guest holds a drive's file system or its disk. For people, and for
 * the decision not to begin to unmount it.
 *
 * Source: proc(5) (fd, cwd, root, ns, mountinfo); mount_namespaces(7): what is unmounted in one
 * namespace is unmounted in its peers and slaves, and in no others.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { DRIVE_HOLDERS_BYTES = 160 };

struct drive_holders {
    unsigned
        count; /* processes; what the kernel itself holds (swap, loop devices) is not among them */
    char text[DRIVE_HOLDERS_BYTES]; /* "12 (sleep), 14 (sh)": the first ones */
};

/* A mount of the file system that is no holder: where in which mount namespace. */
struct drive_held_place {
    ino_t namespace;
    const char *mount_point;
};

/* What is held. The three numbers differ for btrfs, whose devices are anonymous. */
struct drive_held {
    dev_t files;  /* st_dev of what is in the file system; of btrfs, in its first subvolume */
    dev_t mounts; /* as mountinfo has it */
    dev_t disk;
    size_t place_count;
    const struct drive_held_place *places;
};

/* Processes that have a file, a directory or the disk itself open, and those in whose mount
 * namespace the file system is and would stay. Processes that end meanwhile are left out; the one
 * that asks is, too. proc: "/proc". 0 or -errno. */
int drive_holders_find(const char *proc, const struct drive_held *held,
                       struct drive_holders *ret_holders);
