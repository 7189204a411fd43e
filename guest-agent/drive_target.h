/* SPDX-License-Identifier: Apache-2.0 */
/* drive_target.h - opens the directory that a drive is to be mounted on.
 *
 * The path is walked from "/" without following a link. Protected places are recognised by the type
 * of their file system, by the super block of /dev and /dev/shm (which are tmpfs to statfs(2)) and,
 * for the agents' directories, by inode, but never by name: a bind mount of /proc at another path
 * is still /proc.
 */
#pragma once

#include <stdbool.h>

#include "lib/result.h"

enum drive_target_outcome {
    DRIVE_TARGET_OPEN,
    DRIVE_TARGET_PROTECTED,   /* "/", a kernel file system, /dev, /run/kata-containers */
    DRIVE_TARGET_TAKEN,       /* already a mount point */
    DRIVE_TARGET_UNREACHABLE, /* behind a link, not a directory, or it cannot be created */
};

/* path: absolute, without "." and "..", as drive_parse_mount_request() returns it. Missing
 * directories are created with mode 0755, and stay. *ret_fd is an O_PATH descriptor for
 * move_mount(2). An outcome, or -errno; the error is filled unless OPEN. */
int drive_target_open(const char *path, int *ret_fd, struct error *error);

/* Whether it lies in a kernel file system: proc, sysfs, cgroup and the like; true also if that is
 * unknown. */
bool drive_target_is_kernels(int fd);

/* Whether the directory is a mount point. 0 or -errno. */
int drive_target_find_mount_root(int fd, bool *ret_is_root);
