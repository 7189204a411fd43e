/* SPDX-License-Identifier: Apache-2.0 */
/* guest_disk.h - the disks that crustd has attached to this guest, found by their serials.
 *
 * Neither the kernel's name of a disk nor the order in which disks appear identifies it. So the
 * serials are read from sysfs at each call, and nothing is cached.
 *
 * Sources: Documentation/ABI/testing/sysfs-block (serial, of virtio-blk; size in sectors of 512
 * bytes), SPC-4 section 7.7 (VPD page 0x80, of SCSI disks: four bytes of header, the last two of
 * which are the length of the text that follows).
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent-client/drive_call.h"
#include "lib/loop.h"
#include "lib/result.h"

/* Fill the error and are the code, for `return drive_refuse(error, STATUS_INTERNAL, "…")`. The
 * second appends what r, a negative errno, means. */
#define drive_refuse(error, code, ...)                                                             \
    ((enum status_code)error_set((error), (int)(code), __VA_ARGS__))
#define drive_refuse_errno(error, code, r, ...)                                                    \
    __extension__({                                                                                \
        enum status_code refused_as = (code); /* before errno changes */                           \
        (void)error_set_errno((error), (r), __VA_ARGS__);                                          \
        refused_as;                                                                                \
    })

/* Where a call for a drive works, and until when. */
struct drive_setting {
    const char *sysfs;    /* "/sys" */
    const char *devices;  /* "/dev" */
    const char *proc;     /* "/proc" */
    uint64_t deadline_ns; /* on the boottime clock; 0: nothing is waited for */
    bool in_container;    /* if the device cgroup forbids the disk, that is changed */
};

struct drive_disk {
    char name[DRIVE_DEVICE_BYTES]; /* the kernel's, "sda" */
    char serial[DRIVE_SERIAL_BYTES];
    dev_t device;
    uint64_t bytes;
    bool read_only; /* the disk itself, or made so by blockdev --setro */
};

struct drive_disks {
    size_t count;
    struct drive_disk *disks;            /* owned; in the order of their names */
    bool incomplete;                     /* there are more than DRIVE_LIST disks */
    char unreadable[DRIVE_DEVICE_BYTES]; /* a disk that exists and may be any drive; "" none */
};

/* Reads all disks whose serial has the form of a drive's. A disk that is removed meanwhile is left
 * out. A disk whose serial cannot be read, or a drive whose numbers cannot be read, is
 * `unreadable`. sysfs: "/sys". 0 or -errno. */
int drive_disks_read(const char *sysfs, struct drive_disks *ret_disks);
void drive_disks_done(struct drive_disks *disks); /* frees, resets */

/* The one disk with the serial. OK; UNAVAILABLE: there is none; INTERNAL: none has it, but one that
 * could not be read may have it; FAILED_PRECONDITION: several have it, or the disks are incomplete.
 * The error is filled unless OK. */
enum status_code drive_disks_find(const struct drive_disks *disks, const char *serial,
                                  struct drive_disk *ret_disk, struct error *error);

/* ---- drive fsck ----------------------------------------------------------------------------- */

/* Checks a file system before it is mounted, by the guest's e2fsck.
 *
 * xfs and btrfs repair themselves when they are mounted, so nothing is run for them (fsck.xfs(8),
 * fsck.btrfs(8)).
 */

/* device: the path of the node. A read-only disk is checked and not repaired. OK;
 * FAILED_PRECONDITION: the guest has no e2fsck, or the file system has errors that e2fsck -p does
 * not repair; INTERNAL. Blocks for as long as e2fsck takes. */
enum status_code drive_fsck_run(const char *device, const char *filesystem_type, bool read_only,
                                enum drive_fsck_result *ret_result, struct error *error);

/* ---- device cgroup -------------------------------------------------------------------------- */

/* Lets this process use a block device that its device cgroup forbids.
 *
 * Only for a helper in a container. Where the guest has cgroup v1, as with an initrd in which
 * kata-agent is process 1, the agent allows a container no disk unless the pod is privileged, and
 * its protocol cannot say "any disk": it takes a number, which is not known outside the guest
 * (Kata: src/libs/protocols/src/trans.rs, src/agent/rustjail/src/cgroups/fs/mod.rs). The agent
 * leaves the cgroup's parent open, so the container may widen its own. It needs CAP_SYS_ADMIN.
 */

/* 0; -ENOENT: no device cgroup of version 1 has this process; another -errno. */
int device_cgroup_allow(dev_t device);

/* ---- drive flush ---------------------------------------------------------------------------- */

/* Syncs the mounted drives every few seconds.
 *
 * A VM may end without notice (Kata kills QEMU when a sandbox ends), and data that its guest has
 * not written to the disk is lost. While a writable drive is mounted, the file systems of all such
 * drives are synced at a steady pace, each in a process of its own: a disk that hangs delays only
 * its own next sync. While the serial of a disk cannot be read, the drives of the last list are
 * synced.
 *
 * Source: syncfs(2).
 */

/* Includes drives that are mounted already. interval_ns 0: never syncs. */
void drive_flush_start(struct loop *loop, uint64_t interval_ns);

/* To be called when a drive has been mounted. A disk whose serial was chosen by the VMM is only
 * known as a drive by this call, because all disks of such a guest, its root included, have such
 * serials. So an agent that was restarted does not sync that drive until it is asked to mount it
 * again. */
void drive_flush_wake(const char *serial);

void drive_flush_end(void);
