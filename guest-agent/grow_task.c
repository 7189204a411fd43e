/* SPDX-License-Identifier: Apache-2.0 */
/* grow_task.c - the ioctl in a child process, which reports the outcome through a pipe. */
#include "guest-agent/grow_task.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/list.h"

/* Another's resize is waited for this long. */
#define BUSY_PATIENCE_NS (5 * NSEC_PER_SEC)
#define BUSY_PAUSE_NS    (50 * NSEC_PER_MSEC)
/* One step on a slow disk may take longer than a call. */
#define STEP_PATIENCE_NS (60 * NSEC_PER_SEC)

struct grow_task {
    struct grow_task *next; /* while it runs */
    dev_t device;           /* of its volume */
    uint64_t bytes;         /* of the file system, when last looked at */
    uint64_t grown_ns;      /* when it was seen to have grown; 0: not yet */
    struct child *child;
    grow_task_done *done; /* NULL: nobody wants to know */
    void *userdata;
    bool reported;
};

struct report {
    int outcome;
    struct error error;
};

static struct grow_task *running;

static int grow_once(const struct volume *volume, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    struct filesystem filesystem;
    int r;

    if (volume->kind == FILESYSTEM_OTHER)
        return error_set(error, FILESYSTEM_UNSUPPORTED,
                         "%s is a file system that cannot be grown here", volume->file_system);
    r = volume_open(volume, &filesystem, &directory);
    if (r < 0)
        return error_set_errno(error, r, "cannot open %s", volume->mount_point);
    return filesystem_grow(directory, &filesystem, error);
}

/* In the child. */
static int grow(const void *volume)
{
    const struct timespec pause = {.tv_nsec = (long)BUSY_PAUSE_NS};
    uint64_t patience_ends = clock_boottime() + BUSY_PATIENCE_NS;
    struct report report = {0};

    report.outcome = grow_once(volume, &report.error);
    while (report.outcome == FILESYSTEM_BUSY && clock_boottime() < patience_ends) {
        (void)nanosleep(&pause, NULL);
        report.outcome = grow_once(volume, &report.error);
    }
    if (report.outcome < 0 || report.outcome == FILESYSTEM_READ_ONLY) {
        const char *trouble = volume_trouble(volume, &report.outcome);

        if (trouble)
            (void)error_set(&report.error, report.outcome, "%s", trouble);
    }
    return write(STDOUT_FILENO, &report, sizeof(report)) == sizeof(report) ? EXIT_SUCCESS
                                                                           : EXIT_FAILURE;
}

static void release(struct grow_task *task)
{
    (void)child_free(task->child);
    free(task);
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    struct grow_task *task = userdata;
    struct report report;

    (void)child;
    LL_DELETE(running, task);
    task->reported = true;
    if (end == CHILD_EXITED && status == EXIT_SUCCESS && output->length == sizeof(report)) {
        memcpy(&report, output->data, sizeof(report));
    } else {
        report.outcome = -ECHILD;
        (void)error_set(&report.error, -ECHILD, "the process that grows it has died");
    }
    if (task->done)
        task->done(task, report.outcome, &report.error, task->userdata);
    else
        release(task);
}

int grow_task_new(struct loop *loop, const struct volume *volume, grow_task_done *done,
                  void *userdata, struct grow_task **ret_task)
{
    const struct child_request request = {
        .output_limit = sizeof(struct report), .function = grow, .argument = volume, .input = -1};
    struct grow_task *task;
    unsigned count = 0;
    int r;

    LL_FOREACH(running, task)
    {
        if (task->device == volume->device)
            return GROW_TASK_RUNS;
        count++;
    }
    if (count >= GROW_TASK_LIMIT)
        return GROW_TASK_TOO_MANY;
    task = calloc(1, sizeof(*task));
    if (!task)
        return -ENOMEM;
    *task = (struct grow_task){.device = volume->device,
                               .bytes = grow_task_size(volume),
                               .done = done,
                               .userdata = userdata};
    r = child_new(loop, &request, on_end, task, &task->child);
    if (r < 0) {
        free(task);
        return r;
    }
    LL_PREPEND(running, task);
    *ret_task = task;
    return 0;
}

struct grow_task *grow_task_free(struct grow_task *task)
{
    if (task && task->reported)
        release(task);
    else if (task)
        task->done = NULL;
    return NULL;
}

struct grow_task *grow_task_abandon(struct grow_task *task)
{
    if (!task)
        return NULL;
    if (!task->reported)
        LL_DELETE(running, task);
    release(task);
    return NULL;
}

uint64_t grow_task_size(const struct volume *volume)
{
    struct statfs statistics;

    if (statfs(volume->mount_point, &statistics) < 0)
        return 0;
    return statistics.f_blocks * (uint64_t)statistics.f_bsize;
}

/* Whether a child of this process has grown the file system lately. */
static bool has_grown_lately(const struct volume *volume, uint64_t bytes)
{
    struct grow_task *task;

    LL_FOREACH(running, task)
    {
        if (task->device != volume->device)
            continue;
        if (bytes > task->bytes)
            task->grown_ns = clock_boottime();
        task->bytes = bytes;
        return task->grown_ns && clock_boottime() - task->grown_ns < STEP_PATIENCE_NS;
    }
    return false;
}

bool grow_task_progress(const struct volume *volume, uint64_t before, uint64_t device_bytes,
                        char *ret_text, size_t size)
{
    uint64_t now = grow_task_size(volume);
    bool grows = has_grown_lately(volume, now) || now > before;

    (void)snprintf(ret_text, size, "%" PRIu64 " of %" PRIu64 " bytes%s", now, device_bytes,
                   grows ? "" : ", and no more than before");
    return grows;
}
