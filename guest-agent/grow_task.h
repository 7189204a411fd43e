/* SPDX-License-Identifier: Apache-2.0 */
/* grow_task.h - growing one file system in a process of its own.
 *
 * The ioctl returns when the file system is grown: usually after milliseconds, for a very large
 * ext4 after minutes, and never while the file system is frozen. So that no other request waits for
 * it, a child calls it and writes its outcome to a pipe.
 */
#pragma once

#include <errno.h>

#include "guest-agent/volume.h"
#include "lib/loop.h"
#include "lib/result.h"

enum { GROW_TASK_LIMIT = 16 }; /* at once */

struct grow_task;

/* outcome: FILESYSTEM_* or -errno, with the error's text when it is not GROWN. */
typedef void grow_task_done(struct grow_task *task, int outcome, const struct error *error,
                            void *userdata);

/* Here and now, trying again for a while if it is busy. FILESYSTEM_* or -errno. */
int grow_task_run(const struct volume *volume, struct error *error);

enum grow_task_failure { GROW_TASK_TOO_MANY = -EAGAIN /* at once */ };

/* In a child. `done` comes once, from the loop. 0, GROW_TASK_TOO_MANY, another -errno. */
int grow_task_new(struct loop *loop, const struct volume *volume, grow_task_done *done,
                  void *userdata, struct grow_task **ret_task);

/* After done, or to get no `done`: a running child goes on and is reaped when it ends. */
struct grow_task *grow_task_free(struct grow_task *task); /* NULL is fine; returns NULL */

/* The same before the process exits: the child is killed, which takes effect when its system call
 * returns (the ioctl may still complete); its next parent reaps it. */
struct grow_task *grow_task_abandon(struct grow_task *task); /* NULL is fine; returns NULL */
