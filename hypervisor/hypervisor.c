/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor.c - one call, whatever the VMM.
 *
 * This file owns the call, the copy of its request and the guarantee about `done`: once, from the
 * loop, and never after hypervisor_call_free(). A result that is known at once (no control socket,
 * a VMM without a client here) is therefore delivered by a timer of zero length. The kinds of VMM
 * own their conversation and are stopped before `done` is called, so that the monitor is free again
 * while the caller handles the answer.
 */
#include "hypervisor/hypervisor.h"

#include <stdlib.h>
#include <string.h>

#include "hypervisor/hypervisor_ops.h"
#include "lib/cleanup.h"

/* A kind has a client, or an obstacle: the sentence that says why its drives cannot be resized. */
static const struct {
    const struct hypervisor_ops *ops;
    const char *obstacle;
} kinds[HYPERVISOR_KINDS] = {
    [HYPERVISOR_UNKNOWN] = {.obstacle = "it is not known which VMM this is"},
    [HYPERVISOR_QEMU] = {.ops = &hypervisor_qemu_ops},
    [HYPERVISOR_CLOUD_HYPERVISOR] = {.ops = &hypervisor_cloud_hypervisor_ops},
    [HYPERVISOR_FIRECRACKER] = {.ops = &hypervisor_firecracker_ops},
    [HYPERVISOR_DRAGONBALL] = {.obstacle = "Dragonball runs inside the shim and has no control "
                                           "socket: its drives keep their size until the pod is "
                                           "started anew"},
    [HYPERVISOR_STRATOVIRT] = {.obstacle = "StratoVirt has one monitor, which the shim holds: its "
                                           "drives keep their size until the pod is started anew"},
    [HYPERVISOR_OPENVMM] = {.obstacle = "OpenVMM has no known call that resizes a drive: its "
                                        "drives keep their size until the pod is started anew"},
    [HYPERVISOR_REMOTE] = {.obstacle = "the VM runs on another machine, where no device of this "
                                       "one is attached to it"},
};

static void call_stop(struct hypervisor_call *call)
{
    if (call->stopped)
        return;
    call->stopped = true;
    if (call->ops)
        call->ops->stop(call);
}

void hypervisor_call_complete(struct hypervisor_call *call, const struct hypervisor_reply *reply)
{
    struct hypervisor_reply copy = *reply; /* `done` may free the call that holds the reply */

    call_stop(call);
    if (copy.outcome == HYPERVISOR_DONE && call->paused.text[0]) {
        copy.outcome = HYPERVISOR_PAUSED;
        copy.error = call->paused;
    }
    copy.error.code = (int)copy.outcome;
    call->done(call, &copy, call->userdata);
}

static void on_deferred(struct loop_timer *timer)
{
    struct hypervisor_call *call = container_of(timer, struct hypervisor_call, deferred);

    hypervisor_call_complete(call, &call->reply);
}

bool hypervisor_has_client(enum hypervisor_kind kind)
{
    return kinds[kind].ops;
}

/* Why this VMM must not be asked; NULL: it may be. */
static const char *obstacle_to(const struct hypervisor_call *call)
{
    if (call->request.act == HYPERVISOR_DESCRIBE &&
        hypervisor_guest_source(call->kind) != HYPERVISOR_GUEST_BY_CALL)
        return "this VMM is not asked what guest it runs";
    if (call->ops)
        return call->request.act == HYPERVISOR_RESIZE ? call->request.forbidden : NULL;
    return kinds[call->kind].obstacle ? kinds[call->kind].obstacle
                                      : "crustd has no client for this kind of VMM";
}

/* Starts the conversation, or prepares the reply if none is needed. */
static void call_start(struct hypervisor_call *call)
{
    struct hypervisor_reply *reply = &call->reply;
    const char *obstacle = obstacle_to(call);
    int r;

    if (obstacle) {
        reply->outcome = HYPERVISOR_UNSUPPORTED;
        (void)error_set(&reply->error, 0, "%s", obstacle);
    } else if (!call->request.control_socket) {
        reply->outcome = HYPERVISOR_MONITOR_MISSING;
        (void)error_set(&reply->error, 0, "the VMM has no control socket that may be used");
    } else {
        r = call->ops->start(call);
        if (r == 0)
            return;
        reply->outcome = HYPERVISOR_UNREACHABLE;
        (void)error_set_errno(&reply->error, r, "cannot talk to the VMM");
    }
    loop_timer_start(call->loop, &call->deferred, 0, on_deferred);
}

static int copy_text(const char *text, const char **ret_copy)
{
    *ret_copy = text ? strdup(text) : NULL;
    return text && !*ret_copy ? -ENOMEM : 0;
}

int hypervisor_call_new(struct loop *loop, enum hypervisor_kind kind,
                        const struct hypervisor_request *request, hypervisor_done *done,
                        void *userdata, struct hypervisor_call **ret_call)
{
    const struct hypervisor_ops *ops = kinds[kind].ops;
    struct hypervisor_call *call = calloc(1, ops ? ops->size : sizeof(*call));
    int r, s, t;

    if (!call)
        return -ENOMEM;
    call->loop = loop;
    call->kind = kind;
    call->request = *request;
    call->done = done;
    call->userdata = userdata;
    r = copy_text(request->control_socket, &call->request.control_socket);
    s = copy_text(request->recorded_drive, &call->request.recorded_drive);
    t = copy_text(request->sandbox_id, &call->request.sandbox_id);
    if (r < 0 || s < 0 || t < 0) {
        (void)hypervisor_call_free(call);
        return -ENOMEM;
    }
    call->ops = ops;
    call_start(call);
    *ret_call = call;
    return 0;
}

struct hypervisor_call *hypervisor_call_free(struct hypervisor_call *call)
{
    if (!call)
        return NULL;
    call_stop(call);
    loop_timer_stop(&call->deferred);
    free((void *)(uintptr_t)call->request.control_socket);
    free((void *)(uintptr_t)call->request.recorded_drive);
    free((void *)(uintptr_t)call->request.sandbox_id);
    free(call);
    return NULL;
}
