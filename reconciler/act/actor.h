/* SPDX-License-Identifier: Apache-2.0 */
/* actor.h - the actor: carries out what was decided, one act per sandbox, a bounded number at once.
 *
 *   decided in a pass → committed with its intent → started → answered → recorded in a later pass
 *
 * An act is one step on a VMM, a guest or a disk of the host. It holds its sandbox's slot all that
 * time. It changes no record itself: its result is a fact for the next pass. Every act may be
 * repeated safely, so a kill at any moment costs only the repetition.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent-client/guest_call.h"
#include "hypervisor/hypervisor.h"
#include "lib/workers.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/decide/decide.h"
#include "store/store.h"

struct context;

/* ---- slots ---------------------------------------------------------------------------------- */

/* Which volumes may act now: one act per sandbox, and a bound on all of them together.
 *
 * A volume that wants to act either gets its sandbox's slot at once or waits for it. When a slot is
 * free, the next volume is handed out, sandboxes taking turns. A volume that is handed out is
 * decided again, because things may have changed while it waited.
 *
 * An act rests while it waits for something other than its VMM or guest: its sandbox stays taken,
 * and another sandbox may act in its place.
 */

struct sandbox_slot;

struct slots {
    struct sandbox_slot *sandboxes; /* by sandbox_ref: taken, or waited for */
    struct key_queue runnable;      /* sandbox_refs that are free and have volumes waiting */
    unsigned busy;                  /* sandboxes that are taken and do not rest */
    unsigned resting;               /* at most SLOTS_RESTING */
    unsigned parallel;              /* at most so many acts at once */
};

enum { SLOTS_RESTING = 64 };

void slots_init(struct slots *slots, unsigned parallel);
/* Forgets all that wait or act; `parallel` stays. */
void slots_done(struct slots *slots);

/* true: the volume has its sandbox's slot and must give it back; false: it waits. is_first: ahead
 * of those in the same sandbox that are not. */
bool slots_enter(struct slots *slots, int64_t sandbox_ref, int64_t volume_id, bool is_first);
/* Another sandbox may act meanwhile, but this one stays taken until slots_leave(). Not beyond
 * SLOTS_RESTING of them. */
void slots_rest(struct slots *slots, int64_t sandbox_ref);
void slots_leave(struct slots *slots, int64_t sandbox_ref);

/* The next volume to decide again, while there is a slot for it. */
bool slots_next(struct slots *slots, int64_t *ret_volume_id);
/* Whether slots_next() could have one. */
bool slots_have_next(const struct slots *slots);
/* Whether waiting volumes were lost for lack of memory since the last call. */
bool slots_take_loss(struct slots *slots);

/* ---- actor ---------------------------------------------------------------------------------- */

struct actor {
    const struct context *context;
    struct slots slots;
    struct act *acts; /* in the order in which they were decided */
};

struct actor *actor_new(const struct context *context); /* borrowed. NULL: no memory */
struct actor *actor_free(struct actor *actor);          /* returns NULL */

/* ---- within a pass: 0 or -errno of the store, which ends the pass ---- */

/* Records results and frees slots. If the pass is rolled back, the results are lost and the acts
 * repeated. */
int actor_record(struct actor *actor);
/* The volume acts, or waits for its sandbox's slot; nothing happens if it acts already. The intent
 * goes on record, and the act changes something after the commit only. */
int actor_decide(struct actor *actor, const struct store_volume *volume, enum decide_action action);
/* Another action was decided for the volume, in the same pass: an act of it that has not started
 * never will. */
void actor_withdraw(struct actor *actor, int64_t volume_id, enum decide_action action);
/* Ends an act for a binding that the volume no longer has, which could only delay it. */
void actor_cancel_stale(struct actor *actor, const struct store_volume *volume);

/* ---- after it ---- */

void actor_start(struct actor *actor); /* the pass was committed */
void actor_drop(struct actor *actor);  /* it was rolled back */

/* ---- at any time ---- */

/* Decided or running, and not answered yet. */
bool actor_is_acting(const struct actor *actor, int64_t volume_id);
unsigned actor_count(const struct actor *actor); /* of those */
bool actor_has_results(const struct actor *actor);

/* The pause until the next attempt after so many failures in a row, chosen at random. */
uint64_t actor_backoff(uint32_t failures);

/* ---- one act --------------------------------------------------------------------------------- */

enum act_step {
    ACT_DECIDED, /* in this pass: it starts, or goes on from reading, once that is committed */
    ACT_RUNNING,
    ACT_FINISHED, /* the next pass records its result */
};

/* The results of a kind of act, and its calls. */
struct act_vmm {
    struct hypervisor_call *call;
    struct hypervisor_reply reply;
    char guest_address[STORE_NAME_BYTES]; /* pci:…, scsi:…, a path; "" not learned */
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

/* The disk that may be rescanned for the volume now; as store_find_announced(). */
int act_rescan_find(struct store *store, const struct store_volume *volume,
                    struct store_disk *ret_disk);

/* The answer is in: its result waits for the next pass. */
void act_finish(struct act *act, enum volume_reason reason, const struct error *error);

/* The rest of its time, in nanoseconds; at least one. */
uint64_t act_time_left(const struct act *act);

bool act_has_worked(const struct act *act);
