/* SPDX-License-Identifier: Apache-2.0 */
/* act_guest.c - having the guest grow its file system, by the first way that is able to.
 *
 * Ways are tried in the order of agent.routes. One that turned out unable (no such call there, or
 * its policy forbids) is remembered for the sandbox and skipped from then on; one that cannot be
 * reached is tried again the next time. Where no way works, the most telling reason is reported:
 * that a policy forbids tells more than that a call is missing, that more than that something
 * failed without a word, and that more than that nobody answered.
 *
 * The companion and the agent are called by the guest's path of the volume at the agent's address.
 * A sandbox whose records do not say where its agent listens is asked itself (act_shim.c). The shim
 * calls the same agent in its own way: it may reach it where nobody else does, and Go's knows the
 * guest's path by itself.
 *
 * Where nothing says at which path the guest has mounted the volume, the VMM may have said at which
 * address the guest has its disk: only the companion finds the file system by that.
 *
 * After a growth the file system's size is asked for on the same way: a guest that answers has
 * verified it, one that does not leaves it unverified.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/log.h"
#include "reconciler/act/act.h"

static const enum volume_reason reasons[AGENT_OUTCOMES] = {
    [AGENT_DONE] = REASON_NONE,
    [AGENT_UNREACHABLE] = REASON_AGENT_UNREACHABLE,
    [AGENT_UNSUPPORTED] = REASON_AGENT_UNSUPPORTED,
    [AGENT_DENIED] = REASON_AGENT_DENIED,
    [AGENT_LAYER] = REASON_GUEST_LAYER_UNSUPPORTED,
    [AGENT_FAILED] = REASON_AGENT_FAILED,
    [AGENT_UNTOLD] = REASON_AGENT_FAILED,
};

static enum store_route ability_of(enum config_route route)
{
    return route == ROUTE_COMPANION ? STORE_ROUTE_COMPANION
           : route == ROUTE_SHIM    ? STORE_ROUTE_SHIM
           : route == ROUTE_HELPER  ? STORE_ROUTE_HELPER
                                    : STORE_ROUTE_AGENT;
}

/* Of the reasons that leave other ways to be tried. */
static unsigned telling(enum volume_reason reason)
{
    switch ((int)reason) {
    case REASON_NONE:
        return 0;
    case REASON_GUEST_PATH_UNKNOWN:
    case REASON_AGENT_UNREACHABLE:
        return 1;
    case REASON_AGENT_FAILED:
        return 2;
    case REASON_AGENT_UNSUPPORTED:
        return 3;
    default:
        return 4;
    }
}

void act_guest_note_reason(struct act *act, enum volume_reason reason, const struct error *error)
{
    if (telling(reason) < telling(act->reason))
        return;
    act->reason = reason;
    act->error = *error;
}

void act_guest_note(struct act *act, enum agent_outcome outcome, const struct error *error)
{
    act_guest_note_reason(act, reasons[outcome], error);
}

/* ---- the ways ---------------------------------------------------------------------------- */

bool act_knows_mount_point(const struct act *act)
{
    return act->volume.guest_path[0] == '/';
}

bool act_guest_find_way(const struct act *act, enum config_route route,
                        char ret_address[static STORE_ADDRESS_BYTES])
{
    const struct store_volume *volume = &act->volume;
    bool has_companion;

    if (route == ROUTE_SHIM)
        return act_shim_is_there(act);
    /* The helper is the agent's to run. */
    if (route == ROUTE_HELPER)
        return !act->agent_is_silent && helper_is_possible(act->reconciler, &act->volume);
    if (route == ROUTE_NONE || !volume->agent_address[0] || !volume->guest_path[0])
        return false;
    has_companion =
        agent_companion_address(volume->agent_address, act->reconciler->config.agent.companion_port,
                                ret_address, STORE_ADDRESS_BYTES) == 0;
    if (route == ROUTE_COMPANION)
        return has_companion;
    snprintf(ret_address, STORE_ADDRESS_BYTES, "%s", volume->agent_address);
    /* Kata's agent knows no disks; who listens where there are no ports may be either. */
    return act_knows_mount_point(act) || !has_companion;
}

/* Why it was found unable before; NONE: it was not. */
static enum volume_reason known_inability(const struct act *act, enum config_route route)
{
    const char *ability = act->volume.ability[ability_of(route)];

    return strcmp(ability, "able") == 0 ? REASON_NONE : reason_from_name(ability);
}

/* The next way worth trying. */
static bool next_route(struct act *act)
{
    while (act->route_index < CONFIG_ROUTES) {
        enum config_route route = act->reconciler->config.agent.routes[act->route_index++];
        enum volume_reason reason;
        struct error error;

        if (!act_guest_find_way(act, route, act->address))
            continue;
        reason = known_inability(act, route);
        if (reason == REASON_NONE) {
            act->route = route;
            return true;
        }
        (void)error_set(&error, 0, "the sandbox was found unable before: %s", reason_name(reason));
        act_guest_note_reason(act, reason, &error);
    }
    return false;
}

/* One silent way must not use up the time of those after it. A helper has a time of its own. */
static uint64_t time_for_call(const struct act *act)
{
    const enum config_route *routes = act->reconciler->config.agent.routes;
    char address[STORE_ADDRESS_BYTES];
    unsigned left = 1;

    for (unsigned i = act->route_index; i < CONFIG_ROUTES; i++)
        left += routes[i] != ROUTE_HELPER && act_guest_find_way(act, routes[i], address) &&
                known_inability(act, routes[i]) == REASON_NONE;
    return act_time_left(act) / left + 1;
}

/* ---- the calls --------------------------------------------------------------------------- */

static void on_grown_by_shim(struct shim_call *call, const struct agent_reply *reply,
                             void *userdata);
static void on_grown(struct agent_call *call, const struct agent_reply *reply, void *userdata);
static void on_stats(struct agent_call *call, const struct agent_reply *reply, void *userdata);
static void on_grown_by_helper(const struct helper_reply *reply, void *userdata);

static int call_agent(struct act *act, enum agent_act what, agent_done *done)
{
    struct agent_request request = {
        .act = what,
        .root = act->reconciler->root,
        .address = act->address,
        .volume_path = act->volume.guest_path,
        .bytes = act->volume.device_bytes,
        .deadline_ns = time_for_call(act),
    };

    return agent_call_new(act->reconciler->loop, &request, done, act, &act->agent);
}

/* guest.helpers bounds helpers already, so an act that waits for one frees its slot: other VMMs can
 * be told meanwhile. */
static int call_helper(struct act *act)
{
    int r = helper_call_new(act->reconciler, &act->volume, HELPER_GROW, 0, on_grown_by_helper, act,
                            &act->helper);

    if (r == 0)
        lanes_rest(&act->reconciler->lanes, act->volume.sandbox_ref);
    return r;
}

static int call_route(struct act *act)
{
    if (act->route == ROUTE_HELPER)
        return call_helper(act);
    return act->route == ROUTE_SHIM
               ? act_shim_call(act, AGENT_GROW, time_for_call(act), on_grown_by_shim)
               : call_agent(act, AGENT_GROW, on_grown);
}

static void try_next_route(struct act *act)
{
    struct error error;

    while (next_route(act)) {
        int r = call_route(act);

        if (r == 0)
            return;
        (void)error_set_errno(&error, r, "cannot call the agent");
        act_guest_note_reason(act, REASON_AGENT_UNREACHABLE, &error);
    }
    /* What the others are unable to for ever must not keep the helper from its next attempt. */
    if (act->helper_reason != REASON_NONE && reason_heals(act->helper_reason)) {
        act->reason = act->helper_reason;
        act->error = act->helper_error;
    }
    if (act->reason == REASON_NONE) {
        act->reason = REASON_AGENT_UNREACHABLE;
        (void)error_set(&act->error, 0, "agent.routes has no way to this agent");
    }
    act_finish(act);
}

/* The file system has grown; what came of asking for its size decides whether that is verified. */
static void finish_grown(struct act *act, enum agent_outcome stats_outcome,
                         const struct agent_reply *reply)
{
    bool verified = stats_outcome == AGENT_DONE && reply->stats.has_bytes;

    act->reason = verified ? REASON_NONE : REASON_UNVERIFIED;
    act->error = verified ? (struct error){0} : reply->error;
    act->guest_synced_bytes = act->volume.device_bytes;
    act->guest_bytes = verified ? reply->stats.total : 0;
    if (verified)
        act->stats = reply->stats;
    act_finish(act);
}

static void on_stats(struct agent_call *call, const struct agent_reply *reply, void *userdata)
{
    struct act *act = userdata;

    finish_grown(act, reply->outcome, reply);
    act->agent = agent_call_free(call);
}

/* What this way turned out to be able to do. A failure without a word says nothing of that. */
static void learn_ability(struct act *act, enum agent_outcome outcome)
{
    enum store_route way = ability_of(act->route);

    if (outcome == AGENT_UNSUPPORTED || outcome == AGENT_DENIED)
        act->ability[way] = reason_name(reasons[outcome]);
    else if (outcome != AGENT_UNREACHABLE && outcome != AGENT_UNTOLD)
        act->ability[way] = "able";
}

/* Whether another way is to be tried. An agent that can, and failed, ends it. */
static bool take_reply(struct act *act, const struct agent_reply *reply)
{
    enum volume_reason reason = reasons[reply->outcome];

    learn_ability(act, reply->outcome);
    act->agent_is_silent |= act->route == ROUTE_AGENT && reply->outcome == AGENT_UNREACHABLE;
    if (reply->outcome == AGENT_DONE) {
        finish_grown(act, reply->stats_outcome, reply);
        return false;
    }
    if (reply->outcome == AGENT_LAYER || reply->outcome == AGENT_FAILED) {
        act->reason = reason;
        act->error = reply->error;
        act_finish(act);
        return false;
    }
    act_guest_note_reason(act, reason, &reply->error);
    return true;
}

/* Some servers take one request per connection. */
static void ask_stats_again(struct act *act)
{
    learn_ability(act, AGENT_DONE);
    if (call_agent(act, AGENT_STATS, on_stats) < 0)
        finish_grown(act, AGENT_UNREACHABLE, &(struct agent_reply){0});
}

static void on_grown(struct agent_call *call, const struct agent_reply *reply, void *userdata)
{
    struct act *act = userdata;
    bool ask_again = reply->outcome == AGENT_DONE && reply->stats_outcome == AGENT_UNREACHABLE;
    bool go_on = !ask_again && take_reply(act, reply);

    act->agent = agent_call_free(call);
    if (ask_again)
        ask_stats_again(act);
    else if (go_on)
        try_next_route(act);
}

static void on_grown_by_shim(struct shim_call *call, const struct agent_reply *reply,
                             void *userdata)
{
    struct act *act = userdata;
    bool go_on = take_reply(act, reply);

    act->shim = shim_call_free(call);
    if (go_on)
        try_next_route(act);
}

/* What is wrong with the file system itself, no other way makes better. */
static bool ends_with(enum volume_reason reason)
{
    return reason == REASON_AGENT_FAILED || reason == REASON_FILE_SYSTEM_NOT_GROWABLE ||
           reason == REASON_GUEST_LAYER_UNSUPPORTED || reason == REASON_GUEST_PATH_UNKNOWN;
}

static void on_grown_by_helper(const struct helper_reply *reply, void *userdata)
{
    struct act *act = userdata;
    const struct agent_reply grown = {.stats = reply->stats, .error = reply->error};

    act->helper = NULL;
    if (reply->reason == REASON_NONE) {
        finish_grown(act, AGENT_DONE, &grown);
    } else if (ends_with(reply->reason)) {
        act->reason = reply->reason;
        act->error = reply->error;
        act_finish(act);
    } else {
        act->helper_reason = reply->reason;
        act->helper_error = reply->error;
        act_guest_note_reason(act, reply->reason, &reply->error);
        try_next_route(act);
    }
}

int act_guest_start(struct act *act)
{
    bool has_use = act->volume.guest_path[0] || helpers_are_on(act->reconciler);

    if (has_use && !act->volume.agent_address[0])
        return act_shim_ask(act);
    act_guest_go_on(act);
    return 0;
}

void act_guest_go_on(struct act *act)
{
    struct error error;

    if (!act_knows_mount_point(act)) {
        (void)error_set(&error, 0, "nothing says where the guest has mounted this volume");
        act_guest_note_reason(act, REASON_GUEST_PATH_UNKNOWN, &error);
    }
    try_next_route(act);
}

/* What verified the growth says how full the file system is, too. */
static int record_stats(const struct act *act)
{
    const struct store_guest_stats stats = {
        .mapping_id = act->volume.mapping_id,
        .has_bytes = true,
        .total = act->stats.total,
        .used = act->stats.used,
        .available = act->stats.available,
        .abnormal = act->stats.abnormal,
        .message = act->stats.condition,
    };
    bool changed;

    return act->stats.has_bytes ? store_put_guest_stats(act->reconciler->store,
                                                        act->volume.volume_id, &stats, &changed)
                                : 0;
}

int act_guest_record(struct act *act)
{
    struct store *store = act->reconciler->store;
    struct store_guest_result result = {
        .volume_id = act->volume.volume_id,
        .reason = act->reason,
        .error = act->error.text,
        .synced_bytes = act->guest_synced_bytes,
        .guest_bytes = act->guest_bytes,
    };
    int r = 0;

    if (act->address_learned)
        r = store_set_agent_address(store, act->volume.sandbox_ref, act->volume.agent_address);
    for (unsigned way = 0; r == 0 && way < STORE_ROUTES; way++)
        r = act->ability[way]
                ? store_set_ability(store, act->volume.sandbox_ref, way, act->ability[way])
                : 0;
    if (r == 0)
        r = store_put_guest_result(store, &result);
    return r < 0 ? r : record_stats(act);
}
