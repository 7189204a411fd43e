/* SPDX-License-Identifier: Apache-2.0 */
/* act_guest.c - having the guest grow its file system, by the first route that can.
 *
 * The routes and their order are agent-client/guest_call.h's. A route that turned out not to work
 * is remembered for the sandbox and skipped from then on; one that could not be reached is tried
 * again the next time.
 */
#include <stddef.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "reconciler/act/act.h"
#include "reconciler/core/context.h"
#include "reconciler/helper/helper.h"
#include "reconciler/helper/targets.h"

static bool is_helper_possible(void *userdata)
{
    const struct act *act = userdata;

    return helper_is_possible(act->context->config, &act->volume);
}

/* guest.helpers bounds helpers already, so other VMMs can be told meanwhile. The helper has a time
 * of its own. */
static int begin_helper(void *userdata, uint64_t deadline_ns, guest_helper_done *done,
                        void *done_userdata, struct helper_call **ret_call)
{
    struct act *act = userdata;
    int r = helper_call_new(act_helpers(act), &act->volume, HELPER_RESIZE, 0, done, done_userdata,
                            ret_call);

    (void)deadline_ns;
    if (r == 0)
        act_rest(act);
    return r;
}

static const struct guest_helper_ops helper_ops = {
    .is_possible = is_helper_possible,
    .begin = begin_helper,
    .free = helper_call_free,
};

static void on_done(struct guest_call *call, const struct guest_reply *reply, void *userdata)
{
    struct act *act = userdata;

    act->guest.reply = *reply;
    act->guest.call = guest_call_free(call);
    act_finish(act, act->guest.reply.reason, &act->guest.reply.error);
}

static int act_guest_start(struct act *act)
{
    const struct config *config = act->context->config;
    struct guest_request request;

    guest_routes_describe(act->context, &act->volume, act->guest.shim_socket, &request);
    request.resizes = true;
    request.asks_address = act->volume.guest_path[0] || config_brings_helpers(config);
    for (enum guest_route route = ROUTE_COMPANION; route < GUEST_ROUTES; route++)
        request.inability[route] = reason_from_name(act->volume.ability[route]);
    request.helper = &helper_ops;
    request.owner = act;
    request.bytes = act->volume.device_bytes;
    request.ends_at = act->deadline_ns;
    return guest_call_new(act->context->loop, &request, on_done, act, &act->guest.call);
}

static int act_guest_intend(struct act *act)
{
    return store_intend(act->context->store, &act->volume, decide_action_name(act->action));
}

/* The answer that verified the resize also has the usage. */
static int record_stats(const struct act *act)
{
    const struct agent_stats *stats = &act->guest.reply.stats;
    const struct store_guest_stats row = {
        .binding_id = act->volume.binding_id,
        .has_bytes = true,
        .total = stats->total,
        .used = stats->used,
        .available = stats->available,
        .abnormal = stats->abnormal,
        .message = stats->condition,
    };
    bool changed;

    return stats->has_bytes
               ? store_put_guest_stats(act->context->store, act->volume.volume_id, &row, &changed)
               : 0;
}

static int record_abilities(const struct act *act)
{
    const struct guest_reply *reply = &act->guest.reply;
    struct store *store = act->context->store;
    int r = 0;

    if (reply->address_learned)
        r = store_set_agent_address(store, act->volume.sandbox_ref, act->volume.agent_address);
    for (enum guest_route route = ROUTE_COMPANION; r == 0 && route < GUEST_ROUTES; route++)
        if (reply->ability[route])
            r = store_set_ability(store, act->volume.sandbox_ref, route, reply->ability[route]);
    return r;
}

static int act_guest_record(struct act *act)
{
    bool has_grown = act->reason == REASON_NONE || act->reason == REASON_UNVERIFIED;
    const struct store_guest_result result = {
        .volume_id = act->volume.volume_id,
        .sandbox_id = act->volume.sandbox_id,
        .device = act->volume.device_name,
        .reason = act->reason,
        .error = act->error.text,
        .synced_bytes = has_grown ? act->volume.device_bytes : 0,
        .guest_bytes = act->guest.reply.stats.has_bytes ? act->guest.reply.stats.total : 0,
    };
    int r = record_abilities(act);

    /* A guest that does not answer any more may be paused, which its VMM knows. */
    if (r == 0 && act->reason == REASON_AGENT_UNREACHABLE &&
        act->volume.guest_reason != REASON_AGENT_UNREACHABLE)
        r = store_want_list(act->context->store, act->volume.volume_id);
    if (r == 0)
        r = store_put_guest_result(act->context->store, &result);
    return r < 0 ? r : record_stats(act);
}

static void act_guest_done(struct act *act)
{
    act->guest.call = guest_call_free(act->guest.call);
}

const struct act_ops act_guest_ops = {
    .intend = act_guest_intend,
    .start = act_guest_start,
    .record = act_guest_record,
    .done = act_guest_done,
    .unstarted = REASON_AGENT_UNREACHABLE,
    .problem = "the call to the agent could not be started",
};
