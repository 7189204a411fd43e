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

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <time.h>

#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

#define DEFAULT_TIMEOUT_NS (10 * NSEC_PER_SEC)
#define LONGEST_TIMEOUT_NS (600 * NSEC_PER_SEC)
#define LONGEST_MARGIN_NS  (1 * NSEC_PER_SEC)
#define FIRST_PAUSE_NS     (5 * NSEC_PER_MSEC)
#define LONGEST_PAUSE_NS   (250 * NSEC_PER_MSEC)
/* Another's resize is waited for this long. */
#define BUSY_PATIENCE_NS (5 * NSEC_PER_SEC)
#define BUSY_PAUSE_NS    (50 * NSEC_PER_MSEC)
/* One step on a slow disk may take longer than a call. */
#define STEP_PATIENCE_NS (60 * NSEC_PER_SEC)

enum { GROW_TASK_LIMIT = 16 };

/* ---- the task ---- */

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

static int grow(const void *work, struct task_progress *progress, struct buffer *payload,
                struct error *error)
{
    const struct volume *volume = work;
    const struct timespec pause = {.tv_nsec = (long)BUSY_PAUSE_NS};
    uint64_t patience_ends = clock_boottime() + BUSY_PATIENCE_NS;
    const char *trouble;
    int outcome;

    (void)progress;
    (void)payload;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    outcome = grow_once(volume, error);
    while (outcome == FILESYSTEM_BUSY && clock_boottime() < patience_ends) {
        (void)nanosleep(&pause, NULL);
        outcome = grow_once(volume, error);
    }
    if (outcome < 0 || outcome == FILESYSTEM_READ_ONLY) {
        trouble = volume_trouble(volume, &outcome);
        if (trouble)
            (void)error_set(error, outcome, "%s", trouble);
    }
    return outcome;
}

static const struct task_kind growing = {
    .run = grow,
    .work_bytes = sizeof(struct volume),
    .most = GROW_TASK_LIMIT,
    .died = {-ECHILD, "the process that grows it has died"},
};

int grow_start(struct loop *loop, const struct volume *volume, struct task_waiter *waiter,
               task_done *done)
{
    struct task *task = task_find(volume->device);
    int r = task ? GROW_RUNS : task_start(loop, &growing, volume->device, volume, 0, &task);

    if (r < 0)
        return r;
    task->progress->bytes = grow_size(volume);
    task_wait(task, waiter, 0, done);
    return 0;
}

uint64_t grow_size(const struct volume *volume)
{
    struct statfs statistics;

    if (statfs(volume->mount_point, &statistics) < 0)
        return 0;
    return statistics.f_blocks * (uint64_t)statistics.f_bsize;
}

bool grow_progress(const struct volume *volume, uint64_t before, uint64_t device_bytes,
                   char *ret_text, size_t size)
{
    const struct task *task = task_find(volume->device);
    struct task_progress *seen = task ? task->progress : NULL;
    uint64_t bytes = grow_size(volume), now = clock_boottime();
    bool grows = bytes > before;

    if (seen) {
        if (bytes > seen->bytes)
            seen->grown_ns = now;
        seen->bytes = bytes;
        grows = grows || (seen->grown_ns && now - seen->grown_ns < STEP_PATIENCE_NS);
    }
    (void)snprintf(ret_text, size, "%" PRIu64 " of %" PRIu64 " bytes%s", bytes, device_bytes,
                   grows ? "" : ", and no more than before");
    return grows;
}

/* ---- the call ---- */

struct resize {
    struct loop *loop;
    char path[AGENT_PATH_BYTES];
    uint64_t bytes;
    uint64_t pause_ns;
    struct volume volume;
    struct filesystem filesystem;
    struct task_waiter task;
    bool is_growing;      /* by this request's task or another's */
    uint64_t grown_bytes; /* when that was found */
    struct loop_timer step;
    struct loop_timer deadline;
    resize_done *done;
    void *userdata;
};

static void on_check(struct loop_timer *timer);

/* The owner may free the resize in here. */
static void report(struct resize *resize, enum status_code code, const char *beginning,
                   const char *why)
{
    char text[ERROR_TEXT_BYTES + sizeof(AGENT_LIMIT_TEXT)], number[16];

    loop_timer_stop(&resize->step);
    loop_timer_stop(&resize->deadline);
    (void)snprintf(text, sizeof(text), "%s%s", beginning, why);
    if (code == STATUS_OK)
        log_info(NULL, "resized %s", resize->path);
    else if (strncmp(text, AGENT_GROWING_TEXT, strlen(AGENT_GROWING_TEXT)) == 0)
        log_info(NULL, "%s: %s", resize->path, text);
    else
        log_warning(NULL, "cannot resize %s: %s: %s", resize->path,
                    ttrpc_code_name((int)code, number), text);
    resize->done(resize, code, text, resize->userdata);
}

static void wait_for_check(struct resize *resize)
{
    loop_timer_start(resize->loop, &resize->step, resize->pause_ns, on_check);
    resize->pause_ns *= 2;
    if (resize->pause_ns > LONGEST_PAUSE_NS)
        resize->pause_ns = LONGEST_PAUSE_NS;
}

static void on_grown(struct task_waiter *waiter, const struct task_result *result)
{
    struct resize *resize = container_of(waiter, struct resize, task);

    switch (result->outcome) {
    case FILESYSTEM_GROWN:
        report(resize, STATUS_OK, "", "");
        break;
    case FILESYSTEM_BUSY:
        wait_for_check(resize);
        break;
    case FILESYSTEM_READ_ONLY:
        report(resize, STATUS_UNAVAILABLE, "", result->text);
        break;
    case FILESYSTEM_DENIED:
        report(resize, STATUS_PERMISSION_DENIED, "", result->text);
        break;
    case FILESYSTEM_LIMIT:
        report(resize, STATUS_FAILED_PRECONDITION, AGENT_LIMIT_TEXT, result->text);
        break;
    default:
        if (result->outcome < 0)
            report(resize, STATUS_INTERNAL, "", result->text);
        else
            report(resize, STATUS_FAILED_PRECONDITION, AGENT_NOT_GROWABLE_TEXT, result->text);
    }
}

static void resize_grow(struct resize *resize)
{
    int r;

    if (!resize->is_growing)
        resize->grown_bytes = grow_size(&resize->volume);
    resize->is_growing = true;
    r = grow_start(resize->loop, &resize->volume, &resize->task, on_grown);
    if (r == GROW_RUNS)
        wait_for_check(resize);
    else if (r == TASK_TOO_MANY)
        report(resize, STATUS_RESOURCE_EXHAUSTED, "", "too many file systems grow at once");
    else if (r < 0)
        report(resize, STATUS_INTERNAL, "", "cannot start a process to grow the file system");
}

/* The size of the volume's largest device, and which one it is; 0: none can be read. */
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
        report(resize, STATUS_FAILED_PRECONDITION, "", layer);
    else
        wait_for_check(resize);
}

static void on_deadline(struct loop_timer *timer)
{
    struct resize *resize = container_of(timer, struct resize, deadline);
    char name[DEVICE_NAME_BYTES], text[TTRPC_MESSAGE_BYTES];
    const char *beginning = "";
    dev_t device = 0;
    uint64_t bytes = largest_device(resize, &device);

    device_name(device, name);
    if (resize->is_growing)
        beginning = grow_progress(&resize->volume, resize->grown_bytes, bytes, text, sizeof(text))
                        ? AGENT_GROWING_TEXT
                        : "the file system does not go on growing: ";
    else
        (void)snprintf(text, sizeof(text), "%s has %" PRIu64 " bytes, not yet %" PRIu64, name,
                       bytes, resize->bytes);
    report(resize, STATUS_DEADLINE_EXCEEDED, beginning, text);
}

/* The first step: everything that can be answered without waiting. */
static void on_start(struct loop_timer *timer)
{
    struct resize *resize = container_of(timer, struct resize, step);
    cleanup(fd_closep) int directory = -1;
    struct error error = {0};
    const char *trouble;
    int outcome, r = volume_find(resize->path, &resize->volume, &error);

    if (r != VOLUME_FOUND) {
        report(resize, r < 0 ? STATUS_INTERNAL : STATUS_INVALID_ARGUMENT, "", error.text);
        return;
    }
    if (resize->volume.kind == FILESYSTEM_OTHER) {
        (void)error_set(&error, 0, "%s is not ext4, xfs or btrfs", resize->volume.file_system);
        report(resize, STATUS_FAILED_PRECONDITION, AGENT_NOT_GROWABLE_TEXT, error.text);
        return;
    }
    volume_prefer_writable(&resize->volume);
    trouble = volume_trouble(&resize->volume, &outcome);
    if (trouble && outcome == FILESYSTEM_SHUT_DOWN)
        report(resize, STATUS_FAILED_PRECONDITION, AGENT_NOT_GROWABLE_TEXT, trouble);
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
    task_leave(&resize->task);
    free(resize);
    return NULL;
}
