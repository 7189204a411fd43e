/* SPDX-License-Identifier: Apache-2.0 */
/* drive_enter.h - a drive that is mounted in the guest, into a running container and out of it.
 *
 * The mount is cloned (of sub_path: resolved below the drive's root, without links and other
 * mounts), made nodev and nosuid, read-only if asked for, and private, and is then attached in the
 * container's mount namespace. Where the mount that the path is in is shared there, the kernel
 * shows the drive to that one's peers as well, and takes it from them with the container's.
 *
 * A process of its own enters that namespace, with a bound on its time: a container may have
 * mounted a file system over the path that never answers. In there nothing is read from its /proc
 * and no link on the way to the path is followed, and the place is checked as vm_path is
 * (drive_target.h): the container's own kernel file systems and its /dev are refused. What /dev,
 * /dev/shm and /run/kata-containers are there is looked at through links, which can only lead to a
 * refusal.
 *
 * A mount that is there already is made nodev, nosuid and, if asked for, read-only; one that is
 * read-only stays so. It is there until the drive is detached, the container ends or is restarted,
 * or somebody in it unmounts it, which root can where it has CAP_SYS_ADMIN.
 *
 * Blocks, and is for a process of its own.
 *
 * Source: open_tree(2), mount_setattr(2), move_mount(2), setns(2), umount2(2); Linux 5.12 or later.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/result.h"
#include "lib/status.h"

struct drive_visits {
    const char *proc;     /* "/proc" */
    uint64_t deadline_ns; /* on the boottime clock; a visit may take 5 s all the same */
};

/* volume: the drive's root, as an open directory. OK: the container has it at its path, since now
 * or before. FAILED_PRECONDITION: it does not run, or its place or sub_path is not as it must be.
 * INTERNAL; UNAVAILABLE: it did not answer in time, or has the guest's root, as one that is still
 * being made. */
enum status_code drive_enter(const struct drive_visits *visits, int volume,
                             const struct drive_container *container, struct error *error);

/* files: st_dev of what is in the file system; mounts: as mountinfo has it. OK: the container does
 * not run, or has something else at the path. FAILED_PRECONDITION: it is in use there; the others
 * as above. */
enum status_code drive_leave(const struct drive_visits *visits, dev_t files, dev_t mounts,
                             const struct drive_container *container, struct error *error);
