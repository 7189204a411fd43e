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

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/drive_call.h"
#include "guest-agent/guest_disk.h"
#include "lib/result.h"

struct drive_mount_work {
    const struct drive_mount_request *request;
    struct drive_walk_count *walk; /* the progress of the walk for fs_group, in shared memory */
    struct drive_setting setting;  /* deadline: for the disk to appear, and for containers */
};

/* Returns a status listed in drive_call.h, with a text unless OK. */
enum status_code drive_mount_run(const struct drive_mount_work *work,
                                 struct drive_mount_answer *ret_answer, struct error *error);

/* ---- drive options -------------------------------------------------------------------------- */

/* Which mount options a drive may have, and to which call each one belongs.
 *
 * Only listed options are allowed. Other options of a file system can open further devices (ext4's
 * journal_path, xfs's logdev, btrfs's device) or contain what must not be logged. A drive is always
 * mounted nodev and nosuid.
 *
 * Source: fsconfig(2) refuses options such as noatime, which are attributes of the mount:
 * fsmount(2).
 */

struct drive_parameter {
    char name[DRIVE_OPTION_BYTES];
    char value[DRIVE_OPTION_BYTES]; /* "": a flag */
};

struct drive_options {
    uint64_t attributes; /* MOUNT_ATTR_*, for fsmount(2) */
    size_t count;
    struct drive_parameter parameters[DRIVE_OPTIONS]; /* for fsconfig(2); "ro" is not among them */
};

enum drive_options_outcome {
    DRIVE_OPTIONS_FINE,
    DRIVE_OPTIONS_REFUSED, /* the error has the option's position, but no part of its text */
};

/* Uses the request's file system type, options and read_only. enforces_labels: the guest enforces
 * SELinux (selinux_is_enforced()), so context= is allowed; elsewhere the kernel refuses to mount
 * with it. The error is filled if REFUSED. */
enum drive_options_outcome drive_options_take(const struct drive_mount_request *request,
                                              bool enforces_labels,
                                              struct drive_options *ret_options,
                                              struct error *error);

/* ---- selinux -------------------------------------------------------------------------------- */

/* Whether this guest enforces SELinux, without libselinux. */

/* What the kernel's own file system says of it, if that is mounted. */
bool selinux_is_enforced(void);

/* The same of another directory than /sys/fs/selinux. */
bool selinux_is_enforced_at(const char *directory, unsigned long type);

/* ---- drive unmount -------------------------------------------------------------------------- */

/* Unmounts a drive for good, or changes nothing and names its holders.
 *
 * OK means that nobody in the guest has the file system or the disk open, and that all data is on
 * the disk. The proof is an exclusive open(2) of the disk, which the kernel refuses while the file
 * system is mounted in any namespace.
 *
 * The request names the containers that were given the mount: it is taken from them first, and does
 * not count as held by them. If the unmount then fails, they get it back at once. Obstacles that
 * can be seen are looked for before.
 *
 * Blocks: to be called in a process of its own.
 *
 * Source: umount2(2), open(2) (O_EXCL of a block device), Documentation/ABI (the attribute `delete`
 * of a SCSI device), Documentation/ABI/testing/sysfs-bus-pci (`rescan` of the bus, `remove` of a
 * function).
 */

struct drive_unmount_work {
    const struct drive_unmount_request *request;
    struct drive_setting setting; /* deadline: for the kernel to release the disk, and for
                                     containers */
};

/* Returns a status listed in drive_call.h, with a text unless OK. */
enum status_code drive_unmount_run(const struct drive_unmount_work *work,
                                   struct drive_unmount_answer *ret_answer, struct error *error);

/* ---- drive enter ---------------------------------------------------------------------------- */

/* Mounts a drive of the guest in a running container, and unmounts it there.
 *
 * The mount, or its sub_path (resolved below the drive's root, without links and other mounts), is
 * cloned, made nodev, nosuid and private, read-only if asked for, and then attached in the
 * container's mount namespace. If the mount at the path is shared there, the kernel propagates the
 * new mount to its peers, and removes it from them together with the container's.
 *
 * A process of its own enters that namespace, for a bounded time, because a container may have
 * mounted a file system over the path that never answers. In the namespace nothing is read from the
 * container's /proc, no link on the way to the path is followed, and the place is checked like
 * vm_path (above): the container's own kernel file systems and its /dev are refused. /dev,
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

/* A visit may take 5 s even after the deadline.
 *
 * volume: the drive's root, as an open directory. OK: the container has the drive at its path, now
 * or already before. FAILED_PRECONDITION: the container does not run, or its place or sub_path is
 * unsuitable. UNAVAILABLE: a file system did not answer in time, or the container is still being
 * created and has the guest's root. INTERNAL. */
enum status_code drive_enter(const struct drive_setting *setting, int volume,
                             const struct drive_container *container, struct error *error);

/* files: st_dev of the files in the file system; mounts: its device in mountinfo. OK: the drive is
 * unmounted there, the container does not run, or it has something else at the path.
 * FAILED_PRECONDITION: it is in use there. The others as above. */
enum status_code drive_leave(const struct drive_setting *setting, dev_t files, dev_t mounts,
                             const struct drive_container *container, struct error *error);

/* ---- place ---------------------------------------------------------------------------------- */

/* Opens the directory that a drive is to be mounted on.
 *
 * The path is walked from "/" without following a link. Protected places are recognised by the type
 * of their file system, by the super block of /dev and /dev/shm (which are tmpfs to statfs(2)) and,
 * for the agents' directories, by inode, but never by name: a bind mount of /proc at another path
 * is still /proc.
 */

/* path: absolute, without "." and "..", as drive_parse_mount_request() returns it. Missing
 * directories are created with mode 0755, and stay. *ret_fd is an O_PATH descriptor for
 * move_mount(2). OK; INVALID_ARGUMENT: "/", a kernel file system, /dev, /run/kata-containers;
 * ALREADY_EXISTS: already a mount point; FAILED_PRECONDITION: behind a link, not a directory, or it
 * cannot be created; INTERNAL. The error is filled unless OK. */
enum status_code drive_target_open(const char *path, int *ret_fd, struct error *error);

/* Whether the directory is a mount point. 0 or -errno. */
int drive_target_find_mount_root(int fd, bool *ret_is_root);

/* ---- drive find ----------------------------------------------------------------------------- */

/* Waits for a drive's disk and compares it with the request.
 *
 * The VMM notifies the guest of a new disk, which appears some milliseconds later. If the
 * notification is lost, or the guest has removed the disk itself, only a scan of the buses finds
 * it, so they are scanned once a second. Firecracker does not notify its guest: for a serial of its
 * form the PCI bus is also scanned before the first read, also because another disk may have the
 * same serial.
 *
 * These functions block: to be called in a process of their own.
 */

/* STATUS_OK; UNAVAILABLE: no such disk by the deadline; FAILED_PRECONDITION: several; INTERNAL: the
 * disks, or one of them, could not be read. The error is filled unless OK. */
enum status_code drive_find(const struct drive_setting *setting, const char *serial,
                            struct drive_disk *ret_disk, struct error *error);

/* Whether the disk has the size and the access that the drive was attached with. OK or
 * FAILED_PRECONDITION. */
enum status_code drive_find_check(const struct drive_disk *disk, uint64_t bytes, bool read_only,
                                  struct error *error);

enum drive_find_failure {
    DRIVE_FIND_IN_USE = -EBUSY,  /* with O_EXCL */
    DRIVE_FIND_DENIED = -EPERM,  /* by the device cgroup */
    DRIVE_FIND_ABSENT = -ENOENT, /* no node, that of another disk, or one without a disk */
};

/* Opens the disk's node. flags: of open(2). 0, IN_USE, ABSENT or another -errno. */
int drive_find_open(const struct drive_setting *setting, const struct drive_disk *disk, int flags,
                    int *ret_fd);
