/* SPDX-License-Identifier: Apache-2.0 */
/* drive_serve.c - the calls for drives, their tasks, and the sync of what is mounted.
 *
 * An UnmountDrive replaces a MountDrive in progress. If the kernel does not let the process of the
 * mount end, that may still mount the drive, so nothing else is begun for it meanwhile.
 *
 * The kernel asks the VMM for the serial of a virtio-blk disk at each read and waits for the
 * answer, which never comes if the device is gone or stuck. At most one process waits for that:
 * until it has ended, further lists are refused at once.
 */
#include "guest-agent/guest_drive.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

#define DEFAULT_TIMEOUT_NS (10 * NSEC_PER_SEC)
#define LONGEST_TIMEOUT_NS (600 * NSEC_PER_SEC)
#define LONGEST_LIST_NS    (5 * NSEC_PER_SEC)
#define MARGIN_NS          (200 * NSEC_PER_MSEC) /* so that the answer comes before the caller gives up */

/* ---- a call ---- */

enum status_code drive_call_parse(const char *method, const struct buffer *payload,
                                  struct drive_call *ret_call, struct error *error)
{
    const char *bytes = buffer_text(payload), *wrong = NULL;
    int r;

    *ret_call = (struct drive_call){.setting = {"/sys", "/dev", "/proc", 0, false}};
    if (strcmp(method, DRIVE_METHOD_LIST) == 0) {
        ret_call->kind = DRIVE_CALL_LIST;
        r = drive_parse(bytes, payload->length, DRIVE_LIST_REQUEST, &ret_call->without_disks, NULL);
    } else if (strcmp(method, DRIVE_METHOD_MOUNT) == 0) {
        ret_call->kind = DRIVE_CALL_MOUNT;
        r = drive_parse(bytes, payload->length, DRIVE_MOUNT_REQUEST, &ret_call->mount, &wrong);
        ret_call->timeout_ms = ret_call->mount.timeout_ms;
        ret_call->mount.timeout_ms = 0;
    } else if (strcmp(method, DRIVE_METHOD_UNMOUNT) == 0) {
        ret_call->kind = DRIVE_CALL_UNMOUNT;
        r = drive_parse(bytes, payload->length, DRIVE_UNMOUNT_REQUEST, &ret_call->unmount, &wrong);
        ret_call->timeout_ms = ret_call->unmount.timeout_ms;
    } else {
        return drive_refuse(error, STATUS_UNIMPLEMENTED, "not a method of " DRIVE_SERVICE);
    }
    return r < 0 ? drive_refuse(error, STATUS_INVALID_ARGUMENT, "%s is malformed",
                                wrong ? wrong : "the request")
                 : STATUS_OK;
}

/* Adds tasks in progress to the list: the state and the progress of the walk. A drive whose disk
 * has not appeared yet gets an entry of its own. 0 or -ENOMEM. */
static int note_tasks(struct drive_guest_list *list);

/* Leaves the drives that are to be synced. */
static void keep_synced(struct drive_guest_list *list);

enum status_code drive_call_run(const struct drive_call *call, struct drive_walk_count *walk,
                                struct buffer *payload, struct error *error)
{
    cleanup(drive_guest_list_done) struct drive_guest_list list = {0};
    struct drive_unmount_answer unmounted = {0};
    struct drive_mount_answer mounted = {0};
    enum status_code code = STATUS_OK;
    int r = 0;

    switch (call->kind) {
    case DRIVE_CALL_LIST:
        r = call->without_disks ? 0 : drive_list_read(&list);
        if (r == 0 && call->without_tasks)
            keep_synced(&list); /* before a long list is cut */
        else if (r == 0)
            r = note_tasks(&list);
        if (r < 0)
            return drive_refuse_errno(error, STATUS_UNAVAILABLE, r, "cannot list the drives");
        r = drive_append_list(payload, &list);
        break;
    case DRIVE_CALL_MOUNT:
        code = drive_mount_run(&call->mount, &call->setting, walk, &mounted, error);
        if (code == STATUS_OK)
            r = drive_append(payload, DRIVE_MOUNT_ANSWER, &mounted);
        break;
    case DRIVE_CALL_UNMOUNT:
        code = drive_unmount_run(&call->unmount, &call->setting, &unmounted, error);
        if (code == STATUS_OK)
            r = drive_append(payload, DRIVE_UNMOUNT_ANSWER, &unmounted);
        break;
    }
    return r < 0 ? drive_refuse_errno(error, STATUS_RESOURCE_EXHAUSTED, r, "cannot make the answer")
                 : code;
}

/* ---- its task ---- */

/* In the task's process. */
static int run_call(const void *work, struct task_progress *progress, struct buffer *payload,
                    struct error *error)
{
    return (int)drive_call_run(work, &progress->walk, payload, error);
}

enum status_code drive_status(int outcome)
{
    if (outcome >= 0)
        return (enum status_code)outcome;
    return outcome == CHILD_STILL_HANGS || outcome == CHILD_TOO_MANY_HANG
               ? STATUS_UNAVAILABLE
               : STATUS_RESOURCE_EXHAUSTED;
}

/* While containers have a drive, the host repeats its MountDrive regularly, which is not worth a
 * line. */
static void log_end(const void *work, const struct task_result *result)
{
    const struct drive_call *call = work;
    const char *id = call->mount.drive_id,
               *what = call->kind == DRIVE_CALL_MOUNT ? "mounted" : "unmounted";
    struct drive_mount_answer answer;
    char number[16];

    if (result->outcome != STATUS_OK) {
        log_warning(NULL, "drive %s is not %s: %s: %s", id, what,
                    ttrpc_code_name((int)drive_status(result->outcome), number), result->text);
        return;
    }
    if (call->kind == DRIVE_CALL_MOUNT) {
        drive_flush_wake(call->mount.serial);
        if (drive_parse(result->payload, result->length, DRIVE_MOUNT_ANSWER, &answer, NULL) == 0 &&
            answer.was_mounted) {
            log_debug(NULL, "drive %s: is mounted already", id);
            return;
        }
    }
    log_info(NULL, "drive %s: %s", id, what);
}

static const struct task_kind listing = {
    .run = run_call,
    .work_bytes = sizeof(struct drive_call),
    .payload_bytes = AGENT_REPLY_BYTES,
    .died = {STATUS_UNAVAILABLE, "cannot list the drives: the process that reads them has died"},
    .late = {STATUS_UNAVAILABLE, "a disk of the guest does not say which serial it has"},
};

static const struct task_kind mounting = {
    .run = run_call,
    .ended = log_end,
    .work_bytes = sizeof(struct drive_call),
    .payload_bytes = AGENT_REPLY_BYTES,
    .most = DRIVE_TASK_LIMIT,
    .died = {STATUS_INTERNAL, "the process that works on the drive has died"},
    .late = {STATUS_DEADLINE_EXCEEDED, "the drive is still being mounted"},
};

static const struct task_kind unmounting = {
    .run = run_call,
    .ended = log_end,
    .work_bytes = sizeof(struct drive_call),
    .payload_bytes = AGENT_REPLY_BYTES,
    .most = DRIVE_TASK_LIMIT,
    .died = {STATUS_INTERNAL, "the process that works on the drive has died"},
    .late = {STATUS_DEADLINE_EXCEEDED, "the drive is still being unmounted"},
};

static int note_tasks(struct drive_guest_list *list)
{
    for (const struct task *task = tasks; task; task = task->next) {
        const struct drive_call *call = task->work;
        struct drive_guest_entry *entries = list->entries, *entry;
        size_t i = 0;

        if (task->kind != &mounting && task->kind != &unmounting)
            continue;
        while (i < list->count && strcmp(entries[i].serial, call->mount.serial) != 0)
            i++;
        if (i == DRIVE_LIST) {
            list->incomplete = true;
            continue;
        }
        if (i == list->count) {
            entries = reallocarray(entries, i + 1, sizeof(*entries));
            if (!entries)
                return -ENOMEM;
            list->entries = entries;
            entries[list->count++] = (struct drive_guest_entry){0};
        }
        entry = &entries[i];
        strcpy(entry->serial, call->mount.serial);
        strcpy(entry->drive_id, call->mount.drive_id);
        entry->state = DRIVE_GUEST_UNMOUNTING;
        if (call->kind == DRIVE_CALL_UNMOUNT)
            continue;
        entry->state = DRIVE_GUEST_MOUNTING;
        strcpy(entry->vm_path, call->mount.vm_path);
        strcpy(entry->filesystem_type, call->mount.filesystem_type);
        entry->walk = task->progress->walk;
    }
    return 0;
}

/* Whether both ask for the same. */
static bool is_same(const struct drive_call *one, const struct drive_call *other)
{
    cleanup(buffer_done) struct buffer a = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer b = BUFFER_INIT(0);

    if (one->kind != other->kind)
        return false;
    if (one->kind == DRIVE_CALL_UNMOUNT)
        return strcmp(one->unmount.drive_id, other->unmount.drive_id) == 0;
    return drive_append(&a, DRIVE_MOUNT_REQUEST, &one->mount) == 0 &&
           drive_append(&b, DRIVE_MOUNT_REQUEST, &other->mount) == 0 && a.length == b.length &&
           memcmp(a.data, b.data, a.length) == 0;
}

/* The drive's task, begun if there is none. */
static enum status_code find_task(struct loop *loop, const struct drive_call *call,
                                  struct task **ret_task, struct error *error)
{
    static const struct task_end cancelled = {STATUS_UNAVAILABLE,
                                              "an UnmountDrive has cancelled it"};
    const uint64_t subject = child_subject(call->mount.serial);
    const bool unmounts = call->kind == DRIVE_CALL_UNMOUNT;
    struct task *task = task_find(subject);
    enum status_code code;
    int r;

    if (!task) {
        r = task_start(loop, unmounts ? &unmounting : &mounting, subject, call, 0, ret_task);
        if (r == 0)
            return STATUS_OK;
        code = drive_status(r);
        return drive_refuse(error, code, "%s",
                            r == TASK_TOO_MANY ? "too many drives are being mounted at once"
                            : code == STATUS_UNAVAILABLE ? child_explain(r)
                                                         : "cannot start a process for the drive");
    }
    if (unmounts && task->kind == &mounting) {
        log_info(NULL, "drive %s: its mounting is cancelled", call->unmount.drive_id);
        task_replace(task, &unmounting, call, &cancelled);
    }
    *ret_task = task;
    if (is_same(task->work, call))
        return STATUS_OK;
    if (task->kind == &unmounting)
        return drive_refuse(error, STATUS_UNAVAILABLE, "the drive is being unmounted");
    return drive_refuse(error, STATUS_ALREADY_EXISTS, "the drive is being mounted otherwise");
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

static int start_list(struct loop *loop, const struct drive_call *call, uint64_t timeout_ns,
                      struct task_waiter *waiter, task_done *done)
{
    const uint64_t limit_ns =
        timeout_ns && timeout_ns / 2 < LONGEST_LIST_NS ? timeout_ns / 2 : LONGEST_LIST_NS;
    struct task *task;
    int r = task_start(loop, &listing, child_subject("serials"), call, limit_ns, &task);

    if (r == 0)
        task_wait(task, waiter, 0, done);
    return r;
}

enum status_code drive_serve(struct loop *loop, struct drive_call *call, uint64_t timeout_ns,
                             struct task_waiter *waiter, task_done *done, struct error *error)
{
    struct task *task;
    enum status_code code;
    int r;

    if (call->kind == DRIVE_CALL_LIST) {
        r = start_list(loop, call, timeout_ns, waiter, done);
        return r < 0 ? drive_refuse(error, STATUS_UNAVAILABLE, "cannot list the drives: %s",
                                    child_explain(r))
                     : STATUS_OK;
    }
    timeout_ns = shorter(timeout_ns, call->timeout_ms);
    call->setting.deadline_ns = clock_boottime() + timeout_ns;
    code = find_task(loop, call, &task, error);
    if (code == STATUS_OK)
        task_wait(task, waiter, timeout_ns + MARGIN_NS / 2, done);
    return code;
}

/* ---- the sync ---- */

static struct {
    struct loop *loop;
    uint64_t interval_ns;
    struct loop_timer timer; /* stopped while no writable drive is mounted */
    struct task_waiter listing;
    bool is_woken;                              /* since the round began */
    struct drive_guest_list last;               /* the writable drives of the last complete list */
    bool is_blind;                              /* the drives could not be listed since then */
    char known[DRIVE_LIST][DRIVE_SERIAL_BYTES]; /* drives' serials that were chosen by the VMM */
    size_t known_count;
} flush;

/* In the task's process. */
static int sync_mount(const void *work, struct task_progress *progress, struct buffer *payload,
                      struct error *error)
{
    cleanup(fd_closep) int fd = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd >= 0 && syncfs(fd) == 0 ? 0 : -errno;

    (void)progress;
    (void)payload;
    return r < 0 ? error_set(error, r, "%s", strerror(-r)) : 0;
}

static void on_synced(const void *work, const struct task_result *result)
{
    if (result->outcome < 0)
        log_warning(NULL, "the drive at %s cannot be synced: %s", (const char *)work, result->text);
}

static const struct task_kind syncing = {
    .run = sync_mount,
    .ended = on_synced,
    .work_bytes = DRIVE_PATH_BYTES,
    .died = {-ECHILD, "the process that does it has died"},
};

static void sync_drive(const char vm_path[static DRIVE_PATH_BYTES])
{
    const uint64_t subject = child_subject(vm_path);
    struct task *task = task_find(subject);
    int r;

    if (!task) {
        r = task_start(flush.loop, &syncing, subject, vm_path, 0, &task);
        if (r < 0)
            log_warning(NULL, "the drive at %s cannot be synced: %s", vm_path, child_explain(r));
        return;
    }
    if (!task->progress->is_late)
        log_warning(NULL, "the drive at %s does not finish its sync: its disk is slow or hangs",
                    vm_path);
    task->progress->is_late = true;
}

static bool is_known(const char *serial)
{
    for (size_t i = 0; i < flush.known_count; i++)
        if (strcmp(flush.known[i], serial) == 0)
            return true;
    return false;
}

static void on_time(struct loop_timer *timer);

static void sync_last(void)
{
    for (size_t i = 0; i < flush.last.count; i++)
        sync_drive(flush.last.entries[i].vm_path);
    loop_timer_start(flush.loop, &flush.timer, flush.interval_ns, on_time);
}

/* A disk that does not answer must not keep the others from being synced. */
static void sync_blindly(const char *why)
{
    if (!flush.is_blind)
        log_warning(NULL, "the drives that were last listed are synced, and no others: %s", why);
    flush.is_blind = true;
    sync_last();
}

static void keep_synced(struct drive_guest_list *list)
{
    size_t count = 0;

    for (size_t i = 0; i < list->count; i++) {
        const struct drive_guest_entry *entry = &list->entries[i];

        if (entry->state == DRIVE_GUEST_MOUNTED && !entry->read_only &&
            (!drive_serial_is_of_vmm(entry->serial) || is_known(entry->serial)))
            list->entries[count++] = *entry;
    }
    list->count = count;
}

static void on_listed(struct task_waiter *waiter, const struct task_result *result)
{
    struct drive_guest_list list = {0};

    (void)waiter;
    if (result->outcome != STATUS_OK ||
        drive_parse_list(result->payload, result->length, &list) < 0) {
        sync_blindly(result->outcome != STATUS_OK ? result->text : "the list is malformed");
        return;
    }
    drive_guest_list_done(&flush.last);
    flush.last = list;
    flush.is_blind = false;
    if (list.count || flush.is_woken)
        sync_last();
}

static void on_time(struct loop_timer *timer)
{
    const struct drive_call call = {.without_tasks = true,
                                    .setting = {"/sys", "/dev", "/proc", 0, false}};
    int r;

    (void)timer;
    flush.is_woken = false;
    r = start_list(flush.loop, &call, 2 * flush.interval_ns, &flush.listing, on_listed);
    if (r < 0)
        sync_blindly(child_explain(r));
}

static void wake(void)
{
    flush.is_woken = true;
    if (flush.interval_ns && !flush.listing.task && !loop_timer_is_active(&flush.timer))
        loop_timer_start(flush.loop, &flush.timer, flush.interval_ns, on_time);
}

/* The oldest serial makes room: a list never has more drives than that. */
void drive_flush_wake(const char *serial)
{
    if (drive_serial_is_of_vmm(serial) && !is_known(serial)) {
        if (flush.known_count == DRIVE_LIST) {
            memmove(flush.known, flush.known + 1, sizeof(flush.known) - sizeof(*flush.known));
            flush.known_count--;
        }
        (void)snprintf(flush.known[flush.known_count++], DRIVE_SERIAL_BYTES, "%s", serial);
    }
    wake();
}

void drive_flush_start(struct loop *loop, uint64_t interval_ns)
{
    flush.loop = loop;
    flush.interval_ns = interval_ns;
    wake();
}

void drive_flush_end(void)
{
    task_leave(&flush.listing);
    loop_timer_stop(&flush.timer);
    drive_guest_list_done(&flush.last);
    flush.is_blind = false;
    flush.interval_ns = 0;
    flush.known_count = 0;
}
