/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor_ops.h - what a kind of VMM brings along. Private to hypervisor/.
 *
 * A kind embeds struct hypervisor_call as the first member of its own state. `start` begins the
 * conversation and must not complete the call; later the kind calls hypervisor_call_complete()
 * exactly once, as the last thing it does with the call, for `done` may free it.
 */
#pragma once

#include <stddef.h>

#include "hypervisor/hypervisor.h"

struct hypervisor_ops {
    size_t size; /* of the kind's state, struct hypervisor_call included; allocated zeroed */
    int (*start)(struct hypervisor_call *call); /* 0 or -errno, which becomes UNREACHABLE */
    /* Ends the conversation and releases everything but the call. Called once, also after a start
     * that failed. */
    void (*stop)(struct hypervisor_call *call);
};

struct hypervisor_call {
    struct loop *loop;
    const struct hypervisor_ops *ops; /* NULL: nothing can be asked */
    enum hypervisor_kind kind;
    struct hypervisor_request request; /* its strings are ours */
    hypervisor_done *done;
    void *userdata;
    bool stopped;
    struct loop_timer deferred; /* delivers a reply that was known before the loop ran */
    struct hypervisor_reply reply;
};

void hypervisor_call_complete(struct hypervisor_call *call, const struct hypervisor_reply *reply);

extern const struct hypervisor_ops hypervisor_qemu_ops;
extern const struct hypervisor_ops hypervisor_cloud_hypervisor_ops;
extern const struct hypervisor_ops hypervisor_firecracker_ops;
