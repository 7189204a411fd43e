/* SPDX-License-Identifier: Apache-2.0 */
/* act.h - one act, and the kinds of them. Private to reconciler/act/. */
#pragma once

#include "agent-client/guest_call.h"
#include "hypervisor/hypervisor.h"
#include "lib/workers.h"
#include "reconciler/act/actor.h"
#include "store/store.h"

struct actor {
    const struct context *context;
    struct slots slots;
    struct act *acts; /* in the order in which they were decided */
};

enum act_step {
    ACT_DECIDED, /* in this pass: it starts once that is committed */
    ACT_RUNNING,
    ACT_FINISHED, /* the next pass records its result */
};

/* The results of a kind of act, and its calls. */
struct act_vmm {
    struct hypervisor_call *call;
    char drive_id[STORE_NAME_BYTES];
    char guest_address[STORE_NAME_BYTES]; /* pci:…, scsi:…; "" not learned */
    uint64_t bytes;
    enum hypervisor_list list;
    enum volume_reason resize_reason; /* of a query: why a resize would fail */
    char version[HYPERVISOR_VERSION_BYTES];
};

struct act_guest {
    struct guest_call *call;
    struct guest_reply reply;
    char shim_socket[GUEST_ADDRESS_BYTES];
};

struct act_disk {
    struct job write;
    int rescan; /* the attribute of sysfs that is written to; -1 */
    struct store_disk disk;
};

struct act {
    struct act *next;
    struct actor *actor;
    const struct context *context;
    enum decide_action action;
    enum act_step step;
    bool is_ahead;        /* its call reads already, and acts once the intent is committed */
    uint64_t deadline_ns; /* CLOCK_BOOTTIME, for all of its calls together */

    enum volume_reason reason; /* what came of it */
    struct error error;
    union {
        struct act_vmm vmm;
        struct act_guest guest;
        struct act_disk disk;
    };

    /* The volume when this was decided. Large, and last: it is copied into a new act and need not
     * be cleared before. */
    struct store_volume volume;
};

/* The functions of a kind of act. */
struct act_ops {
    /* In the pass that decided it, instead of store_intend() if not NULL. 0 or -errno of the
     * store. */
    int (*intend)(struct act *act);
    /* Ends by act_finish(). -errno: it could not be started. */
    int (*start)(struct act *act);
    /* Records the result. 0 or -errno of the store. */
    int (*record)(struct act *act);
    void (*done)(struct act *act); /* frees what `start` made */
    enum volume_reason unstarted;  /* if it could not be started */
    const char *problem;
};

extern const struct act_ops act_hypervisor_ops, act_guest_ops, act_rescan_ops;

/* act.c: the disk that may be rescanned for the volume now; as store_find_announced(). */
int act_rescan_find(struct store *store, const struct store_volume *volume,
                    struct store_disk *ret_disk);

/* The answer is in: its result waits for the next pass. */
void act_finish(struct act *act, enum volume_reason reason, const struct error *error);

/* The rest of its time, in nanoseconds; at least one. */
uint64_t act_time_left(const struct act *act);

bool act_has_worked(const struct act *act);
