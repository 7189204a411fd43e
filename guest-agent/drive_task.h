/* SPDX-License-Identifier: Apache-2.0 */
/* drive_task.h - MountDrive and UnmountDrive in progress: each in a process of its own, one for
 * each drive.
 *
 * Mounting may take as long as e2fsck and a walk over millions of files; a call is answered by its
 * deadline, and repeated. Equal calls wait for the same task. An UnmountDrive cancels a MountDrive
 * in progress: its process is killed, and what it mounted is unmounted.
 *
 * Nothing is kept of a finished task: the next call reads the state of the guest.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/loop.h"

enum { DRIVE_TASK_LIMIT = 16 }; /* processes at once */

struct drive_waiter;

/* payload: that of the answer, borrowed; empty unless the status is OK. */
typedef void drive_waiter_done(struct drive_waiter *waiter, const struct ttrpc_status *status,
                               const struct buffer *payload, void *userdata);

/* Begins the drive's task, or joins it. `done` is called once, from the loop, at the latest at the
 * request's deadline; the task then goes on without the call. timeout_ns: the connection's; 0:
 * none. 0 or -ENOMEM. */
int drive_task_mount(struct loop *loop, const struct drive_mount_request *request,
                     uint64_t timeout_ns, drive_waiter_done *done, void *userdata,
                     struct drive_waiter **ret_waiter);
int drive_task_unmount(struct loop *loop, const struct drive_unmount_request *request,
                       uint64_t timeout_ns, drive_waiter_done *done, void *userdata,
                       struct drive_waiter **ret_waiter);
struct drive_waiter *
drive_waiter_free(struct drive_waiter *waiter); /* returns NULL; the work goes on */

/* Adds tasks in progress to the list: the state and the progress of the walk. A drive whose disk
 * has not appeared yet gets an entry of its own. 0 or -ENOMEM. */
int drive_tasks_note(struct drive_guest_list *list);

/* To be called before the process exits: ends all tasks. Incomplete mounts disappear. */
void drive_tasks_end(void);
