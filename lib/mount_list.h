/* SPDX-License-Identifier: Apache-2.0 */
/* mount_list.h - this process' mounts by statmount(2), which Linux has since 6.8.
 *
 * It costs 2 us for a mount whose name is not wanted, however long that is. mountinfo costs as much
 * for each KiB, and users can give a mount a line of any length.
 */
#pragma once

#include <errno.h>
#include <stdint.h>

/* The kernel does not offer it, or a filter of system calls. */
enum mount_list_failure {
    MOUNT_LIST_UNKNOWN = -ENOSYS,
    MOUNT_LIST_FORBIDDEN = -EPERM,
};

enum mount_list_want {
    MOUNT_LIST_NOTHING,
    MOUNT_LIST_ID,
    MOUNT_LIST_NAME, /* and the id */
};

/* Calls back for all mounts of which something is wanted. `file_system` has no subtype: it is
 * "fuse" for "fuse.sshfs". `id` is that of mountinfo; `mount_point` is NULL if it is not wanted,
 * or too long for any path. 0, enum mount_list_failure or another -errno, BUFFER_FULL if there are
 * more than 128 Ki mounts, -ETIME after 100 ms of processor time, or what the callback returned,
 * which ends the listing if it is not 0. */
int mount_list_each(enum mount_list_want (*want)(const char *file_system),
                    int (*visit)(void *userdata, uint64_t id, const char *mount_point),
                    void *userdata);
