/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot.c - --once finds the volumes, grows them side by side in processes of their own, and
 * reports. --drive makes a call with the same functions as the server, without its loop.
 *
 * Only the named volumes are touched: a path must be a mount point, and a read-only mount is not
 * replaced by another mount of the same file system. A call that the kernel is known to refuse is
 * not made, so that the report has the reason and the kernel's log no complaint.
 */
#include "guest-agent/oneshot.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/guest_drive.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/path.h"

#define CONTAINERS_NS (5 * NSEC_PER_SEC) /* the interval for containers */

enum {
    REPORT_BYTES = 1024 * 1024,
    REPORT_VERSION = 1,
    FRAME_BYTES = TTRPC_HEADER_BYTES + AGENT_REPLY_BYTES,
};

struct job {
    struct oneshot *oneshot;
    struct volume volume;
    bool found;
    bool waiting;         /* to be grown, not started yet */
    uint64_t first_bytes; /* of its file system */
    struct task_waiter task;
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

/* Sets the error, unless one is set already; -errno is REPORT_FAILED. */
static void fail(struct job *job, int error, const char *text)
{
    if (job->report.error != REPORT_DONE)
        return;
    job->report.error = error < 0 ? REPORT_FAILED : error;
    (void)snprintf(job->report.error_text, sizeof(job->report.error_text), "%s", text);
}

/* ---- growing ---- */

static void start_tasks(struct oneshot *oneshot);

/* Another helper, or a call that goes on, may be what grows it. */
static void say_growing(struct job *job, int otherwise, const char *text)
{
    char progress[96];
    uint64_t bytes = 0;

    (void)device_size(job->volume.device, &bytes);
    if (grow_progress(&job->volume, job->first_bytes, bytes, progress, sizeof(progress)))
        fail(job, REPORT_GROWING, progress);
    else
        fail(job, otherwise, text);
}

static void on_grown(struct task_waiter *waiter, const struct task_result *result)
{
    struct job *job = container_of(waiter, struct job, task);

    if (result->outcome == FILESYSTEM_BUSY)
        say_growing(job, REPORT_BUSY, result->text);
    else if (result->outcome != FILESYSTEM_GROWN)
        fail(job, result->outcome, result->text);
    job->oneshot->unfinished--;
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
        job->first_bytes = grow_size(&job->volume);
        r = grow_start(&oneshot->loop, &job->volume, &job->task, on_grown);
        if (r == TASK_TOO_MANY)
            return;
        if (r == GROW_RUNS)
            continue; /* by another path */
        job->waiting = false;
        if (r < 0) {
            fail(job, REPORT_FAILED, "cannot start a process to grow it");
            oneshot->unfinished--;
        }
    }
    if (!oneshot->unfinished)
        loop_stop(&oneshot->loop);
}

/* The processes are killed, which takes effect when their system call returns: the ioctl may still
 * complete. */
static void on_deadline(struct loop_timer *timer)
{
    struct oneshot *oneshot = container_of(timer, struct oneshot, deadline);

    for (size_t i = 0; i < oneshot->count; i++) {
        struct job *job = &oneshot->jobs[i];

        if (job->task.task)
            say_growing(job, REPORT_TIMED_OUT, "the file system does not go on growing");
        else if (job->waiting)
            fail(job, REPORT_TIMED_OUT, "other file systems took all of the time");
        job->waiting = false;
    }
    tasks_free();
    loop_stop(&oneshot->loop);
}

/* Settles the volumes whose result is known without trying. */
static void examine(struct job *job)
{
    const struct volume *volume = &job->volume;
    const char *trouble;
    char text[ERROR_TEXT_BYTES];
    int outcome;

    if (!volume_has_device(volume)) {
        (void)snprintf(text, sizeof(text), "%s is not on a block device", volume->file_system);
        fail(job, REPORT_NOT_A_BLOCK_DEVICE, text);
    }
    if (job->oneshot->request->report_only || job->report.error != REPORT_DONE)
        return;
    trouble = volume_trouble(volume, &outcome);
    if (volume->kind == FILESYSTEM_OTHER) {
        (void)snprintf(text, sizeof(text), "%s is a file system that cannot be grown here",
                       volume->file_system);
        fail(job, REPORT_UNSUPPORTED, text);
    } else if (trouble) {
        fail(job, outcome, trouble);
    } else if (volume->read_only) {
        fail(job, REPORT_READ_ONLY, AGENT_READ_ONLY_TEXT);
    }
}

/* On the loop, until all are grown or the time is over. */
static void grow(struct oneshot *oneshot)
{
    for (size_t i = 0; i < oneshot->count; i++) {
        struct job *job = &oneshot->jobs[i];

        if (job->found)
            examine(job);
        job->waiting = !oneshot->request->report_only && job->report.error == REPORT_DONE;
        oneshot->unfinished += job->waiting;
    }
    if (oneshot->unfinished && oneshot->request->timeout_ns)
        loop_timer_start(&oneshot->loop, &oneshot->deadline, oneshot->request->timeout_ns,
                         on_deadline);
    start_tasks(oneshot);
    if (oneshot->unfinished)
        loop_run(&oneshot->loop);
    loop_timer_stop(&oneshot->deadline);
}

/* ---- which ---- */

static int find_volume(struct job *job, const char *path, struct error *error)
{
    struct error reason = {0};
    int r = path[0] == '/' ? volume_find_mount(path, &job->volume, &reason)
                           : volume_find(path, &job->volume, &reason);

    if (r < 0)
        return error_set_errno(error, r, "cannot read /proc/self/mountinfo");
    job->found = r == VOLUME_FOUND;
    if (!job->found)
        fail(job, REPORT_NOT_MOUNTED, reason.text);
    return 0;
}

static int find_volumes(struct oneshot *oneshot, struct error *error)
{
    const struct oneshot_request *request = oneshot->request;
    cleanup(freep) struct volume *volumes = NULL;
    size_t count = request->count;
    int r = request->all ? volume_list(0, &volumes, &count) : 0;

    oneshot->jobs = calloc(count + 1, sizeof(*oneshot->jobs));
    if (r == 0 && !oneshot->jobs)
        r = -ENOMEM;
    if (r < 0)
        return error_set_errno(error, r, "cannot list the mounted file systems");
    while (r == 0 && oneshot->count < count) {
        size_t i = oneshot->count++;
        struct job *job = &oneshot->jobs[i];
        const char *path = volumes ? volumes[i].mount_point : request->paths[i];

        job->oneshot = oneshot;
        (void)snprintf(job->report.path, sizeof(job->report.path), "%s", path);
        job->found = volumes;
        if (volumes)
            job->volume = volumes[i];
        else
            r = find_volume(job, path, error);
    }
    return r;
}

/* ---- report ---- */

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

/* Figures from statfs(2), which might wait for a remote file system, and sysfs. One that cannot be
 * read is 0 and no error, because the report is mainly about growing. Of devices that are not known
 * because the file system cannot be opened, the one in mountinfo is taken. */
static void describe(const struct volume *volume, struct report_volume *report)
{
    struct filesystem filesystem = {.device_count = 0};
    cleanup(fd_closep) int fd = -1;

    (void)snprintf(report->file_system, sizeof(report->file_system), "%s", volume->file_system);
    report->read_only = volume->read_only;
    if (!volume_has_device(volume))
        return;
    if ((volume->kind == FILESYSTEM_OTHER || volume_open(volume, &filesystem, &fd) < 0) &&
        major(volume->device) != 0) {
        filesystem.device_count = 1;
        filesystem.devices[0].device = volume->device;
    }
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
    stats_of(volume, &report->stats);
}

int report_append(struct buffer *line, const struct report_volume *volume)
{
    const struct agent_stats *stats = &volume->stats;
    bool is_first = line->length > 0 && line->data[line->length - 1] == '[';
    char name[DEVICE_NAME_BYTES] = "", numbers[32] = "";

    if (volume->device_count) {
        device_name(volume->device, name);
        (void)snprintf(numbers, sizeof(numbers), "%u:%u", major(volume->device),
                       minor(volume->device));
    }
    buffer_append_text(line, is_first ? "{" : ",{");
    json_append_member(line, "path", volume->path);
    json_append_member(line, "file_system", volume->file_system);
    json_append_member(line, "device", numbers);
    json_append_member(line, "device_name", name);
    buffer_append_format(line, ",\"device_count\":%u,\"device_bytes\":%" PRIu64,
                         volume->device_count, volume->device_bytes);
    json_append_member(line, "layer", volume->layer);
    buffer_append_format(line,
                         ",\"total\":%" PRIu64 ",\"used\":%" PRIu64 ",\"available\":%" PRIu64
                         ",\"total_inodes\":%" PRIu64 ",\"used_inodes\":%" PRIu64
                         ",\"available_inodes\":%" PRIu64 ",\"read_only\":%s",
                         stats->total, stats->used, stats->available, stats->total_inodes,
                         stats->used_inodes, stats->available_inodes,
                         volume->read_only ? "true" : "false");
    json_append_member(line, "condition", stats->abnormal ? "abnormal" : "normal");
    json_append_member(line, "message", stats->abnormal ? stats->condition : "");
    json_append_member(line, "error", error_names[volume->error]);
    json_append_member(line, "error_text", volume->error_text);
    return buffer_append_text(line, "}");
}

static int print_report(struct oneshot *oneshot, int output, struct error *error)
{
    cleanup(buffer_done) struct buffer line = BUFFER_INIT(REPORT_BYTES);
    int outcome = ONESHOT_DONE, r;

    buffer_append_format(&line, "{\"version\":%d,\"volumes\":[", REPORT_VERSION);
    for (size_t i = 0; i < oneshot->count; i++) {
        struct job *job = &oneshot->jobs[i];

        if (job->found)
            describe(&job->volume, &job->report);
        report_append(&line, &job->report);
        if (job->report.error != REPORT_DONE)
            outcome = ONESHOT_INCOMPLETE;
    }
    r = buffer_append_text(&line, "]}\n");
    if (r == 0)
        r = path_write(output, line.data, line.length);
    return r < 0 ? error_set_errno(error, r, "cannot write the report") : outcome;
}

int oneshot_run(const struct oneshot_request *request, int output, struct error *error)
{
    struct oneshot oneshot = {.request = request};
    int r;

    if (access("/sys/dev/block", F_OK) < 0)
        return error_set(error, -ENOENT, "/sys is not mounted: the sizes of devices are not known");
    if (loop_init(&oneshot.loop) < 0)
        return error_set(error, -ENOMEM, "cannot start the event loop");
    r = find_volumes(&oneshot, error);
    if (r == 0) {
        grow(&oneshot);
        r = print_report(&oneshot, output, error);
    }
    loop_done(&oneshot.loop);
    free(oneshot.jobs);
    return r;
}

/* ---- one call for a drive ---- */

static enum status_code run_call(struct drive_call *call, uint64_t timeout_ms,
                                 struct buffer *payload, struct error *error)
{
    struct drive_walk_count walk;

    call->setting.in_container = true;
    call->setting.deadline_ns = clock_boottime() + timeout_ms * NSEC_PER_MSEC;
    return drive_call_run(call, &walk, payload, error);
}

/* Prints the response. 0 or -errno. */
static int print_response(uint32_t stream, enum status_code code, const char *text,
                          const struct buffer *answer, bool stays, int output)
{
    cleanup(buffer_done) struct buffer frame = BUFFER_INIT(FRAME_BYTES);
    cleanup(freep) char *line = NULL;
    struct ttrpc_status status = {.code = (int)code};
    size_t length;
    int r;

    if (code != STATUS_OK)
        (void)snprintf(status.message, sizeof(status.message), "%.*s", TTRPC_MESSAGE_BYTES - 1,
                       text);
    r = ttrpc_append_response(&frame, stream, &status, buffer_text(answer),
                              code == STATUS_OK ? answer->length : 0);
    if (r < 0)
        return r;
    length = BASE64URL_ENCODED_LENGTH(frame.length);
    line = malloc(length + 2);
    if (!line)
        return -ENOMEM;
    base64url_encode(frame.data, frame.length, line);
    if (stays)
        line[length++] = '\n';
    return path_write(output, line, length);
}

static void sync_drive(const char *vm_path)
{
    cleanup(fd_closep) int fd = open(vm_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0)
        (void)syncfs(fd);
}

/* Until it is killed. */
static _Noreturn void stay(struct drive_call *call, uint64_t flush_ns)
{
    bool has_containers = call->mount.containers.count > 0;
    uint64_t pause_ns =
        has_containers && (!flush_ns || flush_ns > CONTAINERS_NS) ? CONTAINERS_NS : flush_ns;
    const struct timespec pause = {(time_t)(pause_ns / NSEC_PER_SEC),
                                   (long)(pause_ns % NSEC_PER_SEC)};
    struct buffer ignored = BUFFER_INIT(FRAME_BYTES);
    struct error error;

    for (;;) {
        (void)nanosleep(&pause, NULL);
        if (has_containers)
            (void)run_call(call, 0, &ignored, &error);
        buffer_clear(&ignored);
        if (flush_ns)
            sync_drive(call->mount.vm_path);
    }
}

/* Whether it is a request of the drives' service. */
static bool read_request(const char *text, uint32_t *ret_stream, struct ttrpc_request *ret_request,
                         struct buffer *ret_payload)
{
    size_t chars = strlen(text), size = chars / 4 * 3 + 1, length;
    cleanup(freep) char *bytes = malloc(size);
    struct ttrpc_frame frame;

    if (!bytes || base64url_decode(text, chars, bytes, size, &length) < 0 ||
        ttrpc_next_frame(bytes, length, AGENT_REPLY_BYTES, &frame) != TTRPC_FRAME ||
        ttrpc_parse_request(&frame, ret_request, ret_payload) < 0)
        return false;
    *ret_stream = frame.header.stream;
    return strcmp(ret_request->service, DRIVE_SERVICE) == 0;
}

int drive_once_run(const char *text, uint64_t flush_ns, int output, struct error *error)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(FRAME_BYTES);
    cleanup(buffer_done) struct buffer answer = BUFFER_INIT(FRAME_BYTES);
    cleanup(freep) struct drive_call *call = malloc(sizeof(*call));
    struct ttrpc_request request;
    struct error reason = {0};
    enum status_code code;
    bool stays = false;
    uint32_t stream;
    int r;

    if (!call)
        return error_set_errno(error, -ENOMEM, "cannot read the call");
    if (!read_request(text, &stream, &request, &payload))
        return DRIVE_ONCE_USAGE;
    code = drive_call_parse(request.method, &payload, call, &reason);
    if (code == STATUS_UNIMPLEMENTED)
        return DRIVE_ONCE_USAGE;
    if (code == STATUS_OK)
        code = run_call(call, call->timeout_ms, &answer, &reason);
    if (code == STATUS_OK && call->kind == DRIVE_CALL_MOUNT) {
        if (call->mount.read_only)
            flush_ns = 0;
        stays = flush_ns || call->mount.containers.count;
    }
    r = print_response(stream, code, reason.text, &answer, stays, output);
    if (r < 0)
        return error_set_errno(error, r, "cannot write the response");
    if (stays)
        stay(call, flush_ns);
    return code == STATUS_OK ? DRIVE_ONCE_DONE : DRIVE_ONCE_REFUSED;
}
