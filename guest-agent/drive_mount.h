/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mount.h - mounts a drive, from the wait for its disk to the mount point.
 *
 * Nothing is to be seen in the guest before everything else is done: the file system is mounted
 * detached (fsopen(2), fsmount(2)), gets its group there, is written to the disk, and is moved to
 * its place last. A process that is killed before that leaves nothing behind, because the kernel
 * takes a detached mount back; a mount that is in its place is complete.
 *
 * Containers get the mount after that, also those of a drive that was mounted before. One that
 * cannot have it changes nothing about the drive: the answer says why.
 *
 * Blocks, and is for a process of its own.
 *
 * Source: fsopen(2), fsconfig(2), fsmount(2), move_mount(2); Linux 5.2 or later.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/result.h"
#include "lib/status.h"

struct drive_mount_work {
    const struct drive_mount_request *request;
    const char *sysfs;             /* "/sys" */
    const char *devices;           /* "/dev" */
    uint64_t deadline_ns;          /* for the disk to appear, on the boottime clock */
    struct drive_walk_count *walk; /* how far the walk for fs_group is, for others to read */
    const char *proc;              /* "/proc" */
};

/* A status of drive_call.h's list, with a text unless OK. */
enum status_code drive_mount_run(const struct drive_mount_work *work,
                                 struct drive_mount_answer *ret_answer, struct error *error);
