/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot.c - finds the volumes, grows them side by side in processes of their own, reports.
 *
 * Only the named volumes are touched: a path must be a mount point, and a read-only mount is not
 * replaced by another mount of the same file system. A call that the kernel is known to refuse is
 * not made, so that the report has the reason and the kernel's log no complaint.
 */
#include "guest-agent/oneshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "guest-agent/guest_device.h"
#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/loop.h"
#include "lib/path.h"

enum { REPORT_BYTES = 1024 * 1024 };

struct job {
    struct oneshot *oneshot;
    struct volume volume;
    bool found;
    bool waiting;         /* to be grown, not started yet */
    uint64_t first_bytes; /* of its file system */
    struct grow_task *task;
    struct report_volume report;
};

struct oneshot {
    const struct oneshot_request *request;
    struct loop loop;
    struct loop_timer deadline;
    struct job *jobs;
    size_t count;
    size_t unfinished; /* resizes, waiting or running */
};

static void start_tasks(struct oneshot *oneshot);

static void finish(struct job *job)
{
    if (--job->oneshot->unfinished == 0)
        loop_stop(&job->oneshot->loop);
}

/* Another helper, or a call that goes on, may be what grows it. */
static void say_growing(struct job *job, int otherwise, const char *text)
{
    char progress[96];
    uint64_t bytes = 0;

    (void)device_size(job->volume.device, &bytes);
    if (grow_task_progress(&job->volume, job->first_bytes, bytes, progress, sizeof(progress)))
        report_fail(&job->report, REPORT_GROWING, progress);
    else
        report_fail(&job->report, otherwise, text);
}

static void on_grown(struct grow_task *task, int outcome, const struct error *error, void *userdata)
{
    struct job *job = userdata;

    job->task = grow_task_free(task);
    if (outcome == FILESYSTEM_BUSY)
        say_growing(job, REPORT_BUSY, error->text);
    else if (outcome != FILESYSTEM_GROWN)
        report_fail(&job->report, outcome, error->text);
    finish(job);
    start_tasks(job->oneshot);
}

/* Starts as many as may run at once; each that ends makes room for the next. */
static void start_tasks(struct oneshot *oneshot)
{
    for (size_t i = 0; i < oneshot->count; i++) {
        struct job *job = &oneshot->jobs[i];
        int r;

        if (!job->waiting)
            continue;
        job->first_bytes = grow_task_size(&job->volume);
        r = grow_task_new(&oneshot->loop, &job->volume, on_grown, job, &job->task);
        if (r == GROW_TASK_TOO_MANY)
            return;
        if (r == GROW_TASK_RUNS)
            continue; /* by another path */
        job->waiting = false;
        if (r < 0) {
            report_fail(&job->report, REPORT_FAILED, "cannot start a process to grow it");
            finish(job);
        }
    }
}

static void on_deadline(struct loop_timer *timer)
{
    struct oneshot *oneshot = container_of(timer, struct oneshot, deadline);

    for (size_t i = 0; i < oneshot->count; i++) {
        struct job *job = &oneshot->jobs[i];

        if (job->task)
            say_growing(job, REPORT_TIMED_OUT, "the file system does not go on growing");
        else if (job->waiting)
            report_fail(&job->report, REPORT_TIMED_OUT, "other file systems took all of the time");
        job->task = grow_task_abandon(job->task);
        job->waiting = false;
    }
    loop_stop(&oneshot->loop);
}

static int add_job(struct oneshot *oneshot, const char *path)
{
    struct job *jobs = realloc(oneshot->jobs, (oneshot->count + 1) * sizeof(*jobs));
    struct job *job;

    if (!jobs)
        return -ENOMEM;
    oneshot->jobs = jobs;
    job = &jobs[oneshot->count++];
    *job = (struct job){.oneshot = oneshot};
    (void)snprintf(job->report.path, sizeof(job->report.path), "%s", path);
    return 0;
}

static int add_path(struct oneshot *oneshot, const char *path, struct error *error)
{
    struct error reason = {0};
    struct job *job;
    int r = add_job(oneshot, path);

    if (r < 0)
        return error_set_errno(error, r, "cannot take %s", path);
    job = &oneshot->jobs[oneshot->count - 1];
    r = path[0] == '/' ? volume_find_mount(path, &job->volume, &reason)
                       : volume_find(path, &job->volume, &reason);
    if (r < 0)
        return error_set_errno(error, r, "cannot read /proc/self/mountinfo");
    job->found = r == VOLUME_FOUND;
    if (!job->found)
        report_fail(&job->report, REPORT_NOT_MOUNTED, reason.text);
    return 0;
}

struct collector {
    struct oneshot *oneshot;
    int result;
};

static bool add_volume(const struct volume *volume, void *userdata)
{
    struct collector *collector = userdata;
    struct oneshot *oneshot = collector->oneshot;

    collector->result = add_job(oneshot, volume->mount_point);
    if (collector->result < 0)
        return false;
    oneshot->jobs[oneshot->count - 1].volume = *volume;
    oneshot->jobs[oneshot->count - 1].found = true;
    return true;
}

static int find_volumes(struct oneshot *oneshot, struct error *error)
{
    struct collector collector = {oneshot, 0};
    int r = 0;

    for (size_t i = 0; r == 0 && i < oneshot->request->count; i++)
        r = add_path(oneshot, oneshot->request->paths[i], error);
    if (r < 0 || !oneshot->request->all)
        return r;
    r = volume_for_each(0, add_volume, &collector);
    if (r == 0)
        r = collector.result;
    return r < 0 ? error_set_errno(error, r, "cannot list the mounted file systems") : 0;
}

/* Settles the volumes whose result is known without trying. */
static void examine(struct job *job)
{
    struct report_volume *report = &job->report;
    const char *trouble;
    char text[ERROR_TEXT_BYTES];
    int outcome;

    if (!volume_has_device(&job->volume)) {
        (void)snprintf(text, sizeof(text), "%s is not on a block device", job->volume.file_system);
        report_fail(report, REPORT_NOT_A_BLOCK_DEVICE, text);
    }
    if (job->oneshot->request->report_only || report->error != REPORT_DONE)
        return;
    trouble = volume_trouble(&job->volume, &outcome);
    if (job->volume.kind == FILESYSTEM_OTHER) {
        (void)snprintf(text, sizeof(text), "%s is a file system that cannot be grown here",
                       job->volume.file_system);
        report_fail(report, REPORT_UNSUPPORTED, text);
    } else if (trouble) {
        report_fail(report, outcome, trouble);
    } else if (job->volume.read_only) {
        report_fail(report, REPORT_READ_ONLY, AGENT_READ_ONLY_TEXT);
    }
}

/* On the loop, until all are grown or the time is over. */
static void grow(struct oneshot *oneshot)
{
    for (size_t i = 0; i < oneshot->count; i++) {
        struct job *job = &oneshot->jobs[i];

        job->waiting = !oneshot->request->report_only && job->report.error == REPORT_DONE;
        oneshot->unfinished += job->waiting;
    }
    if (!oneshot->unfinished)
        return;
    if (oneshot->request->timeout_ns)
        loop_timer_start(&oneshot->loop, &oneshot->deadline, oneshot->request->timeout_ns,
                         on_deadline);
    start_tasks(oneshot);
    if (oneshot->unfinished)
        loop_run(&oneshot->loop);
    loop_timer_stop(&oneshot->deadline);
}

static int print(const struct oneshot *oneshot, int output, struct error *error)
{
    struct buffer line = BUFFER_INIT(REPORT_BYTES);
    int outcome = ONESHOT_DONE, r;

    report_begin(&line);
    for (size_t i = 0; i < oneshot->count; i++) {
        report_append(&line, &oneshot->jobs[i].report);
        if (oneshot->jobs[i].report.error != REPORT_DONE)
            outcome = ONESHOT_INCOMPLETE;
    }
    r = report_end(&line);
    if (r == 0)
        r = path_write(output, line.data, line.length);
    buffer_done(&line);
    return r < 0 ? error_set_errno(error, r, "cannot write the report") : outcome;
}

static int run(struct oneshot *oneshot, int output, struct error *error)
{
    int r = find_volumes(oneshot, error);

    if (r < 0)
        return r;
    for (size_t i = 0; i < oneshot->count; i++) {
        if (oneshot->jobs[i].found)
            examine(&oneshot->jobs[i]);
    }
    grow(oneshot);
    for (size_t i = 0; i < oneshot->count; i++) {
        if (oneshot->jobs[i].found)
            report_describe(&oneshot->jobs[i].volume, &oneshot->jobs[i].report);
    }
    return print(oneshot, output, error);
}

int oneshot_run(const struct oneshot_request *request, int output, struct error *error)
{
    struct oneshot oneshot = {.request = request};
    int r;

    if (access("/sys/dev/block", F_OK) < 0)
        return error_set(error, -ENOENT, "/sys is not mounted: the sizes of devices are not known");
    if (loop_init(&oneshot.loop) < 0)
        return error_set(error, -ENOMEM, "cannot start the event loop");
    r = run(&oneshot, output, error);
    loop_done(&oneshot.loop);
    free(oneshot.jobs);
    return r;
}

/* ---- report --------------------------------------------------------------------------------- */

/* Figures from statfs(2) and sysfs, one object per path.
 *
 * A figure that cannot be read is 0 and no error, because the report is mainly about growing.
 */

enum { REPORT_VERSION = 1 };

static const char *const error_names[REPORT_ERROR_COUNT] = {
    [REPORT_DONE] = "",
    [REPORT_NOT_MOUNTED] = "not_mounted",
    [REPORT_NOT_A_BLOCK_DEVICE] = "not_a_block_device",
    [REPORT_UNSUPPORTED] = "unsupported",
    [FILESYSTEM_REFUSED] = "refused",
    [REPORT_READ_ONLY] = "read_only",
    [FILESYSTEM_ERRORS] = "errors",
    [FILESYSTEM_SHUT_DOWN] = "shut_down",
    [FILESYSTEM_DENIED] = "no_capability",
    [REPORT_BUSY] = "busy",
    [REPORT_TIMED_OUT] = "timed_out",
    [FILESYSTEM_LIMIT] = "limit",
    [REPORT_GROWING] = "growing",
    [REPORT_FAILED] = "failed",
};

void report_fail(struct report_volume *report, int error, const char *text)
{
    if (report->error != REPORT_DONE)
        return;
    report->error = error < 0 ? REPORT_FAILED : error;
    (void)snprintf(report->error_text, sizeof(report->error_text), "%s", text);
}

/* The file system's devices; of one that cannot be opened, the device in mountinfo. */
static void find_devices(const struct volume *volume, struct filesystem *ret_filesystem)
{
    cleanup(fd_closep) int fd = -1;

    if (volume->kind != FILESYSTEM_OTHER && volume_open(volume, ret_filesystem, &fd) == 0)
        return;
    *ret_filesystem = (struct filesystem){.kind = volume->kind};
    if (major(volume->device) == 0)
        return;
    ret_filesystem->device_count = 1;
    ret_filesystem->devices[0].device = volume->device;
}

static void describe_devices(const struct volume *volume, struct report_volume *report)
{
    struct filesystem filesystem;

    find_devices(volume, &filesystem);
    report->device_bytes = 0;
    report->device_count = filesystem.device_count;
    report->device = filesystem.device_count ? filesystem.devices[0].device : 0;
    for (unsigned i = 0; i < filesystem.device_count; i++) {
        dev_t device = filesystem.devices[i].device;
        uint64_t bytes;

        if (device_size(device, &bytes) == 0)
            report->device_bytes += bytes;
        if (!report->layer[0])
            (void)device_layer(device, report->layer, sizeof(report->layer));
    }
}

void report_describe(const struct volume *volume, struct report_volume *report)
{
    (void)snprintf(report->file_system, sizeof(report->file_system), "%s", volume->file_system);
    report->read_only = volume->read_only;
    report->stats = (struct agent_stats){0};
    if (!volume_has_device(volume))
        return; /* statfs(2) of a remote one might wait */
    describe_devices(volume, report);
    stats_of(volume, &report->stats);
}

static void append_device(struct buffer *line, const struct report_volume *volume)
{
    char name[DEVICE_NAME_BYTES] = "", numbers[32] = "";

    if (volume->device_count) {
        device_name(volume->device, name);
        (void)snprintf(numbers, sizeof(numbers), "%u:%u", major(volume->device),
                       minor(volume->device));
    }
    json_append_member(line, "device", numbers);
    json_append_member(line, "device_name", name);
    buffer_append_format(line, ",\"device_count\":%u,\"device_bytes\":%" PRIu64,
                         volume->device_count, volume->device_bytes);
    json_append_member(line, "layer", volume->layer);
}

static void append_stats(struct buffer *line, const struct agent_stats *stats)
{
    buffer_append_format(line,
                         ",\"total\":%" PRIu64 ",\"used\":%" PRIu64 ",\"available\":%" PRIu64
                         ",\"total_inodes\":%" PRIu64 ",\"used_inodes\":%" PRIu64
                         ",\"available_inodes\":%" PRIu64,
                         stats->total, stats->used, stats->available, stats->total_inodes,
                         stats->used_inodes, stats->available_inodes);
}

int report_begin(struct buffer *line)
{
    return buffer_append_format(line, "{\"version\":%d,\"volumes\":[", REPORT_VERSION);
}

int report_append(struct buffer *line, const struct report_volume *volume)
{
    bool abnormal = volume->stats.abnormal;
    bool is_first = line->length > 0 && line->data[line->length - 1] == '[';

    buffer_append_text(line, is_first ? "{" : ",{");
    json_append_member(line, "path", volume->path);
    json_append_member(line, "file_system", volume->file_system);
    append_device(line, volume);
    append_stats(line, &volume->stats);
    buffer_append_format(line, ",\"read_only\":%s", volume->read_only ? "true" : "false");
    json_append_member(line, "condition", abnormal ? "abnormal" : "normal");
    json_append_member(line, "message", abnormal ? volume->stats.condition : "");
    json_append_member(line, "error", error_names[volume->error]);
    json_append_member(line, "error_text", volume->error_text);
    return buffer_append_text(line, "}");
}

int report_end(struct buffer *line)
{
    return buffer_append_text(line, "]}\n");
}
