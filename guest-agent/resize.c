/* SPDX-License-Identifier: Apache-2.0 */
/* resize.c - a small state machine on timers: read the sizes, read them again, grow, or give up.
 *
 * It gives up a little before the caller does, so that the caller gets the reason. While it waits
 * it holds no descriptor of the volume, because the volume could not be unmounted then.
 *
 * The status of each outcome: crustd reads FAILED_PRECONDITION as "does not heal by itself" (about
 * the file system if the text begins with AGENT_NOT_GROWABLE_TEXT, else about a layer below it),
 * and NOT_FOUND and UNIMPLEMENTED as "no such call". So a missing volume is INVALID_ARGUMENT, and a
 * read-only one, which may be remounted, is UNAVAILABLE. A file system that is still growing after
 * the caller's time goes on, and the next request for it waits for the same end. A caller whose
 * time is over gets DEADLINE_EXCEEDED, with AGENT_GROWING_TEXT if it has grown during this call or
 * lately.
 */
#include "guest-agent/guest_volume.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "guest-agent/guest_device.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"

#define DEFAULT_TIMEOUT_NS (10 * NSEC_PER_SEC)
#define LONGEST_TIMEOUT_NS (600 * NSEC_PER_SEC)
#define LONGEST_MARGIN_NS  (1 * NSEC_PER_SEC)
#define FIRST_PAUSE_NS     (5 * NSEC_PER_MSEC)
#define LONGEST_PAUSE_NS   (250 * NSEC_PER_MSEC)

struct resize {
    struct loop *loop;
    char path[AGENT_PATH_BYTES];
    uint64_t bytes;
    uint64_t pause_ns;
    struct volume volume;
    struct filesystem filesystem;
    struct grow_task *task;
    bool is_growing;      /* by this request's task or another's */
    uint64_t grown_bytes; /* when that was found */
    struct loop_timer step;
    struct loop_timer deadline;
    resize_done *done;
    void *userdata;
};

static void on_check(struct loop_timer *timer);

/* The owner may free the resize in here. */
static void resize_report(struct resize *resize, enum status_code code, const char *text)
{
    struct ttrpc_status status = {.code = (int)code};

    loop_timer_stop(&resize->step);
    loop_timer_stop(&resize->deadline);
    (void)snprintf(status.message, sizeof(status.message), "%.*s", (int)sizeof(status.message) - 1,
                   text);
    resize->done(resize, &status, resize->userdata);
}

static enum status_code code_from_outcome(int outcome)
{
    switch (outcome) {
    case FILESYSTEM_GROWN:
        return STATUS_OK;
    case FILESYSTEM_READ_ONLY:
        return STATUS_UNAVAILABLE;
    case FILESYSTEM_DENIED:
        return STATUS_PERMISSION_DENIED;
    case FILESYSTEM_UNSUPPORTED:
    case FILESYSTEM_REFUSED:
    case FILESYSTEM_ERRORS:
    case FILESYSTEM_SHUT_DOWN:
    case FILESYSTEM_LIMIT:
        return STATUS_FAILED_PRECONDITION;
    default:
        return STATUS_INTERNAL;
    }
}

static void resize_refuse(struct resize *resize, const char *beginning, const char *why)
{
    char text[ERROR_TEXT_BYTES + sizeof(AGENT_LIMIT_TEXT)];

    (void)snprintf(text, sizeof(text), "%s%s", beginning, why);
    resize_report(resize, STATUS_FAILED_PRECONDITION, text);
}

static void wait_for_check(struct resize *resize)
{
    loop_timer_start(resize->loop, &resize->step, resize->pause_ns, on_check);
    resize->pause_ns *= 2;
    if (resize->pause_ns > LONGEST_PAUSE_NS)
        resize->pause_ns = LONGEST_PAUSE_NS;
}

static void on_grown(struct grow_task *task, int outcome, const struct error *error, void *userdata)
{
    struct resize *resize = userdata;
    enum status_code code = code_from_outcome(outcome);

    resize->task = grow_task_free(task);
    if (outcome == FILESYSTEM_BUSY)
        wait_for_check(resize);
    else if (code == STATUS_FAILED_PRECONDITION)
        resize_refuse(resize,
                      outcome == FILESYSTEM_LIMIT ? AGENT_LIMIT_TEXT : AGENT_NOT_GROWABLE_TEXT,
                      error->text);
    else
        resize_report(resize, code, code == STATUS_OK ? "" : error->text);
}

static void resize_grow(struct resize *resize)
{
    int r;

    if (!resize->is_growing)
        resize->grown_bytes = grow_task_size(&resize->volume);
    resize->is_growing = true;
    r = grow_task_new(resize->loop, &resize->volume, on_grown, resize, &resize->task);
    if (r == GROW_TASK_RUNS)
        wait_for_check(resize);
    else if (r == GROW_TASK_TOO_MANY)
        resize_report(resize, STATUS_RESOURCE_EXHAUSTED, "too many file systems grow at once");
    else if (r < 0)
        resize_report(resize, STATUS_INTERNAL, "cannot start a process to grow the file system");
}

/* The largest device of the volume; its layer, if the size asked for is not there yet. */
static uint64_t largest_device(const struct resize *resize, dev_t *ret_device)
{
    uint64_t largest = 0;

    for (unsigned i = 0; i < resize->filesystem.device_count; i++) {
        dev_t device = resize->filesystem.devices[i].device;
        uint64_t bytes;

        if (device_size(device, &bytes) == 0 && bytes >= largest) {
            largest = bytes;
            *ret_device = device;
        }
    }
    return largest;
}

static void on_check(struct loop_timer *timer)
{
    struct resize *resize = container_of(timer, struct resize, step);
    char layer[TTRPC_MESSAGE_BYTES];
    dev_t device = 0;

    if (largest_device(resize, &device) >= resize->bytes)
        resize_grow(resize);
    else if (device_layer(device, layer, sizeof(layer)))
        resize_report(resize, STATUS_FAILED_PRECONDITION, layer);
    else
        wait_for_check(resize);
}

static void on_deadline(struct loop_timer *timer)
{
    struct resize *resize = container_of(timer, struct resize, deadline);
    char name[DEVICE_NAME_BYTES], text[TTRPC_MESSAGE_BYTES], progress[96];
    dev_t device = 0;
    uint64_t bytes = largest_device(resize, &device);

    device_name(device, name);
    if (resize->is_growing)
        (void)snprintf(text, sizeof(text), "%s%s",
                       grow_task_progress(&resize->volume, resize->grown_bytes, bytes, progress,
                                          sizeof(progress))
                           ? AGENT_GROWING_TEXT
                           : "the file system does not go on growing: ",
                       progress);
    else
        (void)snprintf(text, sizeof(text), "%s has %" PRIu64 " bytes, not yet %" PRIu64, name,
                       bytes, resize->bytes);
    resize_report(resize, STATUS_DEADLINE_EXCEEDED, text);
}

/* The first step: everything that can be answered without waiting. */
static void on_start(struct loop_timer *timer)
{
    struct resize *resize = container_of(timer, struct resize, step);
    cleanup(fd_closep) int directory = -1;
    struct error error = {0};
    char text[ERROR_TEXT_BYTES];
    const char *trouble;
    int outcome, r = volume_find(resize->path, &resize->volume, &error);

    if (r != VOLUME_FOUND) {
        resize_report(resize, r < 0 ? STATUS_INTERNAL : STATUS_INVALID_ARGUMENT, error.text);
        return;
    }
    if (resize->volume.kind == FILESYSTEM_OTHER) {
        (void)snprintf(text, sizeof(text), "%s is not ext4, xfs or btrfs",
                       resize->volume.file_system);
        resize_refuse(resize, AGENT_NOT_GROWABLE_TEXT, text);
        return;
    }
    volume_prefer_writable(&resize->volume);
    trouble = volume_trouble(&resize->volume, &outcome);
    if (trouble && outcome == FILESYSTEM_SHUT_DOWN)
        resize_refuse(resize, AGENT_NOT_GROWABLE_TEXT, trouble);
    else if (volume_open(&resize->volume, &resize->filesystem, &directory) < 0)
        resize_grow(resize); /* fails, too, and says why */
    else
        on_check(timer);
}

int resize_new(struct loop *loop, const char *volume_path, uint64_t bytes, uint64_t timeout_ns,
               resize_done *done, void *userdata, struct resize **ret_resize)
{
    struct resize *resize = calloc(1, sizeof(*resize));
    uint64_t timeout = timeout_ns ? timeout_ns : DEFAULT_TIMEOUT_NS;
    uint64_t margin;

    if (!resize)
        return -ENOMEM;
    if (timeout > LONGEST_TIMEOUT_NS)
        timeout = LONGEST_TIMEOUT_NS;
    margin = timeout / 4 < LONGEST_MARGIN_NS ? timeout / 4 : LONGEST_MARGIN_NS;
    resize->loop = loop;
    (void)snprintf(resize->path, sizeof(resize->path), "%s", volume_path);
    resize->bytes = bytes;
    resize->pause_ns = FIRST_PAUSE_NS;
    resize->done = done;
    resize->userdata = userdata;
    loop_timer_start(loop, &resize->step, 0, on_start);
    loop_timer_start(loop, &resize->deadline, timeout - margin, on_deadline);
    *ret_resize = resize;
    return 0;
}

struct resize *resize_free(struct resize *resize)
{
    if (!resize)
        return NULL;
    loop_timer_stop(&resize->step);
    loop_timer_stop(&resize->deadline);
    (void)grow_task_free(resize->task);
    free(resize);
    return NULL;
}

/* ---- grow task ------------------------------------------------------------------------------ */

/* The ioctl in a child process, which reports the outcome through a pipe. */

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

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
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
