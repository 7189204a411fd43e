/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor.c - calls to a VMM, from the daemon's request to the act in a worker and back.
 *
 * A request goes to the worker as one message: the struct, in which each text is an offset, and
 * then the texts. The reply comes back as the struct, and the entries of a list after it. It is
 * checked before anything is believed of it, because a VMM may have taken the worker over.
 *
 * `done` comes once, from the loop, and never after the call was freed. A result that is known at
 * once (no control socket, a VMM without a client here) is therefore delivered by a timer of zero
 * length.
 */
#include "hypervisor/hypervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/vmm_process.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/process.h"
#include "lib/workers.h"

/* A kind has an act, or obstacles. */
static const struct vmm_kind {
    vmm_act *act;
    struct hypervisor_traits traits;
} kinds[HYPERVISOR_KINDS] = {
    [HYPERVISOR_UNKNOWN] = {NULL,
                            {.resize_obstacle = "it is not known which VMM this is",
                             .obstacle = "the kind of VMM is not known"}},
    [HYPERVISOR_QEMU] = {.act = qemu_act},
    [HYPERVISOR_CLOUD_HYPERVISOR] = {cloud_hypervisor_act,
                                     {.opens_path = true, .has_no_limit = true}},
    [HYPERVISOR_FIRECRACKER] = {firecracker_act, {.opens_path = true, .makes_serial = true}},
    [HYPERVISOR_DRAGONBALL] = {NULL,
                               {.resize_obstacle =
                                    "Dragonball runs inside the shim and has no control socket: "
                                    "its drives keep their size until the pod is started anew",
                                .obstacle =
                                    "Dragonball runs inside the shim and has no control socket: no "
                                    "disk can be attached to its VMs"}},
    [HYPERVISOR_STRATOVIRT] = {NULL,
                               {.resize_obstacle =
                                    "StratoVirt has one monitor, which the shim holds: its drives "
                                    "keep their size until the pod is started anew",
                                .obstacle = "StratoVirt has one monitor, which the shim holds: no "
                                            "disk can be attached to its VMs"}},
    [HYPERVISOR_OPENVMM] = {NULL,
                            {.resize_obstacle =
                                 "OpenVMM has no known call that resizes a drive: its drives keep "
                                 "their size until the pod is started anew",
                             .obstacle =
                                 "crustd has no client that attaches a disk to an OpenVMM"}},
    [HYPERVISOR_REMOTE] = {NULL,
                           {.resize_obstacle = "the VM runs on another machine, where no device of "
                                               "this one is attached to it",
                            .obstacle = "the VM runs on another machine, where no disk of this one "
                                        "can be attached to it"}},
};

const struct hypervisor_traits *hypervisor_traits(enum hypervisor_kind kind)
{
    return &kinds[kind].traits;
}

/* ---- in the worker ---- */

struct message {
    enum hypervisor_kind kind;
    struct hypervisor_request request;
};

static const struct job_texts texts[] = {
    {offsetof(struct message, request.control_socket), 1},
    {offsetof(struct message, request.sandbox_id), 1},
    {offsetof(struct message, request.recorded_drive), 1},
    {offsetof(struct message, request.drive_id), 1},
    {offsetof(struct message, request.path), 1},
    {offsetof(struct message, request.serial), 1},
    {0, 0},
};

static void act_in_worker(const struct job_input *input, struct buffer *reply)
{
    struct hypervisor_reply answer = {.bytes = 0};
    struct message message;

    job_read_message(input, texts, &message, sizeof(message));
    message.request.root = input->fds[0];
    message.request.descriptor = input->fds[1];
    kinds[message.kind].act(&message.request, input->deadline_ns, &answer);
    (void)buffer_append(reply, &answer, sizeof(answer));
    if (answer.entry_count > 0)
        (void)buffer_append(reply, answer.entries, answer.entry_count * sizeof(*answer.entries));
    free((void *)(uintptr_t)answer.entries);
}

/* ---- the worker's reply ---- */

static bool is_entry(const struct hypervisor_drive_entry *entry)
{
    return job_is_text(entry->drive_id) && job_is_text(entry->serial) &&
           (unsigned)entry->state < HYPERVISOR_DRIVE_STATES && job_is_flag(&entry->identified) &&
           job_is_flag(&entry->disk.regular_file);
}

/* The entries are in the caller's memory. */
static bool check_reply(struct hypervisor_reply *reply, const void *bytes, size_t length,
                        struct hypervisor_drive_entry **ret_entries)
{
    const size_t size = length - sizeof(*reply), each = sizeof(**ret_entries);

    if (!job_take_reply(bytes, length, reply, sizeof(*reply)) ||
        (unsigned)reply->outcome >= HYPERVISOR_OUTCOMES ||
        (unsigned)reply->resize >= HYPERVISOR_OUTCOMES ||
        (unsigned)reply->list > HYPERVISOR_LIST_LACKS ||
        (unsigned)reply->state >= HYPERVISOR_DRIVE_STATES || !job_is_text(reply->version) ||
        !job_is_text(reply->drive_id) || !job_is_text(reply->address) ||
        !job_is_text(reply->serial) || !job_is_flag(&reply->guest.is_confidential) ||
        !job_is_flag(&reply->guest.has_share) || !job_is_error(&reply->error) ||
        reply->entry_count != size / each || size % each != 0)
        return false;
    *ret_entries = malloc(size + 1);
    if (!*ret_entries)
        return false;
    memcpy(*ret_entries, (const char *)bytes + sizeof(*reply), size);
    reply->entries = *ret_entries;
    for (size_t i = 0; i < reply->entry_count; i++)
        if (!is_entry(&reply->entries[i]))
            return false;
    return true;
}

/* ---- a call ---- */

struct hypervisor_call {
    struct job job;
    hypervisor_done *done;
    void *userdata;
    pid_t vmm_pid;
    int descriptor;             /* owned */
    struct loop_timer deferred; /* delivers a reply that was known before the loop ran */
    struct hypervisor_drive_entry *entries; /* owned; the reply's */
    struct hypervisor_reply reply;
};

/* A VMM that stands still says nothing about who else holds its monitor. */
static void complete(struct hypervisor_call *call)
{
    struct hypervisor_reply reply = call->reply; /* `done` may free the call */
    const bool is_busy = reply.outcome == HYPERVISOR_BUSY && reply.list == HYPERVISOR_LIST_UNREAD;
    struct error still = {0};

    if ((is_busy || reply.outcome == HYPERVISOR_UNREACHABLE) &&
        process_stands_still(call->vmm_pid, &still)) {
        if (is_busy)
            reply.error.text[0] = '\0'; /* it names another client */
        reply.outcome = HYPERVISOR_UNREACHABLE;
        (void)error_prefix(&reply.error, "the VMM does not answer: %s%s", still.text,
                           reply.error.text[0] ? "; " : "");
    }
    reply.error.code = (int)reply.outcome;
    call->done(call, &reply, call->userdata);
}

static void set_outcome(struct hypervisor_call *call, enum hypervisor_outcome outcome,
                        const char *text)
{
    call->reply = (struct hypervisor_reply){.outcome = outcome};
    (void)error_set(&call->reply.error, (int)outcome, "%s", text);
}

static void on_job_done(struct job *job, enum job_end end, const void *reply, size_t length)
{
    struct hypervisor_call *call = container_of(job, struct hypervisor_call, job);

    if (end != JOB_ANSWERED || !check_reply(&call->reply, reply, length, &call->entries))
        set_outcome(call, HYPERVISOR_UNREACHABLE, job_fault_text(end));
    complete(call);
}

static void on_deferred(struct loop_timer *timer)
{
    complete(container_of(timer, struct hypervisor_call, deferred));
}

static bool is_plain(const char *text, size_t size)
{
    size_t length = text ? strlen(text) : 0;

    return length > 0 && length < size &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") ==
               length;
}

/* The VMM would refuse the descriptor, or use it otherwise than was meant. */
static int check_descriptor(const struct hypervisor_request *request, struct error *error)
{
    int flags = fcntl(request->descriptor, F_GETFL);

    if (flags < 0)
        return error_set_errno(error, -errno, "the disk's descriptor");
    if ((flags & O_ACCMODE) != (request->read_only ? O_RDONLY : O_RDWR))
        return error_set(error, -EINVAL, "the disk was not opened as a %s drive is",
                         request->read_only ? "read-only" : "writable");
    if (!(flags & O_DIRECT) != !request->direct)
        return error_set(error, -EINVAL, "the disk was opened with%s O_DIRECT",
                         request->direct ? "out" : "");
    return 0;
}

static int check_request(const struct hypervisor_request *request, bool opens_path,
                         struct error *error)
{
    const bool is_attach = request->act == HYPERVISOR_ATTACH;
    const bool is_own =
        is_attach || request->act == HYPERVISOR_DETACH || request->act == HYPERVISOR_LIMIT;

    if ((is_own || request->drive_id) && !is_plain(request->drive_id, HYPERVISOR_DRIVE_ID_BYTES))
        return error_set(error, -EINVAL, "a drive's id has 1 to %d of A-Z a-z 0-9 _ -",
                         HYPERVISOR_DRIVE_ID_BYTES - 1);
    if (!is_attach)
        return 0;
    if (!is_plain(request->serial, HYPERVISOR_DRIVE_SERIAL_BYTES))
        return error_set(error, -EINVAL, "a drive's serial has 1 to %d of A-Z a-z 0-9 _ -",
                         HYPERVISOR_DRIVE_SERIAL_BYTES - 1);
    if (opens_path && (!request->path || request->path[0] != '/'))
        return error_set(error, -EINVAL, "the VMM opens the disk by an absolute path");
    return request->descriptor < 0 ? 0 : check_descriptor(request, error);
}

/* Why this kind of VMM, or the configuration, has no such act; NULL: it has. */
static const char *obstacle_to(enum hypervisor_kind kind, const struct hypervisor_request *request)
{
    const struct hypervisor_traits *traits = hypervisor_traits(kind);
    const enum hypervisor_act wanted = request->act;

    if (wanted == HYPERVISOR_DESCRIBE && hypervisor_guest_source(kind) != HYPERVISOR_GUEST_BY_CALL)
        return "this VMM is not asked what guest it runs";
    if (traits->obstacle)
        return request->drive_id || wanted == HYPERVISOR_LIST ? traits->obstacle
                                                              : traits->resize_obstacle;
    if (wanted == HYPERVISOR_LIMIT && traits->has_no_limit)
        return "this VMM sets a drive's limits when it is attached, and cannot change them later";
    if (wanted == HYPERVISOR_RESIZE && request->drive_id && request->disk.regular_file)
        return "a regular file is cut or grown by what has a VMM read its size";
    return wanted == HYPERVISOR_ATTACH || wanted == HYPERVISOR_RESIZE ? request->forbidden : NULL;
}

static int start(struct hypervisor_call *call, enum hypervisor_kind kind,
                 const struct hypervisor_request *request)
{
    const struct message message = {.kind = kind, .request = *request};

    if (request->act == HYPERVISOR_ATTACH && request->descriptor >= 0) {
        call->descriptor = fcntl(request->descriptor, F_DUPFD_CLOEXEC, 3);
        if (call->descriptor < 0)
            return -errno;
    }
    return job_start_message(
        &call->job,
        &(struct job_message){.request = &message, .size = sizeof(message), .texts = texts},
        (struct job_request){.act = act_in_worker,
                             .fds = {request->root, call->descriptor},
                             .deadline_ns = request->deadline_ns,
                             .subject =
                                 request->sandbox_id ? child_subject(request->sandbox_id) : 0,
                             .is_ahead = request->is_ahead,
                             .done = on_job_done});
}

int hypervisor_call_new(struct loop *loop, enum hypervisor_kind kind,
                        const struct hypervisor_request *request, hypervisor_done *done,
                        void *userdata, struct hypervisor_call **ret_call, struct error *error)
{
    const char *obstacle = obstacle_to(kind, request);
    struct hypervisor_call *call;
    int r = check_request(request, hypervisor_traits(kind)->opens_path, error);

    if (r < 0)
        return r;
    call = calloc(1, sizeof(*call));
    if (!call)
        return error_set_errno(error, -ENOMEM, "cannot call the VMM");
    *call = (struct hypervisor_call){
        .done = done, .userdata = userdata, .vmm_pid = request->vmm_pid, .descriptor = -1};
    if (obstacle)
        set_outcome(call, HYPERVISOR_UNSUPPORTED, obstacle);
    else if (!request->control_socket)
        set_outcome(call, HYPERVISOR_MONITOR_MISSING,
                    "the VMM has no control socket that may be used");
    else
        r = start(call, kind, request);
    if (r < 0) {
        (void)hypervisor_call_free(call);
        return error_set_errno(error, r, "cannot call the VMM");
    }
    if (call->reply.outcome != HYPERVISOR_DONE)
        loop_timer_start(loop, &call->deferred, 0, on_deferred);
    *ret_call = call;
    return 0;
}

void hypervisor_call_go(struct hypervisor_call *call)
{
    job_go(&call->job);
}

struct hypervisor_call *hypervisor_call_free(struct hypervisor_call *call)
{
    if (!call)
        return NULL;
    job_cancel(&call->job);
    loop_timer_stop(&call->deferred);
    fd_close(call->descriptor);
    free(call->entries);
    free(call);
    return NULL;
}
