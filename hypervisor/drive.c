/* SPDX-License-Identifier: Apache-2.0 */
/* drive.c - one call about a drive, whatever the VMM.
 *
 * This file owns the call, the copy of its request and the guarantee about `done`: once, from the
 * loop, and never after hypervisor_drive_call_free(). The kinds of VMM own their conversation and
 * are stopped before `done` is called, so that the monitor is free again while the caller handles
 * the reply.
 */
#include "hypervisor/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/hypervisor_ops.h"
#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/process.h"

static const struct hypervisor_drive_ops *const kinds[HYPERVISOR_KINDS] = {
    [HYPERVISOR_QEMU] = &hypervisor_drive_qemu_ops,
    [HYPERVISOR_CLOUD_HYPERVISOR] = &hypervisor_drive_cloud_hypervisor_ops,
    [HYPERVISOR_FIRECRACKER] = &hypervisor_drive_firecracker_ops,
};

/* Of the kinds without a client. */
static const struct hypervisor_drive_traits refused[HYPERVISOR_KINDS] = {
    [HYPERVISOR_UNKNOWN] = {.obstacle = "the kind of VMM is not known"},
    [HYPERVISOR_DRAGONBALL] = {.obstacle = "Dragonball runs inside the shim and has no control "
                                           "socket: no disk can be attached to its VMs"},
    [HYPERVISOR_STRATOVIRT] = {.obstacle = "StratoVirt has one monitor, which the shim holds: no "
                                           "disk can be attached to its VMs"},
    [HYPERVISOR_OPENVMM] = {.obstacle = "crustd has no client that attaches a disk to an OpenVMM"},
    [HYPERVISOR_REMOTE] = {.obstacle = "the VM runs on another machine, where no disk of this one "
                                       "can be attached to it"},
};

static void stop_call(struct hypervisor_drive_call *call)
{
    if (call->stopped)
        return;
    call->stopped = true;
    loop_timer_stop(&call->deferred);
    if (call->ops)
        call->ops->stop(call);
}

void hypervisor_drive_complete(struct hypervisor_drive_call *call,
                               const struct hypervisor_drive_reply *reply)
{
    struct hypervisor_drive_reply copy = *reply; /* `done` may free the call that holds the reply */
    struct error still = {0};

    stop_call(call);
    if ((copy.outcome == HYPERVISOR_DRIVE_BUSY || copy.outcome == HYPERVISOR_DRIVE_UNREACHABLE) &&
        process_stands_still(call->request.vmm_pid, &still)) {
        if (copy.outcome == HYPERVISOR_DRIVE_BUSY)
            copy.error.text[0] = '\0'; /* it names another client */
        copy.outcome = HYPERVISOR_DRIVE_UNREACHABLE;
        (void)error_prefix(&copy.error, "the VMM does not answer: %s%s", still.text,
                           copy.error.text[0] ? "; " : "");
    }
    copy.error.code = (int)copy.outcome;
    call->done(call, &copy, call->userdata);
}

static void on_deferred(struct loop_timer *timer)
{
    struct hypervisor_drive_call *call =
        container_of(timer, struct hypervisor_drive_call, deferred);

    hypervisor_drive_complete(call, &call->reply);
}

bool hypervisor_drive_has_client(enum hypervisor_kind kind)
{
    return kinds[kind];
}

const struct hypervisor_drive_traits *hypervisor_drive_traits(enum hypervisor_kind kind)
{
    return kinds[kind] ? &kinds[kind]->traits : &refused[kind];
}

/* ---- the request ---- */

static bool is_plain(const char *text, size_t size)
{
    size_t length = text ? strlen(text) : 0;

    return length > 0 && length < size &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") ==
               length;
}

/* The VMM would refuse the descriptor, or use it otherwise than was meant. */
static int check_descriptor(const struct hypervisor_drive_request *request, struct error *error)
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

static int check_request(const struct hypervisor_drive_request *request, bool opens_path,
                         struct error *error)
{
    if (request->act == HYPERVISOR_DRIVE_LIST)
        return 0;
    if (!is_plain(request->drive_id, HYPERVISOR_DRIVE_ID_BYTES))
        return error_set(error, -EINVAL, "a drive's id has 1 to %d of A-Z a-z 0-9 _ -",
                         HYPERVISOR_DRIVE_ID_BYTES - 1);
    if (request->act != HYPERVISOR_DRIVE_ATTACH)
        return 0;
    if (!is_plain(request->serial, HYPERVISOR_DRIVE_SERIAL_BYTES))
        return error_set(error, -EINVAL, "a drive's serial has 1 to %d of A-Z a-z 0-9 _ -",
                         HYPERVISOR_DRIVE_SERIAL_BYTES - 1);
    if (opens_path && (!request->path || request->path[0] != '/'))
        return error_set(error, -EINVAL, "the VMM opens the disk by an absolute path");
    return request->descriptor < 0 ? 0 : check_descriptor(request, error);
}

static int copy_text(const char *text, const char **ret_copy)
{
    *ret_copy = text ? strdup(text) : NULL;
    return text && !*ret_copy ? -ENOMEM : 0;
}

static int copy_descriptor(const struct hypervisor_drive_request *request, int *ret_copy)
{
    if (request->act != HYPERVISOR_DRIVE_ATTACH || request->descriptor < 0)
        return 0;
    *ret_copy = fcntl(request->descriptor, F_DUPFD_CLOEXEC, 3);
    return *ret_copy < 0 ? -errno : 0;
}

static void release_request(struct hypervisor_drive_request *request)
{
    fd_close(request->descriptor);
    free((void *)(uintptr_t)request->control_socket);
    free((void *)(uintptr_t)request->drive_id);
    free((void *)(uintptr_t)request->serial);
    free((void *)(uintptr_t)request->sandbox_id);
    free((void *)(uintptr_t)request->path);
    *request = (struct hypervisor_drive_request){.descriptor = -1};
}

/* Takes over what the request borrows. */
static int copy_request(struct hypervisor_drive_call *call,
                        const struct hypervisor_drive_request *request)
{
    int r, s, t, u, v, w;

    call->request = *request;
    call->request.descriptor = -1;
    r = copy_text(request->control_socket, &call->request.control_socket);
    s = copy_text(request->drive_id, &call->request.drive_id);
    t = copy_text(request->serial, &call->request.serial);
    u = copy_text(request->sandbox_id, &call->request.sandbox_id);
    v = copy_text(request->path, &call->request.path);
    w = copy_descriptor(request, &call->request.descriptor);
    return r < 0 || s < 0 || t < 0 || u < 0 || v < 0 ? -ENOMEM : w;
}

/* ---- the call ---- */

/* Why this kind of VMM, or the configuration, has no such act; NULL: it has. */
static const char *obstacle_to(const struct hypervisor_drive_call *call, enum hypervisor_kind kind)
{
    const struct hypervisor_drive_traits *traits = hypervisor_drive_traits(kind);
    const struct hypervisor_drive_request *request = &call->request;

    if (traits->obstacle)
        return traits->obstacle;
    if (request->act == HYPERVISOR_DRIVE_LIMIT && traits->has_no_limit)
        return "this VMM sets a drive's limits when it is attached, and cannot change them later";
    if (request->act == HYPERVISOR_DRIVE_RESIZE && request->disk.regular_file)
        return "a regular file is cut or grown by what has a VMM read its size";
    if (request->act == HYPERVISOR_DRIVE_ATTACH || request->act == HYPERVISOR_DRIVE_RESIZE)
        return request->forbidden;
    return NULL;
}

/* Starts the conversation, or prepares the reply if none is possible. */
static void start_call(struct hypervisor_drive_call *call, enum hypervisor_kind kind)
{
    const char *obstacle = obstacle_to(call, kind);
    struct hypervisor_drive_reply *reply = &call->reply;
    int r;

    if (obstacle) {
        reply->outcome = HYPERVISOR_DRIVE_UNSUPPORTED;
        (void)error_set(&reply->error, 0, "%s", obstacle);
    } else if (!call->request.control_socket) {
        reply->outcome = HYPERVISOR_DRIVE_MONITOR_MISSING;
        (void)error_set(&reply->error, 0, "the VMM has no control socket that may be used");
    } else {
        r = call->ops->start(call);
        if (r == 0)
            return;
        reply->outcome = HYPERVISOR_DRIVE_UNREACHABLE;
        (void)error_set_errno(&reply->error, r, "cannot talk to the VMM");
    }
    loop_timer_start(call->loop, &call->deferred, 0, on_deferred);
}

int hypervisor_drive_call_new(struct loop *loop, enum hypervisor_kind kind,
                              const struct hypervisor_drive_request *request,
                              hypervisor_drive_done *done, void *userdata,
                              struct hypervisor_drive_call **ret_call, struct error *error)
{
    const struct hypervisor_drive_ops *ops = kinds[kind];
    struct hypervisor_drive_call *call;
    int r = check_request(request, ops && ops->traits.opens_path, error);

    if (r < 0)
        return r;
    call = calloc(1, ops ? ops->size : sizeof(*call));
    if (!call)
        return error_set_errno(error, -ENOMEM, "cannot call the VMM");
    call->loop = loop;
    call->done = done;
    call->userdata = userdata;
    call->request.descriptor = -1;
    r = copy_request(call, request);
    if (r < 0) {
        (void)hypervisor_drive_call_free(call);
        return error_set_errno(error, r, "cannot call the VMM");
    }
    call->ops = ops;
    start_call(call, kind);
    *ret_call = call;
    return 0;
}

struct hypervisor_drive_call *hypervisor_drive_call_free(struct hypervisor_drive_call *call)
{
    if (!call)
        return NULL;
    stop_call(call);
    if (call->ops)
        call->ops->done(call);
    loop_timer_stop(&call->deferred);
    release_request(&call->request);
    free(call);
    return NULL;
}

/* ---- what the process has open ---- */

bool hypervisor_drive_may_be_held(pid_t vmm_pid, const struct hypervisor_disk *disk)
{
    const struct vmm_identity wanted = {.block_device = !disk->regular_file,
                                        .device = disk->device,
                                        .inode = disk->regular_file ? disk->inode : 0};
    struct vmm_process process;
    bool may_be_held;

    if (vmm_process_init(&process, vmm_pid, NULL) < 0)
        return true;
    may_be_held = vmm_may_hold(&process.resolver, &wanted);
    vmm_process_done(&process);
    return may_be_held;
}
