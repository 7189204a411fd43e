/* SPDX-License-Identifier: Apache-2.0 */
/* guest_route.c - see guest_route.h. */
#include "agent-client/guest_route.h"

#include <stdio.h>
#include <string.h>

#include "agent-client/agent_address.h"

void guest_walk_begin(struct guest_walk *walk, const enum guest_route order[static GUEST_ROUTES],
                      const enum volume_reason *inability)
{
    *walk = (struct guest_walk){0};
    memcpy(walk->order, order, sizeof(walk->order));
    if (inability)
        memcpy(walk->inability, inability, sizeof(walk->inability));
}

/* ---- which there are ---- */

/* kata-agent knows no disks. On an address without ports either agent may listen. */
static bool find_agent(const struct guest_target *target, enum guest_route route,
                       char ret_address[static GUEST_ADDRESS_BYTES])
{
    bool has_companion;

    if (!target->agent_address[0] || !target->guest_path[0])
        return false;
    has_companion = agent_companion_address(target->agent_address, target->companion_port,
                                            ret_address, GUEST_ADDRESS_BYTES);
    if (route == ROUTE_COMPANION)
        return has_companion;
    (void)snprintf(ret_address, GUEST_ADDRESS_BYTES, "%s", target->agent_address);
    return target->guest_path[0] == '/' || !has_companion;
}

static bool find_route(const struct guest_walk *walk, const struct guest_target *target,
                       enum guest_route route, char ret_address[static GUEST_ADDRESS_BYTES])
{
    switch (route) {
    case ROUTE_SHIM:
        return target->has_shim;
    case ROUTE_HELPER:
        return !walk->agent_is_silent && target->has_helper; /* the helper is the agent's to run */
    case ROUTE_COMPANION:
    case ROUTE_AGENT:
        return find_agent(target, route, ret_address);
    case ROUTE_NONE:
    case GUEST_ROUTES:
        break;
    }
    return false;
}

bool guest_walk_next(struct guest_walk *walk, const struct guest_target *target)
{
    struct error error;

    walk->route = ROUTE_NONE; /* what is noted from here on is none of its words */
    while (walk->next < GUEST_ROUTES) {
        enum guest_route route = walk->order[walk->next++];

        if (!find_route(walk, target, route, walk->address))
            continue;
        if (walk->inability[route] == REASON_NONE) {
            walk->route = route;
            return true;
        }
        (void)error_set(&error, 0, "the sandbox was found unable before: %s",
                        reason_name(walk->inability[route]));
        guest_walk_note(walk, walk->inability[route], true, &error);
    }
    return false;
}

unsigned guest_walk_parts(const struct guest_walk *walk, const struct guest_target *target)
{
    char address[GUEST_ADDRESS_BYTES];
    unsigned parts = 1;

    for (unsigned i = walk->next; i < GUEST_ROUTES; i++) {
        enum guest_route route = walk->order[i];

        parts += route != ROUTE_HELPER && walk->inability[route] == REASON_NONE &&
                 find_route(walk, target, route, address);
    }
    return parts;
}

/* ---- what came of them ---- */

/* Of the reasons that leave other routes to be tried. A failure that an agent has explained is
 * about the file system itself, so no reason of another route outweighs it. */
enum { TELLING_MOST = 5 };

static unsigned find_telling(enum volume_reason reason, bool is_explained)
{
    switch ((int)reason) {
    case REASON_NONE:
        return 0;
    case REASON_GUEST_PATH_UNKNOWN:
    case REASON_AGENT_UNREACHABLE:
        return 1;
    case REASON_AGENT_FAILED:
        return is_explained ? TELLING_MOST : 2;
    case REASON_AGENT_UNSUPPORTED:
        return 3;
    default:
        return 4;
    }
}

void guest_walk_note(struct guest_walk *walk, enum volume_reason reason, bool is_explained,
                     const struct error *error)
{
    unsigned telling = find_telling(reason, is_explained);

    walk->agent_is_silent |= walk->route == ROUTE_AGENT && reason == REASON_AGENT_UNREACHABLE;
    if (walk->route == ROUTE_HELPER) {
        walk->helper_reason = reason;
        walk->helper_error = *error;
    }
    if (telling < walk->telling)
        return;
    walk->telling = telling;
    walk->reason = reason;
    walk->error = *error;
}

/* Another route's permanent reason must not keep the helper from its next attempt. */
void guest_walk_conclude(struct guest_walk *walk)
{
    if (walk->helper_reason != REASON_NONE &&
        reason_heals(walk->helper_reason, STATE_BLOCK_GROWN) && walk->telling < TELLING_MOST) {
        walk->reason = walk->helper_reason;
        walk->error = walk->helper_error;
    }
    if (walk->reason != REASON_NONE)
        return;
    walk->reason = REASON_AGENT_UNREACHABLE;
    (void)error_set(&walk->error, 0, "agent.routes has no route to this agent");
}

/* ---- what an answer means ---- */

enum volume_reason guest_route_reason(enum agent_outcome outcome)
{
    static const enum volume_reason reasons[AGENT_OUTCOMES] = {
        [AGENT_DONE] = REASON_NONE,
        [AGENT_UNREACHABLE] = REASON_AGENT_UNREACHABLE,
        [AGENT_UNSUPPORTED] = REASON_AGENT_UNSUPPORTED,
        [AGENT_DENIED] = REASON_AGENT_DENIED,
        [AGENT_LAYER] = REASON_GUEST_LAYER_UNSUPPORTED,
        [AGENT_NOT_GROWABLE] = REASON_FILE_SYSTEM_NOT_GROWABLE,
        [AGENT_READ_ONLY] = REASON_READ_ONLY,
        [AGENT_SHUT_DOWN] = REASON_FILE_SYSTEM_SHUT_DOWN,
        [AGENT_LIMIT] = REASON_FILE_SYSTEM_LIMIT,
        [AGENT_GROWING] = REASON_GROWING,
        [AGENT_FAILED] = REASON_AGENT_FAILED,
        [AGENT_UNEXPLAINED] = REASON_AGENT_FAILED,
    };

    return reasons[outcome];
}

/* A failure without a text says nothing about the route's ability. */
const char *guest_route_ability(enum agent_outcome outcome)
{
    switch (outcome) {
    case AGENT_UNSUPPORTED:
    case AGENT_DENIED:
        return reason_name(guest_route_reason(outcome));
    case AGENT_DONE:
    case AGENT_LAYER:
    case AGENT_NOT_GROWABLE:
    case AGENT_READ_ONLY:
    case AGENT_SHUT_DOWN:
    case AGENT_LIMIT:
    case AGENT_GROWING:
    case AGENT_FAILED:
        return ROUTE_ABLE;
    case AGENT_UNREACHABLE:
    case AGENT_UNEXPLAINED:
    case AGENT_OUTCOMES:
        break;
    }
    return NULL;
}

/* No other route can help with a problem of the file system itself. One that failed takes no other
 * away: growing may be repeated, and another program may be able to. */
bool guest_route_ends_resize(enum volume_reason reason)
{
    return reason == REASON_FILE_SYSTEM_NOT_GROWABLE || reason == REASON_READ_ONLY ||
           reason == REASON_FILE_SYSTEM_SHUT_DOWN || reason == REASON_FILE_SYSTEM_LIMIT ||
           reason == REASON_GROWING || reason == REASON_GUEST_LAYER_UNSUPPORTED ||
           reason == REASON_GUEST_PATH_UNKNOWN;
}
