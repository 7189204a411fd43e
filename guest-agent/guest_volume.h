/* SPDX-License-Identifier: Apache-2.0 */
/* guest_volume.h - from the text volume_guest_path to a mounted file system.
 *
 *     /run/kata-containers/…   a mount point, letter by letter as in /proc/self/mountinfo
 *     /dev/NAME                the kernel's name of a disk
 *     pci:02/01                a disk by Kata's PCI path (guest_device.h)
 *     scsi:0:1                 a disk by SCSI target and LUN
 *
 * The last three mean the file system on that disk, through whichever mount of it can be written.
 * So does a mount point that Kata's Go runtime names by its disk (…/sandbox/storage/MDIvMDE=) where
 * it is not mounted, as in a sidecar.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent-client/agent_messages.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/filesystem.h"
#include "lib/loop.h"
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

/* Calls `visit` for one mount of each file system of a kind that can be grown, if it can be reached
 * and is writable or was shut down, until it returns false. only: of this device alone;
 * 0: of all. 0 or -errno. */
int volume_for_each(dev_t only, bool (*visit)(const struct volume *volume, void *userdata),
                    void *userdata);

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

/* ---- resize --------------------------------------------------------------------------------- */

/* One ResizeVolume: waits for the device, grows the file system, reports the result.
 *
 * The hypervisor's success does not mean that the guest has seen the new size yet, so a request may
 * come early. It waits, without keeping anybody else waiting, until a device of the volume has the
 * size asked for. Then the file system is grown to what its devices really have; a request for less
 * than that, or for the present size, is done at once. Nothing is ever shrunk.
 */

struct resize;

typedef void resize_done(struct resize *resize, const struct ttrpc_status *status, void *userdata);

/* bytes: the size to wait for; 0 is whatever the device has. timeout_ns: 0 is 10 s. `done` comes
 * once, from the loop. 0 or -ENOMEM. */
int resize_new(struct loop *loop, const char *volume_path, uint64_t bytes, uint64_t timeout_ns,
               resize_done *done, void *userdata, struct resize **ret_resize);
struct resize *resize_free(struct resize *resize); /* returns NULL; a resize that runs goes on */

/* ---- grow task ------------------------------------------------------------------------------ */

/* Growing one file system in a process of its own.
 *
 * Growing takes milliseconds as a rule, for a very large file system minutes, and for ever while
 * the file system is frozen. So that no other request waits for it, a child does it and writes the
 * outcome to a pipe. There is one child for a file system at most.
 */

enum { GROW_TASK_LIMIT = 16 }; /* at once */

struct grow_task;

/* outcome: FILESYSTEM_* or -errno, with the error's text when it is not GROWN. */
typedef void grow_task_done(struct grow_task *task, int outcome, const struct error *error,
                            void *userdata);

enum grow_task_failure {
    GROW_TASK_TOO_MANY = -EAGAIN, /* at once */
    GROW_TASK_RUNS = -EBUSY,      /* one for this file system, perhaps of an earlier caller's */
};

/* In a child. `done` comes once, from the loop. 0, one of the above, another -errno. */
int grow_task_new(struct loop *loop, const struct volume *volume, grow_task_done *done,
                  void *userdata, struct grow_task **ret_task);

/* After done, or to get no `done`: a running child goes on and is reaped when it ends. */
struct grow_task *grow_task_free(struct grow_task *task); /* NULL is fine; returns NULL */

/* The same before the process exits: the child is killed, which takes effect when its system call
 * returns (the ioctl may still complete); its next parent reaps it. */
struct grow_task *grow_task_abandon(struct grow_task *task); /* NULL is fine; returns NULL */

/* Bytes of the mounted file system, without what it keeps for itself; 0: unknown. */
uint64_t grow_task_size(const struct volume *volume);

/* Whether it is larger than `before`, whoever grows it, or a child of this process has grown it in
 * the last minute. A text says how far it is. */
bool grow_task_progress(const struct volume *volume, uint64_t before, uint64_t device_bytes,
                        char *ret_text, size_t size);
