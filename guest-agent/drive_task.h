/* SPDX-License-Identifier: Apache-2.0 */
/* drive_task.h - MountDrive and UnmountDrive in progress: each in a process of its own, one for
 * each drive.
 *
 * Mounting may take as long as e2fsck and a walk over millions of files; the caller is answered in
 * its time, and asks again. Calls that ask for the same wait for the same work. An UnmountDrive
 * ends a MountDrive in progress: its process is killed, and what it left is unmounted.
 *
 * Nothing is remembered of work that is done. The next call reads what is there.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/loop.h"

enum { DRIVE_TASK_LIMIT = 16 }; /* processes at once */

struct drive_waiter;

/* payload: of the answer, borrowed; empty unless the status is OK. */
typedef void drive_waiter_done(struct drive_waiter *waiter, const struct ttrpc_status *status,
                               const struct buffer *payload, void *userdata);

/* A call for the drive that waits for its work, which begins with the first one. `done` comes once,
 * from the loop, at the latest when the request's time is over; then the work goes on without it.
 * timeout_ns: the connection's; 0: none. 0 or -ENOMEM. */
int drive_task_mount(struct loop *loop, const struct drive_mount_request *request,
                     uint64_t timeout_ns, drive_waiter_done *done, void *userdata,
                     struct drive_waiter **ret_waiter);
int drive_task_unmount(struct loop *loop, const struct drive_unmount_request *request,
                       uint64_t timeout_ns, drive_waiter_done *done, void *userdata,
                       struct drive_waiter **ret_waiter);
struct drive_waiter *
drive_waiter_free(struct drive_waiter *waiter); /* returns NULL; the work goes on */

/* Adds to the list what is in progress: the state and how far the walk is. A drive whose disk is
 * not there yet becomes an entry of its own. 0 or -ENOMEM. */
int drive_tasks_note(struct drive_guest_list *list);

/* Before the process exits: ends all work. What was not mounted completely disappears. */
void drive_tasks_end(void);
