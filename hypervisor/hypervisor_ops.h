/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor_ops.h - the interface that each kind of VMM implements. Private to hypervisor/.
 *
 * A kind embeds struct hypervisor_call as the first member of its own state. `start` begins the
 * conversation and must not complete the call. Later the kind calls hypervisor_call_complete()
 * exactly once, as the last thing it does with the call, because `done` may free it.
 */
#pragma once

#include <stddef.h>

#include "hypervisor/drive.h"
#include "hypervisor/hypervisor.h"

struct hypervisor_ops {
    size_t size; /* of the kind's state, including struct hypervisor_call; allocated zeroed */
    int (*start)(struct hypervisor_call *call); /* 0, or -errno, which becomes UNREACHABLE */
    /* Ends the conversation and releases everything but the call. Called once, also after a failed
     * start. */
    void (*stop)(struct hypervisor_call *call);
};

struct hypervisor_call {
    struct loop *loop;
    const struct hypervisor_ops *ops; /* NULL: this kind has no client */
    enum hypervisor_kind kind;
    struct hypervisor_request request; /* its strings are owned */
    hypervisor_done *done;
    void *userdata;
    bool stopped;
    struct error paused;        /* why the VM does not run; "": it does, or that is not known */
    struct loop_timer deferred; /* delivers a reply that was known before the loop ran */
    struct hypervisor_reply reply;
};

void hypervisor_call_complete(struct hypervisor_call *call, const struct hypervisor_reply *reply);

extern const struct hypervisor_ops hypervisor_qemu_ops;
extern const struct hypervisor_ops hypervisor_cloud_hypervisor_ops;
extern const struct hypervisor_ops hypervisor_firecracker_ops;

/* ---- drive ops ------------------------------------------------------------------------------ */

/* What a kind of VMM implements so that drives can be attached.
 *
 * A kind embeds struct hypervisor_drive_call as the first member of its own state. `start` begins
 * the conversation and must not complete the call. Later the kind calls hypervisor_drive_complete()
 * exactly once, as the last thing it does with the call, because `done` may free it.
 */

struct hypervisor_drive_ops {
    struct hypervisor_drive_traits traits;
    size_t size; /* of the kind's state, including the call; allocated zeroed */
    int (*start)(struct hypervisor_drive_call *call); /* 0, or -errno, which becomes UNREACHABLE */
    void (*stop)(struct hypervisor_drive_call *call); /* ends the conversation; keeps entries */
    void (*done)(struct hypervisor_drive_call *call); /* releases the entries */
};

struct hypervisor_drive_call {
    struct loop *loop;
    const struct hypervisor_drive_ops *ops;  /* NULL: this kind has no client */
    struct hypervisor_drive_request request; /* its strings and descriptor are owned */
    hypervisor_drive_done *done;
    void *userdata;
    bool stopped;
    struct loop_timer deferred; /* delivers a reply that was known before the loop ran */
    struct hypervisor_drive_reply reply;
};

void hypervisor_drive_complete(struct hypervisor_drive_call *call,
                               const struct hypervisor_drive_reply *reply);

extern const struct hypervisor_drive_ops hypervisor_drive_qemu_ops;
extern const struct hypervisor_drive_ops hypervisor_drive_cloud_hypervisor_ops;
extern const struct hypervisor_drive_ops hypervisor_drive_firecracker_ops;
