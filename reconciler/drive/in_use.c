/* SPDX-License-Identifier: Apache-2.0 */
/* in_use.c - searches for the users of a disk: first in the store, then among all processes.
 *
 * A slice examines a bounded number of processes and descriptors and is followed by a pass of the
 * loop. The search stops at the first user that is an obstacle.
 *
 * Of the VMM of a known sandbox all descriptors are examined: it may have as many as the kernel
 * allows, and every slice is bounded nevertheless, so that costs time and keeps no drive from being
 * attached. Of other processes at most DESCRIPTORS are examined, and more are ignored, because any
 * user can have many such processes. If a VMM may not be examined, the answer is UNKNOWN.
 *
 * A process that starts after the search has passed it is missed. That is a VMM with this disk only
 * if somebody hands out the same disk twice at the same moment.
 */
#include "reconciler/drive/claim.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/loop.h"
#include "lib/process.h"
#include "lib/text.h"
#include "lib/workers.h"
#include "model/sandbox.h"
#include "observe/observe.h"
#include "observe/sysfs.h"
#include "reconciler/core/context.h"
#include "store/devices.h"
#include "store/sandboxes.h"

enum { PROCESSES_PER_SLICE = 64, DESCRIPTORS_PER_SLICE = 512, DESCRIPTORS = 4096 };
enum { FDINFO_BYTES = 4096, ARGUMENTS_BYTES = 1024, PROGRAM_BYTES = 48 };

struct drive_in_use_call {
    const struct context *context;
    drive_in_use_done *done;
    void *userdata;
    struct loop_timer timer;
    struct store_drive_mount_disk disks[2]; /* the disk, and its backing if it is a loop device */
    unsigned disk_count;
    char drive_id[DRIVE_ID_CHARS + 1];
    pid_t own_pid, own_vmm;
    bool writable;
    struct drive_relatives relatives;
    DIR *proc;
    bool has_counts; /* the kernel says how many descriptors a process has (since Linux 6.2) */
    pid_t pid;       /* its descriptors are being examined */
    bool is_in_process;
    bool is_doubted; /* one of its descriptors may not be examined */
    struct directory_reader descriptors;
    unsigned seen; /* examined descriptors of it */
    struct drive_in_use_reply reply;
};

static int say(struct drive_in_use_call *call, enum drive_in_use_outcome outcome,
               const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns PROGRESS_DONE: the search is over. */
static int say(struct drive_in_use_call *call, enum drive_in_use_outcome outcome,
               const char *format, ...)
{
    char text[ERROR_TEXT_BYTES * 2];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    call->reply.outcome = outcome;
    (void)error_set(&call->reply.error, (int)outcome, "%s", text);
    return PROGRESS_DONE;
}

/* ---- the store ---------------------------------------------------------------------------- */

/* Returns 1 to end the walk. */
static int note_user(void *userdata, const struct store_disk_user *user)
{
    struct drive_in_use_call *call = userdata;

    if (!call->writable && !user->writable)
        return 0;
    if (user->kind == STORE_DISK_USER_ORPHAN) {
        if (call->own_vmm && strtol(user->name, NULL, 10) == call->own_vmm)
            return 0;
        (void)say(call, DRIVE_IN_USE_BY_ORPHAN,
                  "process %s, the VMM of the orphaned sandbox %s, has the disk open: it ends by "
                  "kill %s",
                  user->name, user->sandbox_id, user->name);
        return 1;
    }
    if (user->kind == STORE_DISK_USER_STAGED) {
        (void)say(call, DRIVE_IN_USE_BY_OTHERS,
                  "the disk is staged as volume %s, %s, for containers to come",
                  user->name[0] ? user->name : "of an unknown path",
                  user->writable ? "writable" : "read-only");
        return 1;
    }
    (void)say(call, DRIVE_IN_USE_BY_OTHERS, "sandbox %s has the disk as %s %s, %s",
              user->sandbox_id, user->kind == STORE_DISK_USER_DRIVE ? "drive" : "volume",
              user->name[0] ? user->name : "of an unknown path",
              user->writable ? "writable" : "read-only");
    return 1;
}

static int search_record(struct drive_in_use_call *call)
{
    const char *own = call->drive_id[0] ? call->drive_id : NULL;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < call->disk_count; i++)
        r = store_each_disk_user(call->context->store, &call->disks[i], own, note_user, call);
    if (r < 0)
        return say(call, DRIVE_IN_USE_UNKNOWN, "the record of volumes and drives cannot be read");
    return r > 0 ? PROGRESS_DONE : PROGRESS_MORE;
}

struct sandbox_search {
    pid_t pid;
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
};

static int compare_sandbox(void *userdata, const struct store_helper_run *sandbox)
{
    struct sandbox_search *search = userdata;

    if (sandbox->vmm_pid != search->pid)
        return 0;
    (void)snprintf(search->sandbox_id, sizeof(search->sandbox_id), "%s", sandbox->sandbox_id);
    return 1;
}

/* Whether the process is the VMM of a known sandbox. */
static bool find_sandbox(const struct drive_in_use_call *call, pid_t pid,
                         char ret_sandbox_id[static STORE_SANDBOX_ID_BYTES])
{
    struct sandbox_search search = {.pid = pid};
    bool found = store_each_sandbox(call->context->store, false, compare_sandbox, &search) > 0;

    memcpy(ret_sandbox_id, search.sandbox_id, sizeof(search.sandbox_id));
    return found;
}

/* ---- one descriptor ------------------------------------------------------------------------ */

enum relation { UNRELATED, THE_DISK, A_RELATIVE };

static bool is_disk(const struct store_drive_mount_disk *disk, const struct statx *status)
{
    switch (disk->kind) {
    case DEVICE_KIND_BLOCK:
        return S_ISBLK(status->stx_mode) && status->stx_rdev_major == disk->major &&
               status->stx_rdev_minor == disk->minor;
    case DEVICE_KIND_FILE:
        return S_ISREG(status->stx_mode) && status->stx_ino == disk->inode &&
               makedev(status->stx_dev_major, status->stx_dev_minor) == disk->file_device;
    case DEVICE_KIND_OTHER:
        break;
    }
    return false;
}

static enum relation compare(const struct drive_in_use_call *call, const struct statx *status)
{
    for (unsigned i = 0; i < call->disk_count; i++)
        if (is_disk(&call->disks[i], status))
            return THE_DISK;
    return S_ISBLK(status->stx_mode) &&
                   drive_relatives_include(&call->relatives,
                                           makedev(status->stx_rdev_major, status->stx_rdev_minor))
               ? A_RELATIVE
               : UNRELATED;
}

/* false: opened with O_PATH, or closed by now. */
static bool read_access(pid_t pid, const char *fd, bool *ret_writable)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(FDINFO_BYTES);
    const char *line;
    char path[64];
    unsigned flags;

    (void)snprintf(path, sizeof(path), "fdinfo/%s", fd);
    if (process_read_file(pid, path, &text) < 0)
        return false;
    line = strstr(buffer_text(&text), "flags:");
    if (!line || sscanf(line, "flags: %o", &flags) != 1 || flags & O_PATH)
        return false;
    *ret_writable = (flags & O_ACCMODE) != O_RDONLY;
    return true;
}

static int read_program(pid_t pid, char ret_program[static PROGRAM_BYTES])
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(2 * ARGUMENTS_BYTES);
    int r = process_read_first_arguments(pid, ARGUMENTS_BYTES, &arguments);
    const char *program = process_arguments_program(&arguments);

    text_clean(program, strlen(program), ret_program, PROGRAM_BYTES);
    return r;
}

/* PROGRESS_DONE: this process is an obstacle. */
static int judge_holder(struct drive_in_use_call *call, enum relation relation, const char *fd,
                        unsigned *budget)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES], program[PROGRAM_BYTES];
    const char *what =
        relation == THE_DISK ? "the disk" : "a device that shares data with the disk";
    struct process process;
    const char *access;
    bool writable;
    int r;

    if (!read_access(call->pid, fd, &writable) || (!writable && !call->writable) ||
        call->pid == call->own_pid)
        return PROGRESS_MORE;
    if (process_read(call->pid, &process) == 0 &&
        (process.parent == call->own_pid || process.parent == workers_parent()))
        return PROGRESS_MORE; /* crustd's children and workers have copies of its descriptors */
    access = writable ? "writable" : "read-only";
    *budget = 0; /* reading the arguments may take a whole slice */
    r = read_program(call->pid, program);
    if (find_sandbox(call, call->pid, sandbox_id))
        return say(call, DRIVE_IN_USE_BY_OTHERS,
                   "process %d (%s), the VMM of sandbox %s, has %s open, %s", (int)call->pid,
                   program, sandbox_id, what, access);
    if (r < 0 && r != PROCESS_GONE && !(writable && relation == THE_DISK)) /* it may be a VMM */
        return say(call, DRIVE_IN_USE_UNKNOWN,
                   "process %d has %s open, %s, and its arguments cannot be read: %s",
                   (int)call->pid, what, access, strerror(-r));
    if (hypervisor_kind_from_program(program) == HYPERVISOR_UNKNOWN &&
        !(writable && relation == THE_DISK))
        return PROGRESS_MORE;
    return say(call, DRIVE_IN_USE_BY_OTHERS, "process %d (%s) has %s open, %s", (int)call->pid,
               program, what, access);
}

/* ---- all processes ------------------------------------------------------------------------- */

static void leave_process(struct drive_in_use_call *call)
{
    if (call->is_in_process)
        fd_close(call->descriptors.fd);
    call->is_in_process = false;
}

static int doubt_process(struct drive_in_use_call *call)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];

    if (!find_sandbox(call, call->pid, sandbox_id))
        return PROGRESS_MORE;
    return say(call, DRIVE_IN_USE_UNKNOWN, "process %d, the VMM of sandbox %s, may not be examined",
               (int)call->pid, sandbox_id);
}

/* PROGRESS_DONE: this process is an obstacle. */
static int look_at_descriptor(struct drive_in_use_call *call, const char *name, unsigned *budget)
{
    enum relation relation;
    struct statx status;
    bool is_doubted = call->is_doubted;

    (*budget)--;
    if (statx(call->descriptors.fd, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &status) ==
        0) {
        relation = compare(call, &status);
        return relation == UNRELATED ? PROGRESS_MORE : judge_holder(call, relation, name, budget);
    }
    if (errno != EACCES && errno != EPERM)
        return PROGRESS_MORE;
    /* Either the process may not be examined or, by FUSE, one file: there may be others. */
    call->is_doubted = true;
    return is_doubted ? PROGRESS_MORE : doubt_process(call);
}

static int look_at_descriptors(struct drive_in_use_call *call, unsigned *budget)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    int r = PROGRESS_MORE;

    while (r == PROGRESS_MORE && call->is_in_process && *budget > 0) {
        const char *name = directory_read_next(&call->descriptors);

        if (!name || (call->seen++ == DESCRIPTORS && !find_sandbox(call, call->pid, sandbox_id))) {
            leave_process(call);
            return PROGRESS_MORE;
        }
        r = look_at_descriptor(call, name, budget);
    }
    return r;
}

static bool read_descriptor_count(const struct drive_in_use_call *call, const char *path,
                                  uint64_t *ret_count)
{
    struct statx status;

    if (statx(dirfd(call->proc), path, AT_STATX_DONT_SYNC, STATX_SIZE, &status) < 0)
        return false;
    *ret_count = status.stx_size;
    return true;
}

/* Kernel threads, which most processes are, have none. That a process has no program does not say
 * so: one that ends has none either while its last writes go to the disk and its memory is freed,
 * and closes its files after that. */
static bool has_no_descriptors(const struct drive_in_use_call *call, const char *path)
{
    uint64_t count;

    return call->has_counts && read_descriptor_count(call, path, &count) && count == 0;
}

static int begin_process(struct drive_in_use_call *call, const char *pid)
{
    char path[32];
    int fd, r;

    (void)snprintf(path, sizeof(path), "%s/fd", pid);
    if (call->pid == call->own_vmm || call->pid == call->own_pid || has_no_descriptors(call, path))
        return PROGRESS_MORE;
    fd = openat(dirfd(call->proc), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        call->is_in_process = true;
        call->is_doubted = false;
        call->descriptors = (struct directory_reader){.fd = fd};
        call->seen = 0;
        return PROGRESS_MORE;
    }
    r = -errno;
    if (result_is_shortage(r))
        return say(call, DRIVE_IN_USE_UNKNOWN, "process %d cannot be examined: %s", (int)call->pid,
                   strerror(-r));
    return path_is_missing(r) ? PROGRESS_MORE : doubt_process(call);
}

/* PROGRESS_DONE: no process is left, or the search is over. */
static int next_process(struct drive_in_use_call *call)
{
    const char *name = directory_next(call->proc);
    char *end;
    long pid;

    if (!name)
        return errno ? say(call, DRIVE_IN_USE_UNKNOWN, "the processes cannot be listed: %s",
                           strerror(errno))
                     : PROGRESS_DONE;
    pid = strtol(name, &end, 10);
    if (!isdigit((unsigned char)name[0]) || *end || pid > INT_MAX)
        return PROGRESS_MORE;
    call->pid = (pid_t)pid;
    return begin_process(call, name);
}

static int search_processes(struct drive_in_use_call *call)
{
    unsigned processes = PROCESSES_PER_SLICE, descriptors = DESCRIPTORS_PER_SLICE;
    int r = PROGRESS_MORE;

    while (r == PROGRESS_MORE && descriptors > 0) {
        if (call->is_in_process)
            r = look_at_descriptors(call, &descriptors);
        else if (processes-- > 0)
            r = next_process(call);
        else
            break;
    }
    return r;
}

static int begin_search(struct drive_in_use_call *call)
{
    bool has_all_relatives = true;
    uint64_t count;
    int r = search_record(call);

    if (r == PROGRESS_DONE)
        return r;
    if (!namespaces_show_all_processes())
        return say(call, DRIVE_IN_USE_UNKNOWN,
                   "crustd does not see all processes of the node: it needs the node's pid "
                   "namespace and /proc");
    for (unsigned i = 0; i < call->disk_count; i++)
        has_all_relatives &= call->disks[i].kind != DEVICE_KIND_BLOCK ||
                             drive_relatives_add(call->context->sysfs, call->disks[i].major,
                                                 call->disks[i].minor, &call->relatives);
    if (!has_all_relatives)
        return say(call, DRIVE_IN_USE_UNKNOWN,
                   "the disk has more partitions or lower devices than are compared, so who has "
                   "one of them cannot be told");
    call->proc = opendir("/proc");
    if (!call->proc)
        return say(call, DRIVE_IN_USE_UNKNOWN, "/proc cannot be listed: %s", strerror(errno));
    call->has_counts = read_descriptor_count(call, "self/fd", &count) && count > 0;
    return PROGRESS_MORE;
}

/* ---- the call ------------------------------------------------------------------------------ */

static void on_timer(struct loop_timer *timer)
{
    struct drive_in_use_call *call = container_of(timer, struct drive_in_use_call, timer);
    struct drive_in_use_reply reply;
    int r;

    loop_announce(call->context->loop, "searching for users of a disk", call->drive_id);
    r = call->proc ? search_processes(call) : begin_search(call);
    if (r == PROGRESS_MORE) {
        loop_timer_start(call->context->loop, &call->timer, 0, on_timer);
        return;
    }
    reply = call->reply; /* `done` may free the call */
    call->done(call, &reply, call->userdata);
}

int drive_in_use_call_new(const struct context *context, const struct drive_in_use_request *request,
                          drive_in_use_done *done, void *userdata,
                          struct drive_in_use_call **ret_call)
{
    struct drive_in_use_call *call = calloc(1, sizeof(*call));

    if (!call)
        return -ENOMEM;
    call->context = context;
    call->disks[call->disk_count++] = *request->disk;
    if (request->backing && request->backing->kind != DEVICE_KIND_OTHER)
        call->disks[call->disk_count++] = *request->backing;
    call->own_pid = getpid();
    call->own_vmm = request->own_vmm;
    call->writable = request->writable;
    (void)snprintf(call->drive_id, sizeof(call->drive_id), "%s",
                   request->drive_id ? request->drive_id : "");
    call->done = done;
    call->userdata = userdata;
    loop_timer_start(context->loop, &call->timer, 0, on_timer);
    *ret_call = call;
    return 0;
}

struct drive_in_use_call *drive_in_use_call_free(struct drive_in_use_call *call)
{
    if (!call)
        return NULL;
    loop_timer_stop(&call->timer);
    leave_process(call);
    dir_closep(&call->proc);
    free(call);
    return NULL;
}
