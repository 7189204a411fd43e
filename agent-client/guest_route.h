/* SPDX-License-Identifier: Apache-2.0 */
/* guest_route.h - the routes to a volume's guest: which exist, which is tried next, and what an
 * answer on one of them means for the others. Pure.
 *
 * Routes are tried in the order of agent.routes:
 *
 *     companion   crust-guest-agent in the guest, by the agent's address with a port of its own
 *     agent       kata-agent, by the guest's path of the volume
 *     shim        the same agent by way of the sandbox's shim, which may reach it where nobody else
 *                 does; Go's knows the guest's path by itself
 *     helper      a program that crustd brings into the guest, by kata-agent
 *
 * A route that was found not to work in a sandbox is skipped, if the caller says so. If no route
 * works, the most specific reason is reported: "it failed", with the agent's text, before "its
 * policy forbids", that before "it has no such call", that before "it failed without a text", and
 * that before "no answer".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent-client/agent_client.h"
#include "model/reason.h"
#include "model/route.h"

/* What is known of a volume's guest. Texts are borrowed; "" is unknown. */
struct guest_target {
    const char *agent_address;
    const char *guest_path; /* a mount point, or a disk's address: pci:02/01, scsi:0:1 */
    uint32_t companion_port;
    bool has_shim;   /* a shim that can be told of this volume */
    bool has_helper; /* a helper may be brought into the guest for this volume */
};

enum { GUEST_ADDRESS_BYTES = 512 };

struct guest_walk {
    enum guest_route order[GUEST_ROUTES]; /* ROUTE_NONE after the last */
    unsigned next;
    enum guest_route route;            /* the one being tried */
    char address[GUEST_ADDRESS_BYTES]; /* of the companion or the agent, on that route */
    bool agent_is_silent;              /* kata-agent was called in this walk and did not answer */
    enum volume_reason inability[GUEST_ROUTES]; /* found before; NONE: to be tried */
    /* The most specific reason why a route failed, and the helper's own. */
    enum volume_reason reason, helper_reason;
    unsigned telling; /* how specific `reason` is */
    struct error error, helper_error;
};

/* inability: NULL tries all routes. */
void guest_walk_begin(struct guest_walk *walk, const enum guest_route order[static GUEST_ROUTES],
                      const enum volume_reason *inability);

/* Goes on to the next route worth trying, and its address. false: there is none left. */
bool guest_walk_next(struct guest_walk *walk, const struct guest_target *target);

/* The number of parts into which the remaining time is divided, so that a silent route leaves time
 * for those after it. A helper has its own time. */
unsigned guest_walk_parts(const struct guest_walk *walk, const struct guest_target *target);

/* This route failed. is_explained: `error` is the agent's own text. */
void guest_walk_note(struct guest_walk *walk, enum volume_reason reason, bool is_explained,
                     const struct error *error);

/* Nothing is left to try: the reason that is reported. */
void guest_walk_conclude(struct guest_walk *walk);

/* The meaning of an answer to a resize: whether it ends the walk, because no other route could do
 * better; the ability that the route has proved, or NULL; and the reason that is reported. */
bool guest_route_ends_resize(enum volume_reason reason);
const char *guest_route_ability(enum agent_outcome outcome);
enum volume_reason guest_route_reason(enum agent_outcome outcome);
