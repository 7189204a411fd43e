/* SPDX-License-Identifier: Apache-2.0 */
/* drive_ops.h - what a kind of VMM implements so that drives can be attached. Private to
 * hypervisor/.
 *
 * A kind embeds struct hypervisor_drive_call as the first member of its own state. `start` begins
 * the conversation and must not complete the call. Later the kind calls hypervisor_drive_complete()
 * exactly once, as the last thing it does with the call, because `done` may free it.
 */
#pragma once

#include "hypervisor/drive.h"

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
