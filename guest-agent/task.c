/* SPDX-License-Identifier: Apache-2.0 */
/* task.c - the list of tasks; each has a child process and the calls that wait for it. */
#include "guest-agent/task.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/path.h"

struct task *tasks;

/* What the process writes; the payload follows. */
struct report {
    int outcome;
    struct error error;
};

struct task *task_find(uint64_t subject)
{
    struct task *task = tasks;

    while (task && task->subject != subject)
        task = task->next;
    return task;
}

/* ---- the calls ---- */

void task_leave(struct task_waiter *waiter)
{
    if (waiter->task)
        LL_DELETE(waiter->task->waiters, waiter);
    waiter->task = NULL;
    loop_timer_stop(&waiter->timer);
}

static void on_late(struct loop_timer *timer)
{
    struct task_waiter *waiter = container_of(timer, struct task_waiter, timer);
    const struct task_end *late = &waiter->task->kind->late;

    task_leave(waiter);
    waiter->done(waiter, &(struct task_result){late->outcome, late->text, NULL, 0});
}

void task_wait(struct task *task, struct task_waiter *waiter, uint64_t timeout_ns, task_done *done)
{
    waiter->task = task;
    waiter->done = done;
    LL_PREPEND(task->waiters, waiter);
    if (timeout_ns)
        loop_timer_start(task->loop, &waiter->timer, timeout_ns, on_late);
}

/* A call that is answered may begin another, or make others leave. */
static void answer_all(struct task *task, const struct task_result *result)
{
    struct task answered = {.waiters = task->waiters};
    struct task_waiter *waiter;

    task->waiters = NULL;
    LL_FOREACH(answered.waiters, waiter)
    {
        waiter->task = &answered;
    }
    while ((waiter = answered.waiters)) {
        task_leave(waiter);
        waiter->done(waiter, result);
    }
}

/* ---- the process ---- */

/* In the child. */
static int run(const void *argument)
{
    const struct task *task = argument;
    struct buffer payload = BUFFER_INIT(task->kind->payload_bytes);
    struct report report = {0};
    int r;

    report.outcome = task->kind->run(task->work, task->progress, &payload, &report.error);
    r = path_write(STDOUT_FILENO, (const char *)&report, sizeof(report));
    if (r == 0)
        r = path_write(STDOUT_FILENO, buffer_text(&payload), payload.length);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata);

static int start(struct task *task, uint64_t allowed_ns)
{
    const struct child_request request = {
        .output_limit = sizeof(struct report) + task->kind->payload_bytes,
        .allowed_ns = allowed_ns,
        .function = run,
        .argument = task,
        .input = -1,
        .root = -1,
        .subject = task->subject,
    };

    return child_new(task->loop, &request, on_end, task, &task->child);
}

static void release(struct task *task)
{
    (void)child_free(task->child);
    (void)munmap(task->progress, sizeof(*task->progress));
    free(task->work);
    free(task);
}

static void finish(struct task *task, const struct task_result *result)
{
    LL_DELETE(tasks, task);
    if (task->kind->ended)
        task->kind->ended(task->work, result);
    answer_all(task, result);
    release(task);
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    struct task *task = userdata;
    struct report report;
    const struct task_end *failure = end == CHILD_TIMEOUT ? &task->kind->late : &task->kind->died;
    struct task_result result = {failure->outcome, failure->text, NULL, 0};

    if (task->is_replaced) {
        task->is_replaced = false;
        task->child = child_free(child);
        result.outcome = start(task, 0);
        if (result.outcome == 0)
            return;
        result.text = child_explain(result.outcome);
    } else if (end == CHILD_EXITED && status == EXIT_SUCCESS && output->length >= sizeof(report)) {
        memcpy(&report, output->data, sizeof(report));
        result =
            (struct task_result){report.outcome, report.error.text, output->data + sizeof(report),
                                 output->length - sizeof(report)};
    }
    finish(task, &result);
}

/* ---- tasks ---- */

void task_free(struct task *task)
{
    while (task->waiters)
        task_leave(task->waiters);
    LL_DELETE(tasks, task);
    release(task);
}

int task_start(struct loop *loop, const struct task_kind *kind, uint64_t subject, const void *work,
               uint64_t allowed_ns, struct task **ret_task)
{
    cleanup(freep) void *copy = malloc(kind->work_bytes);
    struct task *task;
    unsigned count = 0;
    int r;

    LL_FOREACH(tasks, task)
    {
        count += task->kind == kind;
    }
    if (kind->most && count >= kind->most)
        return TASK_TOO_MANY;
    task = calloc(1, sizeof(*task));
    if (!task || !copy) {
        free(task);
        return -ENOMEM;
    }
    *task = (struct task){.loop = loop, .kind = kind, .subject = subject};
    task->progress = mmap(NULL, sizeof(*task->progress), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (task->progress == MAP_FAILED) {
        free(task);
        return -ENOMEM;
    }
    memcpy(copy, work, kind->work_bytes);
    task->work = take_pointer(&copy);
    LL_PREPEND(tasks, task);
    r = start(task, allowed_ns);
    if (r < 0)
        task_free(task);
    else
        *ret_task = task;
    return r;
}

void task_replace(struct task *task, const struct task_kind *kind, const void *work,
                  const struct task_end *end)
{
    memcpy(task->work, work, kind->work_bytes);
    task->kind = kind;
    task->is_replaced = true;
    child_kill(task->child);
    answer_all(task, &(struct task_result){end->outcome, end->text, NULL, 0});
}

void tasks_free(void)
{
    while (tasks)
        task_free(tasks);
}
