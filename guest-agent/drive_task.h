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

#include <stdint.h>

#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/loop.h"
#include "lib/result.h"

/* One call, whoever makes it. */
struct drive_work {
    bool unmounts;
    union { /* both begin with drive_id and serial */
        struct drive_mount_request mount;
        struct drive_unmount_request unmount;
    };
    uint64_t deadline_ns;          /* on the boottime clock; to be set before it is run */
    struct drive_walk_count *walk; /* as in drive_mount.h, likewise */
};

union drive_answer {
    struct drive_mount_answer mount;
    struct drive_unmount_answer unmount;
};

/* Parses the request of one of the two methods. OK, or INVALID_ARGUMENT with a text. */
enum status_code drive_work_parse(const char *method, const struct buffer *payload,
                                  struct drive_work *ret_work, struct error *error);
uint64_t drive_work_timeout_ms(const struct drive_work *work); /* as requested */
/* Blocks. A status listed in drive_call.h, with a text unless OK. */
enum status_code drive_work_run(const struct drive_work *work, bool in_container,
                                union drive_answer *ret_answer, struct error *error);
/* 0 or -errno. */
int drive_work_append_answer(const struct drive_work *work, const union drive_answer *answer,
                             struct buffer *payload);

enum { DRIVE_TASK_LIMIT = 16 }; /* processes at once */

struct drive_waiter;

/* payload: that of the answer, borrowed; empty unless the status is OK. */
typedef void drive_waiter_done(struct drive_waiter *waiter, const struct ttrpc_status *status,
                               const struct buffer *payload, void *userdata);

/* Begins the drive's task, or joins it. `done` is called once, from the loop, at the latest at the
 * request's deadline; the task then goes on without the call. timeout_ns: the connection's; 0:
 * none. 0 or -ENOMEM. */
int drive_task_start(struct loop *loop, struct drive_work *work, uint64_t timeout_ns,
                     drive_waiter_done *done, void *userdata, struct drive_waiter **ret_waiter);
struct drive_waiter *
drive_waiter_free(struct drive_waiter *waiter); /* returns NULL; the work goes on */

/* Adds tasks in progress to the list: the state and the progress of the walk. A drive whose disk
 * has not appeared yet gets an entry of its own. 0 or -ENOMEM. */
int drive_tasks_note(struct drive_guest_list *list);

/* To be called before the process exits: ends all tasks. Incomplete mounts disappear. */
void drive_tasks_end(void);

/* ---- drive once ----------------------------------------------------------------------------- */

/* `crust-guest-agent --drive`: one call of crust.guest.v1.Drives, made by crustd in
 * a container in kata-agent's own mount namespace (docs/guest-helper.md).
 *
 * The argument is the ttrpc frame of the request in base64url, and what is printed that of the
 * response. A program that is about to end does not end its line. One that has mounted a drive ends
 * it and stays, if the drive is to be synced or containers have it: it syncs the file system at an
 * interval, because a VMM may be killed at any time, and mounts it into containers that were
 * started again. It has the mount point open only while it syncs.
 */

enum drive_once_outcome {
    DRIVE_ONCE_DONE,    /* the first two are the program's exit codes */
    DRIVE_ONCE_REFUSED, /* the response has the reason */
    DRIVE_ONCE_USAGE,   /* no such call: nothing was printed */
};

/* flush_ns: the interval; 0: no syncs. An outcome, or -errno with a text if no response could be
 * written. Does not return while it stays. */
int drive_once_run(const char *call, uint64_t flush_ns, int output, struct error *error);
