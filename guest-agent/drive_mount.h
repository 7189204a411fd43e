/* SPDX-License-Identifier: Apache-2.0 */
/* drive_mount.h - mounts a drive, from the wait for its disk to the mount point.
 *
 * The mount becomes visible in the guest as the last step: the file system is mounted detached
 * (fsopen(2), fsmount(2)), gets its group, is synced, and is then moved to its mount point. A
 * process that is killed before that leaves nothing behind, because the kernel drops a detached
 * mount. A visible mount is complete.
 *
 * Containers get the mount after that, also if the drive was mounted before. A container that
 * cannot have it does not affect the drive: the answer has the reason.
 *
 * Blocks: to be called in a process of its own.
 *
 * Source: fsopen(2), fsconfig(2), fsmount(2), move_mount(2); Linux 5.2 or later.
 */
#pragma once

#include <stdbool.h>

#include "agent-client/drive_call.h"
#include "lib/result.h"

struct drive_mount_work {
    const struct drive_mount_request *request;
    const char *sysfs;             /* "/sys" */
    const char *devices;           /* "/dev" */
    uint64_t deadline_ns;          /* by which the disk must appear; on the boottime clock */
    struct drive_walk_count *walk; /* the progress of the walk for fs_group, in shared memory */
    const char *proc;              /* "/proc" */
};

/* Returns a status listed in drive_call.h, with a text unless OK. */
enum status_code drive_mount_run(const struct drive_mount_work *work,
                                 struct drive_mount_answer *ret_answer, struct error *error);

/* ---- selinux -------------------------------------------------------------------------------- */

/* Whether this guest enforces SELinux, without libselinux. */

/* What the kernel's own file system says of it, if that is mounted. */
bool selinux_is_enforced(void);

/* The same of another directory than /sys/fs/selinux. */
bool selinux_is_enforced_at(const char *directory, unsigned long type);
