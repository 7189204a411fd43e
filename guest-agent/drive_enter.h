/* SPDX-License-Identifier: Apache-2.0 */
/* drive_enter.h - mounts a drive of the guest in a running container, and unmounts it there.
 *
 * The mount, or its sub_path (resolved below the drive's root, without links and other mounts), is
 * cloned, made nodev, nosuid and private, read-only if asked for, and then attached in the
 * container's mount namespace. If the mount at the path is shared there, the kernel propagates the
 * new mount to its peers, and removes it from them together with the container's.
 *
 * A process of its own enters that namespace, for a bounded time, because a container may have
 * mounted a file system over the path that never answers. In the namespace nothing is read from the
 * container's /proc, no link on the way to the path is followed, and the place is checked like
 * vm_path (drive_place.h): the container's own kernel file systems and its /dev are refused. /dev,
 * /dev/shm and /run/kata-containers themselves are resolved through links, which can only lead to a
 * refusal.
 *
 * An existing mount of the drive is made nodev, nosuid and, if asked for, read-only; a read-only
 * one stays so. The mount lasts until the drive is detached, the container ends or restarts, or a
 * process in it with CAP_SYS_ADMIN unmounts it.
 *
 * Blocks: to be called in a process of its own.
 *
 * Source: open_tree(2), mount_setattr(2), move_mount(2), setns(2), umount2(2); Linux 5.12 or later.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/result.h"

struct drive_visits {
    const char *proc;     /* "/proc" */
    uint64_t deadline_ns; /* on the boottime clock; a visit may take 5 s all the same */
};

/* volume: the drive's root, as an open directory. OK: the container has the drive at its path, now
 * or already before. FAILED_PRECONDITION: the container does not run, or its place or sub_path is
 * unsuitable. UNAVAILABLE: a file system did not answer in time, or the container is still being
 * created and has the guest's root. INTERNAL. */
enum status_code drive_enter(const struct drive_visits *visits, int volume,
                             const struct drive_container *container, struct error *error);

/* files: st_dev of the files in the file system; mounts: its device in mountinfo. OK: the drive is
 * unmounted there, the container does not run, or it has something else at the path.
 * FAILED_PRECONDITION: it is in use there. The others as above. */
enum status_code drive_leave(const struct drive_visits *visits, dev_t files, dev_t mounts,
                             const struct drive_container *container, struct error *error);
