/* SPDX-License-Identifier: Apache-2.0 */
/* act.h - one step on a VMM or a guest, from its decision to its recorded result.
 *
 *   decided in a turn → committed with its intent → started → answered → recorded in a later turn
 *
 * An act holds its sandbox's lane all that time. It changes nothing but the world: what it found
 * out is a fact for the next turn. Every act may be repeated safely, so being killed anywhere costs
 * nothing but the repetition.
 */
#pragma once

#include "agent-client/agent_client.h"
#include "agent-client/shim_client.h"
#include "hypervisor/hypervisor.h"
#include "lib/http_exchange.h"
#include "lib/slow_write.h"
#include "reconciler/core/internal.h"
#include "reconciler/decide/decide.h"

struct act {
    struct act *next;
    struct reconciler *reconciler;
    enum decide_action action;
    uint64_t deadline_ns; /* CLOCK_BOOTTIME, for all of its calls together */

    struct hypervisor_call *hypervisor;
    struct error others_forbid; /* why drives of other volumes must keep their size; "" */
    struct agent_call *agent;
    struct shim_call *shim;
    struct helper_call *helper;
    struct http_exchange *asking; /* the shim, where the agent listens */
    struct slow_write *rescan;
    struct store_disk disk; /* to be rescanned */

    /* Which way into the guest is being tried, and what the ways before it came to. */
    enum config_route route;
    unsigned route_index;
    char address[STORE_ADDRESS_BYTES];
    enum volume_reason helper_reason; /* why the helper came to nothing; NONE: it did not */
    struct error helper_error;
    bool agent_is_silent; /* it was called in this act and did not answer */
    bool address_learned; /* the shim said where the agent listens */

    /* What came of it. */
    enum volume_reason reason;
    struct error error;
    char drive_id[STORE_NAME_BYTES];
    char guest_address[STORE_NAME_BYTES]; /* pci:…, scsi:…; "" not learned */
    uint64_t hypervisor_bytes;
    enum hypervisor_list list;
    enum volume_reason resize_reason; /* of a query: why a resize would fail */
    struct error doubt;    /* why it is not known which of the VMM's drives it is; "" it is */
    bool others_refreshed; /* the VMM has read the sizes of other drives again as well */
    char vmm_version[HYPERVISOR_VERSION_BYTES];
    uint64_t guest_synced_bytes;
    uint64_t guest_bytes;
    struct agent_stats stats;          /* has_bytes false: not asked, or not said */
    const char *ability[STORE_ROUTES]; /* NULL: nothing learned */

    /* As it was when this was decided. Large, and last: it is copied into a new act and need not be
     * cleared before. */
    struct store_volume volume;
};

/* act_hypervisor.c, act_guest.c, act_rescan.c: start; end by act_finish(), never from within. */
int act_hypervisor_start(struct act *act);
int act_guest_start(struct act *act);
int act_rescan_start(struct act *act);
int act_hypervisor_record(struct act *act);
int act_guest_record(struct act *act);
int act_rescan_record(struct act *act);

/* act_shim.c: has the shim say where the agent listens, then goes on. 0 or -errno. */
int act_shim_ask(struct act *act);
void act_guest_go_on(struct act *act);

/* Whether its guest path is a path, and not a disk's address. */
bool act_knows_mount_point(const struct act *act);

/* Whether the sandbox has a shim that can be told of this volume; then, to have it called. */
bool act_shim_is_there(const struct act *act);
int act_shim_call(struct act *act, enum agent_act what, uint64_t deadline_ns, shim_done *done);

/* act_guest.c: whether the sandbox has such a way for this volume, and the agent's address on it.
 */
bool act_guest_find_way(const struct act *act, enum config_route route,
                        char ret_address[static STORE_ADDRESS_BYTES]);
/* A way came to nothing for this reason: kept if it tells more than those of the ways before. */
void act_guest_note(struct act *act, enum agent_outcome outcome, const struct error *error);
void act_guest_note_reason(struct act *act, enum volume_reason reason, const struct error *error);

/* The answer is in: its result waits for the next turn. */
void act_finish(struct act *act);

/* What is left of its time, in nanoseconds; at least one. */
uint64_t act_time_left(const struct act *act);
