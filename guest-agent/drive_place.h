/* SPDX-License-Identifier: Apache-2.0 */
/* drive_place.h - checks, from a container, the path where kata-agent is about to mount a drive.
 *
 * A container cannot enter the agent's mount namespace. But the agent resolves every path that it
 * binds into a container in its own namespace, following links. So crustd has it bind vm_path, or
 * the nearest existing directory above it, and for comparison the parent of that, /dev and the
 * agent's own directory. mountinfo tells which directory of which file system each bind leads to
 * (proc(5)), and only that counts, not its name. A change between this check and the agent's mount
 * is not noticed.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>

#include "guest-agent/drive_disk.h"
#include "lib/result.h"

struct drive_place {
    const char *place;   /* the vm_path, or the nearest directory above it */
    const char *parent;  /* the directory that the place is in */
    const char *devices; /* the guest's /dev */
    const char *agents;  /* the guest's /run/kata-containers */
    const char *name;    /* the last component of vm_path if that exists; NULL: it does not */
};

enum drive_place_outcome {
    DRIVE_PLACE_FINE,
    DRIVE_PLACE_PROTECTED,   /* a kernel file system, /dev, or the agent's directory */
    DRIVE_PLACE_TAKEN,       /* already a mount point */
    DRIVE_PLACE_UNREACHABLE, /* a link, or no directory */
};

/* The four paths are mount points in this process's namespace. An outcome, or -errno; the error is
 * filled unless FINE. */
int drive_place_check(const struct drive_place *place, struct error *error);

/* ---- drive target --------------------------------------------------------------------------- */

/* Opens the directory that a drive is to be mounted on.
 *
 * The path is walked from "/" without following a link. Protected places are recognised by the type
 * of their file system, by the super block of /dev and /dev/shm (which are tmpfs to statfs(2)) and,
 * for the agents' directories, by inode, but never by name: a bind mount of /proc at another path
 * is still /proc.
 */

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

struct drive_find_request {
    const char *sysfs;   /* "/sys" */
    const char *devices; /* "/dev" */
    const char *serial;
    uint64_t deadline_ns; /* on the boottime clock; 0: do not wait */
};

/* STATUS_OK; UNAVAILABLE: no such disk by the deadline; FAILED_PRECONDITION: several; INTERNAL: the
 * disks, or one of them, could not be read. The error is filled unless OK. */
enum status_code drive_find(const struct drive_find_request *request, struct drive_disk *ret_disk,
                            struct error *error);

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
int drive_find_open(const struct drive_find_request *request, const struct drive_disk *disk,
                    int flags, int *ret_fd);

/* The same by the path of the node. */
int drive_find_open_node(const char *path, const struct drive_disk *disk, int flags, int *ret_fd);
