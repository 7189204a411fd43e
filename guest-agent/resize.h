/* SPDX-License-Identifier: Apache-2.0 */
/* resize.h - one ResizeVolume: waits for the device, grows the file system, reports the result.
 *
 * The hypervisor's success does not mean that the guest has seen the new size yet, so a request may
 * come early. It waits, without keeping anybody else waiting, until a device of the volume has the
 * size asked for. Then the file system is grown to what its devices really have; a request for less
 * than that, or for the present size, is done at once. Nothing is ever shrunk.
 */
#pragma once

#include <errno.h>
#include <stdint.h>

#include "agent-client/ttrpc_codec.h"
#include "guest-agent/volume.h"
#include "lib/loop.h"
#include "lib/result.h"

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
