/* SPDX-License-Identifier: Apache-2.0 */
/* in_use.c - searches for the users of a disk: first in the store, then, in a worker, among all
 * processes. The search stops at the first user that is an obstacle.
 *
 * Of the VMM of a known sandbox all descriptors are examined: it may have as many as the kernel
 * allows. Of other processes at most DESCRIPTORS are examined, and more are ignored, because any
 * user can have many such processes. If a VMM may not be examined, the answer is UNKNOWN, as it is
 * if a process that has the disk open does not let its arguments be read in time.
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
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/process.h"
#include "lib/text.h"
#include "model/sandbox.h"
#include "reconciler/core/context.h"
#include "store/devices.h"
#include "store/sandboxes.h"

enum { DESCRIPTORS = 4096, FDINFO_BYTES = 4096, ARGUMENTS_BYTES = 1024, PROGRAM_BYTES = 48 };

/* The request to the worker. */
struct search_message {
    struct store_drive_mount_disk disks[2]; /* the disk, and its backing if it is a loop device */
    unsigned disk_count;
    pid_t crustd, nursery, own_vmm;
    bool writable;
    const char *vmms; /* of known sandboxes: "\nPID ID" for each, and "\n" */
};

static const struct job_texts texts[] = {{offsetof(struct search_message, vmms), 1}, {0, 0}};

/* True: the search is over. */
#define say(reply, why, ...)                                                                       \
    ((reply)->outcome = (why), (void)error_set(&(reply)->error, (int)(why), __VA_ARGS__), true)

/* ---- in a worker: one descriptor ----------------------------------------------------------- */

struct search {
    struct search_message message;
    struct drive_relatives relatives;
    DIR *proc;
    bool has_counts; /* the kernel says how many descriptors a process has (since Linux 6.2) */
    pid_t pid;       /* its descriptors are being examined */
    struct drive_in_use_reply *reply;
};

enum relation { UNRELATED, THE_DISK, A_RELATIVE };

static enum relation compare(const struct search *search, const struct statx *status)
{
    const bool is_block = S_ISBLK(status->stx_mode);

    for (unsigned i = 0; i < search->message.disk_count; i++) {
        const struct store_drive_mount_disk *disk = &search->message.disks[i];

        if (disk->kind == DEVICE_KIND_BLOCK
                ? is_block && status->stx_rdev_major == disk->major &&
                      status->stx_rdev_minor == disk->minor
                : S_ISREG(status->stx_mode) && status->stx_ino == disk->inode &&
                      makedev(status->stx_dev_major, status->stx_dev_minor) == disk->file_device)
            return THE_DISK;
    }
    return is_block && drive_relatives_include(&search->relatives, makedev(status->stx_rdev_major,
                                                                           status->stx_rdev_minor))
               ? A_RELATIVE
               : UNRELATED;
}

/* Whether the process is the VMM of a known sandbox. */
static bool find_sandbox(const struct search *search, char ret_id[static STORE_SANDBOX_ID_BYTES])
{
    const char *vmm;
    char key[32];

    (void)snprintf(key, sizeof(key), "\n%d ", (int)search->pid);
    vmm = strstr(search->message.vmms, key);
    if (!vmm)
        return false;
    vmm += strlen(key);
    (void)snprintf(ret_id, STORE_SANDBOX_ID_BYTES, "%.*s", (int)strcspn(vmm, "\n"), vmm);
    return true;
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

/* Whether this process is an obstacle. */
static bool judge_holder(struct search *search, enum relation relation, const char *fd)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(2 * ARGUMENTS_BYTES);
    const struct search_message *message = &search->message;
    const char *what =
        relation == THE_DISK ? "the disk" : "a device that shares data with the disk";
    char sandbox_id[STORE_SANDBOX_ID_BYTES] = "", program[PROGRAM_BYTES];
    const pid_t pid = search->pid;
    struct process process;
    const char *access, *name;
    bool writable, is_vmm;
    int r;

    if (!read_access(pid, fd, &writable) || (!writable && !message->writable))
        return false;
    if (process_read(pid, &process) == 0 &&
        (process.parent == message->crustd || process.parent == message->nursery))
        return false; /* crustd's children and workers have copies of its descriptors */
    access = writable ? "writable" : "read-only";
    r = process_read_first_arguments(pid, ARGUMENTS_BYTES, &arguments);
    name = process_arguments_program(&arguments);
    text_clean(name, strlen(name), program, sizeof(program));
    is_vmm = find_sandbox(search, sandbox_id);
    if (!is_vmm && !(writable && relation == THE_DISK)) {
        if (r < 0 && r != PROCESS_GONE) /* it may be a VMM */
            return say(search->reply, DRIVE_IN_USE_UNKNOWN,
                       "process %d has %s open, %s, and its arguments cannot be read: %s", (int)pid,
                       what, access, strerror(-r));
        if (hypervisor_kind_from_program(program) == HYPERVISOR_UNKNOWN)
            return false;
    }
    return say(search->reply, DRIVE_IN_USE_BY_OTHERS, "process %d (%s)%s%s%s has %s open, %s",
               (int)pid, program, is_vmm ? ", the VMM of sandbox " : "", sandbox_id,
               is_vmm ? "," : "", what, access);
}

/* ---- in a worker: all processes ------------------------------------------------------------ */

static bool doubt_process(struct search *search)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];

    return find_sandbox(search, sandbox_id) &&
           say(search->reply, DRIVE_IN_USE_UNKNOWN,
               "process %d, the VMM of sandbox %s, may not be examined", (int)search->pid,
               sandbox_id);
}

/* Whether this process is an obstacle. */
static bool search_descriptors(struct search *search, int fd)
{
    struct directory_reader descriptors = {.fd = fd};
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    bool is_doubted = false;
    const char *name;

    for (unsigned seen = 0; (name = directory_read_next(&descriptors)); seen++) {
        enum relation relation;
        struct statx status;

        if (seen == DESCRIPTORS && !find_sandbox(search, sandbox_id))
            return false;
        if (statx(fd, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &status) == 0) {
            relation = compare(search, &status);
            if (relation != UNRELATED && judge_holder(search, relation, name))
                return true;
        } else if ((errno == EACCES || errno == EPERM) && !is_doubted) {
            /* Either the process may not be examined or, by FUSE, one file: there may be others. */
            is_doubted = true;
            if (doubt_process(search))
                return true;
        }
    }
    return false;
}

static bool read_descriptor_count(const struct search *search, const char *path,
                                  uint64_t *ret_count)
{
    struct statx status;

    if (statx(dirfd(search->proc), path, AT_STATX_DONT_SYNC, STATX_SIZE, &status) < 0)
        return false;
    *ret_count = status.stx_size;
    return true;
}

/* Kernel threads, which most processes are, have no descriptors. That a process has no program does
 * not say so: one that ends has none either while its last writes go to the disk and its memory is
 * freed, and closes its files after that. */
static bool search_process(struct search *search, const char *pid)
{
    cleanup(fd_closep) int fd = -1;
    uint64_t count;
    char path[32];
    int r;

    (void)snprintf(path, sizeof(path), "%s/fd", pid);
    if (search->pid == search->message.own_vmm || search->pid == search->message.crustd ||
        (search->has_counts && read_descriptor_count(search, path, &count) && count == 0))
        return false;
    fd = openat(dirfd(search->proc), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        return search_descriptors(search, fd);
    r = -errno;
    if (result_is_shortage(r))
        return say(search->reply, DRIVE_IN_USE_UNKNOWN, "process %d cannot be examined: %s",
                   (int)search->pid, strerror(-r));
    return !path_is_missing(r) && doubt_process(search);
}

static void search_processes(struct search *search)
{
    cleanup(dir_closep) DIR *proc = search->proc = opendir("/proc");
    const char *name;
    uint64_t count;

    if (!proc) {
        (void)say(search->reply, DRIVE_IN_USE_UNKNOWN, "/proc cannot be listed: %s",
                  strerror(errno));
        return;
    }
    search->has_counts = read_descriptor_count(search, "self/fd", &count) && count > 0;
    while ((name = directory_next(proc))) {
        char *end;
        long pid = strtol(name, &end, 10);

        if (!isdigit((unsigned char)name[0]) || *end || pid > INT_MAX)
            continue;
        search->pid = (pid_t)pid;
        if (search_process(search, name))
            return;
    }
    if (errno)
        (void)say(search->reply, DRIVE_IN_USE_UNKNOWN, "the processes cannot be listed: %s",
                  strerror(errno));
}

static void search_act(const struct job_input *input, struct buffer *reply)
{
    struct drive_in_use_reply answer = {.outcome = DRIVE_IN_USE_NOT};
    struct search search = {.reply = &answer};
    bool has_all_relatives = true;

    job_read_message(input, texts, &search.message, sizeof(search.message));
    for (unsigned i = 0; i < search.message.disk_count; i++) {
        const struct store_drive_mount_disk *disk = &search.message.disks[i];

        has_all_relatives &=
            disk->kind != DEVICE_KIND_BLOCK ||
            drive_relatives_add(input->fds[0], disk->major, disk->minor, &search.relatives);
    }
    if (!namespaces_show_all_processes())
        (void)say(&answer, DRIVE_IN_USE_UNKNOWN,
                  "crustd does not see all processes of the node: it needs the node's pid "
                  "namespace and /proc");
    else if (!has_all_relatives)
        (void)say(&answer, DRIVE_IN_USE_UNKNOWN,
                  "the disk has more partitions or lower devices than are compared, so who has "
                  "one of them cannot be told");
    else
        search_processes(&search);
    (void)buffer_append(reply, &answer, sizeof(answer));
}

/* ---- in crustd ----------------------------------------------------------------------------- */

struct record_search {
    const struct drive_in_use_request *request;
    struct drive_in_use_reply *reply;
};

/* Returns 1 to end the walk. */
static int note_user(void *userdata, const struct store_disk_user *user)
{
    const struct record_search *search = userdata;
    const pid_t own_vmm = search->request->own_vmm;
    const char *access = user->writable ? "writable" : "read-only";
    const char *name = user->name[0] ? user->name : "of an unknown path";

    if (!search->request->writable && !user->writable)
        return 0;
    if (user->kind == STORE_DISK_USER_ORPHAN && own_vmm && strtol(user->name, NULL, 10) == own_vmm)
        return 0;
    if (user->kind == STORE_DISK_USER_ORPHAN)
        (void)say(search->reply, DRIVE_IN_USE_BY_ORPHAN,
                  "process %s, the VMM of the orphaned sandbox %s, has the disk open: it ends by "
                  "kill %s",
                  user->name, user->sandbox_id, user->name);
    else if (user->kind == STORE_DISK_USER_STAGED)
        (void)say(search->reply, DRIVE_IN_USE_BY_OTHERS,
                  "the disk is staged as volume %s, %s, for containers to come", name, access);
    else
        (void)say(search->reply, DRIVE_IN_USE_BY_OTHERS, "sandbox %s has the disk as %s %s, %s",
                  user->sandbox_id, user->kind == STORE_DISK_USER_DRIVE ? "drive" : "volume", name,
                  access);
    return 1;
}

static int add_vmm(void *userdata, const struct store_helper_run *sandbox)
{
    return buffer_append_format(userdata, "\n%d %s", (int)sandbox->vmm_pid, sandbox->sandbox_id) < 0
               ? STORE_NO_MEMORY
               : 0;
}

static void on_searched(struct job *job, enum job_end end, const void *bytes, size_t length)
{
    struct drive_in_use_call *call = container_of(job, struct drive_in_use_call, job);
    struct drive_in_use_reply reply;

    if (end != JOB_ANSWERED || !job_take_reply(bytes, length, &reply, sizeof(reply)) ||
        (unsigned)reply.outcome > DRIVE_IN_USE_UNKNOWN || !job_is_error(&reply.error))
        (void)say(&reply, DRIVE_IN_USE_UNKNOWN, "who has the disk open cannot be told: %s",
                  job_fault_text(end));
    call->done(call, &reply);
}

void drive_in_use_start(struct drive_in_use_call *call, const struct context *context,
                        const struct drive_in_use_request *request, drive_in_use_done *done)
{
    cleanup(buffer_done) struct buffer vmms = BUFFER_INIT(JOB_REQUEST_BYTES);
    struct search_message message = {
        .disks = {*request->disk},
        .disk_count = 1,
        .crustd = getpid(),
        .nursery = workers_parent(),
        .own_vmm = request->own_vmm,
        .writable = request->writable,
    };
    struct drive_in_use_reply reply = {0};
    struct record_search search = {request, &reply};
    int r = 0;

    call->done = done;
    if (request->backing && request->backing->kind != DEVICE_KIND_OTHER)
        message.disks[message.disk_count++] = *request->backing;
    for (unsigned i = 0; r == 0 && i < message.disk_count; i++)
        r = store_each_disk_user(context->store, &message.disks[i], request->drive_id, note_user,
                                 &search);
    if (r == 0)
        r = store_each_sandbox(context->store, false, add_vmm, &vmms);
    if (r < 0)
        (void)say(&reply, DRIVE_IN_USE_UNKNOWN, "the record of volumes and drives cannot be read");
    if (r != 0) {
        done(call, &reply);
        return;
    }
    buffer_append_text(&vmms, "\n");
    message.vmms = buffer_text(&vmms);
    r = job_start_message(
        &call->job, &(struct job_message){&message, sizeof(message), texts, NULL, 0},
        (struct job_request){.act = search_act,
                             .fds = {context->sysfs, -1},
                             .allowed_ns =
                                 context->config->resize.call_timeout_seconds * NSEC_PER_SEC,
                             /* Users decide how many descriptors there are. */
                             .processor_s = context->config->resize.call_timeout_seconds,
                             .done = on_searched});
    if (r == 0)
        return;
    (void)say(&reply, DRIVE_IN_USE_UNKNOWN, "who has the disk open cannot be told: %s",
              strerror(-r));
    done(call, &reply);
}

void drive_in_use_stop(struct drive_in_use_call *call)
{
    job_cancel(&call->job);
}
