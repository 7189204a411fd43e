/* SPDX-License-Identifier: Apache-2.0 */
/* task.h - work that takes long or may hang, in a process of its own: a drive is mounted, unmounted
 * or synced, the drives are listed, a file system grows.
 *
 * Calls wait for a task. One that stops waiting does not end it, and nothing is kept of a task that
 * has ended.
 */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/drive_call.h"
#include "lib/loop.h"
#include "lib/result.h"

/* How it ended: what its kind's `run` returned, with a text and a payload, both borrowed. */
struct task_result {
    int outcome;
    const char *text;
    const char *payload;
    size_t length;
};

/* Memory that the task's process shares with this one. */
struct task_progress {
    struct drive_walk_count walk; /* of a drive that is being mounted */
    uint64_t bytes, grown_ns;     /* of a file system: its last known size, and when it last grew */
    bool is_late;                 /* of a sync: that was logged */
};

struct task_end {
    int outcome;
    const char *text;
};

struct task_kind {
    /* In the task's process. work: a copy of what the task was started with. */
    int (*run)(const void *work, struct task_progress *progress, struct buffer *payload,
               struct error *error);
    void (*ended)(const void *work, const struct task_result *result); /* NULL; before the calls */
    size_t work_bytes, payload_bytes;
    unsigned most;              /* at once; 0: any number */
    struct task_end died, late; /* its process died; its time or that of the call is over */
};

struct task {
    struct task *next;
    struct loop *loop;
    const struct task_kind *kind;
    uint64_t subject; /* as in lib/child.h; of two tasks only if both list drives */
    void *work;
    struct task_progress *progress;
    struct child *child;
    bool is_replaced; /* its process was killed, and the next one begins when that has ended */
    struct task_waiter *waiters;
};

typedef void task_done(struct task_waiter *waiter, const struct task_result *result);

/* Part of a call that waits; all zero before. */
struct task_waiter {
    struct task_waiter *next;
    struct task *task; /* NULL: it does not wait */
    struct loop_timer timer;
    task_done *done;
};

extern struct task *tasks; /* in progress */

struct task *task_find(uint64_t subject); /* NULL: there is none */

enum task_failure { TASK_TOO_MANY = -EAGAIN };

/* allowed_ns: 0: without end. 0, TASK_TOO_MANY, -ENOMEM, or a failure of child_new(). */
int task_start(struct loop *loop, const struct task_kind *kind, uint64_t subject, const void *work,
               uint64_t allowed_ns, struct task **ret_task);

/* `done` comes once, from the loop: when the task has ended, or timeout_ns from now (0: never). */
void task_wait(struct task *task, struct task_waiter *waiter, uint64_t timeout_ns, task_done *done);
void task_leave(struct task_waiter *waiter); /* also one that does not wait */

/* Kills the task's process, answers its calls with `end`, and gives the task other work, which is
 * begun when the process has ended: one that the kernel does not let end may still do what it was
 * to do. The kind has the same size of work. */
void task_replace(struct task *task, const struct task_kind *kind, const void *work,
                  const struct task_end *end);

/* Kills the process; nobody is called. */
void task_free(struct task *task);
void tasks_free(void); /* all of them: before the program exits */
