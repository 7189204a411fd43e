/* SPDX-License-Identifier: Apache-2.0 */
/* drive_task.c - the task of each drive, and the calls that wait for it.
 *
 * A task begins with its first call. A call that cannot join the task in progress is refused, from
 * the loop like every answer. An unmount replaces a mount in progress: the mount's process is
 * killed, its calls are answered, and the unmount begins when that process has ended. One that the
 * kernel does not let end may still mount the drive, so nothing else is begun for it meanwhile.
 */
#include "guest-agent/drive_task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest-agent/drive_mount.h"
#include "guest-agent/guest_disk.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/log.h"

#define DEFAULT_TIMEOUT_NS (10 * NSEC_PER_SEC)
#define LONGEST_TIMEOUT_NS (600 * NSEC_PER_SEC)
#define MARGIN_NS          (200 * NSEC_PER_MSEC) /* so that the answer comes before the caller gives up */

enum { ANSWER_BYTES = 1024 };

/* The output of the process. */
struct report {
    enum status_code code;
    struct error error;
    union drive_answer answer;
};

struct drive_task {
    struct drive_task *next;
    struct loop *loop;
    struct drive_work work; /* its process has a copy; only the memory of the walk is shared */
    struct child *child;
    bool is_cancelled;            /* its process was killed for an unmount */
    struct drive_waiter *waiters; /* the calls that wait for it */
};

struct drive_waiter {
    struct drive_waiter *next;
    struct drive_task *task; /* NULL: answered, or about to be */
    struct loop_timer timer;
    struct ttrpc_status refusal;
    drive_waiter_done *done;
    void *userdata;
};

static struct drive_task *tasks;

static bool is_same_containers(const struct drive_containers *one,
                               const struct drive_containers *other)
{
    for (size_t i = 0; i < one->count && i < other->count; i++) {
        const struct drive_container *a = &one->each[i], *b = &other->each[i];

        if (strcmp(a->container_id, b->container_id) != 0 || strcmp(a->path, b->path) != 0 ||
            strcmp(a->sub_path, b->sub_path) != 0 || a->read_only != b->read_only)
            return false;
    }
    return one->count == other->count;
}

/* Whether two requests ask for the same, apart from their deadlines. */
static bool is_same_mount(const struct drive_mount_request *one,
                          const struct drive_mount_request *other)
{
    for (size_t i = 0; i < one->option_count && i < other->option_count; i++) {
        if (strcmp(one->options[i], other->options[i]) != 0)
            return false;
    }
    return strcmp(one->drive_id, other->drive_id) == 0 && one->bytes == other->bytes &&
           one->read_only == other->read_only && strcmp(one->vm_path, other->vm_path) == 0 &&
           strcmp(one->filesystem_type, other->filesystem_type) == 0 &&
           one->option_count == other->option_count && one->fsck == other->fsck &&
           one->has_fs_group == other->has_fs_group && one->fs_group == other->fs_group &&
           one->fs_group_policy == other->fs_group_policy &&
           is_same_containers(&one->containers, &other->containers);
}

static bool is_same(const struct drive_work *one, const struct drive_work *other)
{
    if (one->unmounts != other->unmounts)
        return false;
    return one->unmounts ? strcmp(one->unmount.drive_id, other->unmount.drive_id) == 0
                         : is_same_mount(&one->mount, &other->mount);
}

/* ---- the work ---- */

enum status_code drive_work_parse(const char *method, const struct buffer *payload,
                                  struct drive_work *ret_work, struct error *error)
{
    const char *bytes = buffer_text(payload), *wrong = NULL;
    int r;

    *ret_work = (struct drive_work){.unmounts = strcmp(method, DRIVE_METHOD_UNMOUNT) == 0};
    r = ret_work->unmounts
            ? drive_parse(bytes, payload->length, DRIVE_UNMOUNT_REQUEST, &ret_work->unmount, &wrong)
            : drive_parse(bytes, payload->length, DRIVE_MOUNT_REQUEST, &ret_work->mount, &wrong);
    return r < 0 ? drive_refuse(error, STATUS_INVALID_ARGUMENT, "%s is malformed",
                                wrong ? wrong : "the request")
                 : STATUS_OK;
}

uint64_t drive_work_timeout_ms(const struct drive_work *work)
{
    return work->unmounts ? work->unmount.timeout_ms : work->mount.timeout_ms;
}

enum status_code drive_work_run(const struct drive_work *work, bool in_container,
                                union drive_answer *ret_answer, struct error *error)
{
    const struct drive_setting setting = {"/sys", "/dev", "/proc", work->deadline_ns, in_container};

    return work->unmounts
               ? drive_unmount_run(&(struct drive_unmount_work){&work->unmount, setting},
                                   &ret_answer->unmount, error)
               : drive_mount_run(&(struct drive_mount_work){&work->mount, work->walk, setting},
                                 &ret_answer->mount, error);
}

int drive_work_append_answer(const struct drive_work *work, const union drive_answer *answer,
                             struct buffer *payload)
{
    return work->unmounts ? drive_append(payload, DRIVE_UNMOUNT_ANSWER, &answer->unmount)
                          : drive_append(payload, DRIVE_MOUNT_ANSWER, &answer->mount);
}

/* ---- calls ---- */

static void leave(struct drive_waiter *waiter)
{
    if (waiter->task && waiter->task->waiters)
        LL_DELETE(waiter->task->waiters, waiter);
    waiter->task = NULL;
}

static void answer(struct drive_waiter *waiter, const struct ttrpc_status *status,
                   const struct buffer *payload)
{
    struct buffer none = BUFFER_INIT(0);

    leave(waiter);
    loop_timer_stop(&waiter->timer);
    waiter->done(waiter, status, payload ? payload : &none, waiter->userdata);
}

static void set_status(struct ttrpc_status *status, enum status_code code, const char *text)
{
    status->code = (int)code;
    (void)snprintf(status->message, sizeof(status->message), "%.*s",
                   (int)sizeof(status->message) - 1, text);
}

/* The owner may free the waiter before it reads the status, so that is copied. */
static void on_refused(struct loop_timer *timer)
{
    struct drive_waiter *waiter = container_of(timer, struct drive_waiter, timer);
    const struct ttrpc_status refusal = waiter->refusal;

    answer(waiter, &refusal, NULL);
}

static void refuse(struct drive_waiter *waiter, struct loop *loop, enum status_code code,
                   const char *text)
{
    set_status(&waiter->refusal, code, text);
    loop_timer_start(loop, &waiter->timer, 0, on_refused);
}

static void on_deadline(struct loop_timer *timer)
{
    struct drive_waiter *waiter = container_of(timer, struct drive_waiter, timer);

    set_status(&waiter->refusal, STATUS_DEADLINE_EXCEEDED,
               waiter->task->work.unmounts ? "the drive is still being unmounted"
                                           : "the drive is still being mounted");
    on_refused(timer);
}

struct drive_waiter *drive_waiter_free(struct drive_waiter *waiter)
{
    if (!waiter)
        return NULL;
    leave(waiter);
    loop_timer_stop(&waiter->timer);
    free(waiter);
    return NULL;
}

/* ---- the process ---- */

/* In the child. */
static int run(const void *argument)
{
    struct report report = {0};

    report.code = drive_work_run(argument, false, &report.answer, &report.error);
    return write(STDOUT_FILENO, &report, sizeof(report)) == sizeof(report) ? EXIT_SUCCESS
                                                                           : EXIT_FAILURE;
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata);

static int task_start(struct drive_task *task)
{
    const struct child_request request = {.output_limit = sizeof(struct report),
                                          .function = run,
                                          .argument = &task->work,
                                          .input = -1,
                                          .root = -1,
                                          .subject = child_subject(task->work.mount.serial)};

    return child_new(task->loop, &request, on_end, task, &task->child);
}

/* Why it could not be started. */
static enum status_code code_of_start(int failure)
{
    return failure == CHILD_STILL_HANGS || failure == CHILD_TOO_MANY_HANG
               ? STATUS_UNAVAILABLE
               : STATUS_RESOURCE_EXHAUSTED;
}

static const char *text_of_start(int failure)
{
    return code_of_start(failure) == STATUS_UNAVAILABLE ? child_explain(failure)
                                                        : "cannot start a process for the drive";
}

/* ---- tasks ---- */

static void task_free(struct drive_task *task)
{
    if (tasks)
        LL_DELETE(tasks, task);
    (void)child_free(task->child);
    if (task->work.walk)
        (void)munmap(task->work.walk, sizeof(*task->work.walk));
    free(task);
}

static int task_new(struct loop *loop, const struct drive_work *work, struct drive_task **ret_task)
{
    struct drive_task *task = calloc(1, sizeof(*task));
    void *shared = MAP_FAILED;
    int r;

    if (!task)
        return -ENOMEM;
    shared = mmap(NULL, sizeof(struct drive_walk_count), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        free(task);
        return -ENOMEM;
    }
    *task = (struct drive_task){.loop = loop, .work = *work};
    task->work.walk = shared;
    r = task_start(task);
    if (r < 0) {
        task_free(task);
        return r;
    }
    LL_PREPEND(tasks, task);
    *ret_task = task;
    return 0;
}

/* Owners may begin new calls in here: by then the task must not be found any more. */
static void tell_all(struct drive_waiter *waiters, const struct ttrpc_status *status,
                     const struct buffer *payload)
{
    struct drive_waiter *next;

    for (struct drive_waiter *waiter = waiters; waiter; waiter = waiter->next)
        waiter->task = NULL;
    for (struct drive_waiter *waiter = waiters; waiter; waiter = next) {
        next = waiter->next;
        answer(waiter, status, payload);
    }
}

/* While containers have a drive, the host repeats its MountDrive regularly, which is not worth a
 * line. */
static void log_end(const struct drive_work *work, const struct ttrpc_status *status,
                    bool was_mounted)
{
    const char *what = work->unmounts ? "unmounted" : "mounted";
    char number[16];

    if (status->code == STATUS_OK && !work->unmounts && was_mounted)
        log_debug(NULL, "drive %s: is mounted already", work->mount.drive_id);
    else if (status->code == STATUS_OK)
        log_info(NULL, "drive %s: %s", work->mount.drive_id, what);
    else
        log_warning(NULL, "drive %s is not %s: %s: %s", work->mount.drive_id, what,
                    ttrpc_code_name(status->code, number), status->message);
}

/* Whether the drive was mounted before the call. */
static bool read_report(const struct drive_work *work, enum child_end end, int exit_status,
                        const struct buffer *output, struct ttrpc_status *status,
                        struct buffer *payload)
{
    struct report report;

    if (end != CHILD_EXITED || exit_status != EXIT_SUCCESS || output->length != sizeof(report)) {
        set_status(status, STATUS_INTERNAL, "the process that works on the drive has died");
        return false;
    }
    memcpy(&report, output->data, sizeof(report));
    set_status(status, report.code, report.code == STATUS_OK ? "" : report.error.text);
    if (report.code != STATUS_OK)
        return false;
    if (drive_work_append_answer(work, &report.answer, payload) < 0)
        set_status(status, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    return !work->unmounts && report.answer.mount.was_mounted;
}

static void finish(struct drive_task *task, const struct ttrpc_status *status,
                   const struct buffer *payload)
{
    struct drive_waiter *waiters = task->waiters;

    if (status->code == STATUS_OK && !task->work.unmounts)
        drive_flush_wake(task->work.mount.serial);
    task_free(task);
    tell_all(waiters, status, payload);
}

/* Begins the unmount that has replaced the mount. */
static void begin_again(struct drive_task *task)
{
    struct ttrpc_status status = {0};
    int r;

    task->is_cancelled = false;
    task->child = child_free(task->child);
    r = task_start(task);
    if (r == 0)
        return;
    set_status(&status, code_of_start(r), text_of_start(r));
    log_end(&task->work, &status, false);
    finish(task, &status, NULL);
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(ANSWER_BYTES);
    struct drive_task *task = userdata;
    struct ttrpc_status result = {0};
    bool was_mounted;

    (void)child;
    if (task->is_cancelled) {
        begin_again(task);
        return;
    }
    was_mounted = read_report(&task->work, end, status, output, &result, &payload);
    log_end(&task->work, &result, was_mounted);
    finish(task, &result, &payload);
}

/* ---- joining a task ---- */

static void cancel(struct drive_task *task, const struct drive_work *work)
{
    struct ttrpc_status status = {0};
    struct drive_waiter *waiters = task->waiters;
    struct drive_walk_count *walk = task->work.walk;

    log_info(NULL, "drive %s: its mounting is cancelled", work->mount.drive_id);
    task->work = *work;
    task->work.walk = walk;
    task->waiters = NULL;
    task->is_cancelled = true;
    child_kill(task->child);
    set_status(&status, STATUS_UNAVAILABLE, "an UnmountDrive has cancelled it");
    tell_all(waiters, &status, NULL);
}

/* The task that the call waits for; NULL: the call was refused. */
static struct drive_task *find_or_begin(struct drive_waiter *waiter, struct loop *loop,
                                        const struct drive_work *work)
{
    struct drive_task *task = tasks;
    unsigned count = 0;
    int r;

    for (; task && strcmp(task->work.mount.serial, work->mount.serial) != 0; task = task->next)
        count++;
    if (task && work->unmounts && !task->work.unmounts)
        cancel(task, work);
    if (task && is_same(&task->work, work))
        return task;
    if (task)
        refuse(waiter, loop,
               work->unmounts || task->work.unmounts ? STATUS_UNAVAILABLE : STATUS_ALREADY_EXISTS,
               task->work.unmounts ? "the drive is being unmounted"
                                   : "the drive is being mounted otherwise");
    else if (count >= DRIVE_TASK_LIMIT)
        refuse(waiter, loop, STATUS_RESOURCE_EXHAUSTED,
               "too many drives are being mounted at once");
    else if ((r = task_new(loop, work, &task)) < 0)
        refuse(waiter, loop, code_of_start(r), text_of_start(r));
    else
        return task;
    return NULL;
}

static uint64_t shorter(uint64_t timeout_ns, uint64_t request_ms)
{
    uint64_t asked = DEFAULT_TIMEOUT_NS;

    if (request_ms)
        asked = request_ms < LONGEST_TIMEOUT_NS / NSEC_PER_MSEC ? request_ms * NSEC_PER_MSEC
                                                                : LONGEST_TIMEOUT_NS;
    if (timeout_ns && timeout_ns < asked)
        asked = timeout_ns;
    return asked > 2 * MARGIN_NS ? asked - MARGIN_NS : asked / 2;
}

int drive_task_start(struct loop *loop, struct drive_work *work, uint64_t timeout_ns,
                     drive_waiter_done *done, void *userdata, struct drive_waiter **ret_waiter)
{
    struct drive_waiter *waiter = calloc(1, sizeof(*waiter));

    if (!waiter)
        return -ENOMEM;
    waiter->done = done;
    waiter->userdata = userdata;
    timeout_ns = shorter(timeout_ns, drive_work_timeout_ms(work));
    work->deadline_ns = clock_boottime() + timeout_ns;
    waiter->task = find_or_begin(waiter, loop, work);
    if (waiter->task) {
        LL_PREPEND(waiter->task->waiters, waiter);
        loop_timer_start(loop, &waiter->timer, timeout_ns + MARGIN_NS / 2, on_deadline);
    }
    *ret_waiter = waiter;
    return 0;
}

/* ---- ListDrives, and the end of the process ---- */

static struct drive_guest_entry *find_entry(struct drive_guest_list *list, const char *serial)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->entries[i].serial, serial) == 0)
            return &list->entries[i];
    }
    return NULL;
}

static int add_entry(struct drive_guest_list *list, const char *serial,
                     struct drive_guest_entry **ret_entry)
{
    struct drive_guest_entry *entries =
        reallocarray(list->entries, list->count + 1, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    list->entries = entries;
    entries[list->count] = (struct drive_guest_entry){0};
    strcpy(entries[list->count].serial, serial);
    *ret_entry = &entries[list->count++];
    return 0;
}

static void note_task(struct drive_guest_entry *entry, const struct drive_task *task)
{
    strcpy(entry->drive_id, task->work.mount.drive_id);
    entry->state = task->work.unmounts ? DRIVE_GUEST_UNMOUNTING : DRIVE_GUEST_MOUNTING;
    if (task->work.unmounts)
        return;
    strcpy(entry->vm_path, task->work.mount.vm_path);
    strcpy(entry->filesystem_type, task->work.mount.filesystem_type);
    entry->walk = *task->work.walk;
}

int drive_tasks_note(struct drive_guest_list *list)
{
    for (const struct drive_task *task = tasks; task; task = task->next) {
        const char *serial = task->work.mount.serial;
        struct drive_guest_entry *entry = find_entry(list, serial);

        if (!entry && list->count >= DRIVE_LIST) {
            list->incomplete = true;
            continue;
        }
        if (!entry && add_entry(list, serial, &entry) < 0)
            return -ENOMEM;
        note_task(entry, task);
    }
    return 0;
}

void drive_tasks_end(void)
{
    while (tasks) {
        for (struct drive_waiter *waiter = tasks->waiters; waiter; waiter = waiter->next)
            waiter->task = NULL;
        task_free(tasks);
    }
}
