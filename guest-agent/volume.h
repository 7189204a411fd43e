/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - from the text volume_guest_path to a mounted file system.
 *
 *     /run/kata-containers/…   a mount point, letter by letter as in /proc/self/mountinfo
 *     /dev/NAME                the kernel's name of a disk
 *     pci:02/01                a disk by Kata's PCI path (device.h)
 *     scsi:0:1                 a disk by SCSI target and LUN
 *
 * The last three mean the file system on that disk, through whichever mount of it can be written.
 * So does a mount point that Kata's Go runtime names by its disk (…/sandbox/storage/MDIvMDE=) where
 * it is not mounted, as in a sidecar.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "agent-client/agent_messages.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/filesystem.h"
#include "lib/result.h"

struct volume {
    char mount_point[PATH_MAX];
    char file_system[32]; /* "ext4" */
    enum filesystem_kind kind;
    dev_t device;               /* as in mountinfo */
    bool read_only;             /* the mount or its file system */
    bool file_system_read_only; /* by request, or after an error */
    bool shut_down;             /* its mount options say so */
};

/* Outcomes. */
enum {
    VOLUME_FOUND,
    VOLUME_UNKNOWN, /* no such mount or disk, or nothing is mounted from it; the text says which */
};

/* Which volume is meant. Outcome or -errno. */
int volume_find(const char *path, struct volume *ret_volume, struct error *error);

/* The same for a mount point only. */
int volume_find_mount(const char *path, struct volume *ret_volume, struct error *error);

/* A file system without a device of its own (tmpfs, virtiofs, overlay) has an anonymous number. */
bool volume_has_device(const struct volume *volume);

/* A known problem of the file system, as one sentence, and the outcome of filesystem_grow() that it
 * stands for; NULL if there is none. */
const char *volume_trouble(const struct volume *volume, int *ret_outcome);

/* Whether it is by this errno that open(2) and stat(2) fail on a file system that was shut down. */
bool volume_fails_as_shut_down(int error_number);

/* For growing: if the mount is read-only, another writable mount of the same file system, if there
 * is any. */
void volume_prefer_writable(struct volume *volume);

/* Opens the volume's root directory and checks that it still is that file system. 0 or -errno. */
int volume_open(const struct volume *volume, struct filesystem *ret_filesystem, int *ret_fd);

/* Calls `visit` for one mount of each file system of a kind that can be grown, if it is writable or
 * was shut down. 0 or -errno. */
int volume_for_each(void (*visit)(const struct volume *volume, void *userdata), void *userdata);

/* ---- stats ---------------------------------------------------------------------------------- */

/* How full a volume is, in bytes and inodes.
 *
 * As the kubelet counts: available is what a user who is not root can write. A file system that has
 * recorded errors, was shut down or does not answer is reported as abnormal.
 */

/* Of a file system whose statfs(2) does not wait: one on a device. */
void stats_of(const struct volume *volume, struct agent_stats *ret_stats);

/* One GetVolumeStats. Fills ret_stats if status is OK. */
void stats_read(const char *volume_path, struct ttrpc_status *ret_status,
                struct agent_stats *ret_stats);
