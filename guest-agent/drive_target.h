/* SPDX-License-Identifier: Apache-2.0 */
/* drive_target.h - the directory that a drive is to be mounted on.
 *
 * The path is walked from "/" without following a link, and a place is refused for what it is, not
 * for its name: by the type of its file system, by the super block of /dev and
 * /dev/shm (which are tmpfs to statfs(2)), and, for the agents' directories, by inode. A bind mount
 * of /proc at another path is /proc.
 */
#pragma once

#include <stdbool.h>

#include "lib/result.h"

enum drive_target_outcome {
    DRIVE_TARGET_OPEN,
    DRIVE_TARGET_PROTECTED,   /* "/", a kernel file system, /dev, /run/kata-containers */
    DRIVE_TARGET_TAKEN,       /* it is a mount point already */
    DRIVE_TARGET_UNREACHABLE, /* behind a link, no directory, or it cannot be made */
};

/* path: absolute, without "." and "..", as drive_parse_mount_request() has it. Directories that are
 * missing are made, 0755, and stay. *ret_fd is an O_PATH descriptor for move_mount(2). An outcome,
 * or -errno; the error is filled unless OPEN. */
int drive_target_open(const char *path, int *ret_fd, struct error *error);

/* Whether it lies in a file system that is the kernel's own interface: proc, sysfs, cgroup and the
 * like; also if that cannot be told. */
bool drive_target_is_kernels(int fd);

/* Whether the directory is where a file system is mounted. 0 or -errno. */
int drive_target_find_mount_root(int fd, bool *ret_is_root);
