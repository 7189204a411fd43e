/* SPDX-License-Identifier: Apache-2.0 */
/* guest_call.c - see guest_call.h.
 *
 * report() is the last thing that touches a call: its owner may free it there. A call that ends
 * before guest_call_new() has returned is reported from the loop.
 */
#include "agent-client/guest_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/path.h"
#include "lib/text.h"

enum { ASK_PART = 4 /* of the time: a silent shim must leave the agent some */ };

struct guest_call {
    struct loop *loop;
    struct guest_request request;
    struct guest_walk walk;
    struct agent_call *agent;
    struct shim_call *shim;
    struct helper_call *helper;
    struct http_exchange *asking; /* the shim, where the agent listens */
    struct loop_timer reporting;
    bool beginning;
    struct guest_reply reply;
    guest_done *done;
    void *userdata;
};

static uint64_t time_left(const struct guest_call *call)
{
    uint64_t now = clock_boottime();

    return call->request.ends_at > now ? call->request.ends_at - now : 1;
}

/* ---- the end ---- */

static void report(struct guest_call *call)
{
    call->done(call, &call->reply, call->userdata);
}

static void on_reporting(struct loop_timer *timer)
{
    report(container_of(timer, struct guest_call, reporting));
}

static void finish(struct guest_call *call, enum volume_reason reason, const struct error *error)
{
    call->reply.reason = reason;
    call->reply.error = reason == REASON_NONE ? (struct error){0} : *error;
    if (call->beginning)
        loop_timer_start(call->loop, &call->reporting, 0, on_reporting);
    else
        report(call);
}

static void finish_counted(struct guest_call *call, const struct agent_stats *stats)
{
    call->reply.stats = *stats;
    finish(call, REASON_NONE, NULL);
}

/* The file system has grown; whether its size could be read decides whether that is verified. */
static void finish_resized(struct guest_call *call, bool stats_came,
                           const struct agent_stats *stats, const struct error *error)
{
    bool is_verified = stats_came && stats->has_bytes;

    if (is_verified)
        call->reply.stats = *stats;
    finish(call, is_verified ? REASON_NONE : REASON_UNVERIFIED, error);
}

/* ---- the routes ---- */

static bool has_shim(const struct guest_request *request)
{
    struct stat status;

    return request->shim_volume[0] == '/' &&
           path_stat_in_root(request->root, request->shim_socket, &status) == 0 &&
           S_ISSOCK(status.st_mode);
}

static struct guest_target target_of(const struct guest_call *call)
{
    const struct guest_request *request = &call->request;

    return (struct guest_target){
        .agent_address = request->agent_address,
        .guest_path = request->guest_path,
        .companion_port = request->companion_port,
        .has_shim = has_shim(request),
        .has_helper = request->helper->is_possible(request->owner),
    };
}

static void on_agent(struct agent_call *agent, const struct agent_reply *reply, void *userdata);
static void on_size(struct agent_call *agent, const struct agent_reply *reply, void *userdata);
static void on_shim(struct shim_call *shim, const struct agent_reply *reply, void *userdata);
static void on_helper(const struct guest_helper_reply *reply, void *userdata);

static int call_agent(struct guest_call *call, enum agent_act act, uint64_t deadline_ns,
                      agent_done *done)
{
    const struct agent_request request = {
        .act = act,
        .root = call->request.root,
        .address = call->walk.address,
        .listener = call->request.listener,
        .volume_path = call->request.guest_path,
        .bytes = call->request.bytes,
        .deadline_ns = deadline_ns,
    };

    return agent_call_new(call->loop, &request, done, call, &call->agent);
}

static int call_shim(struct guest_call *call, uint64_t deadline_ns)
{
    const struct shim_request request = {
        .act = call->request.resizes ? AGENT_RESIZE_AND_STATS : AGENT_STATS,
        .root = call->request.root,
        .socket_path = call->request.shim_socket,
        .listener = call->request.listener,
        .dialect = call->request.shim_dialect,
        .volume = call->request.shim_volume,
        .bytes = call->request.bytes,
        .deadline_ns = deadline_ns,
    };

    return shim_call_new(call->loop, &request, on_shim, call, &call->shim);
}

static int call_route(struct guest_call *call, const struct guest_target *target)
{
    const struct guest_request *request = &call->request;
    uint64_t deadline_ns = time_left(call) / guest_walk_parts(&call->walk, target) + 1;

    switch (call->walk.route) {
    case ROUTE_HELPER:
        return request->helper->begin(request->owner, time_left(call), on_helper, call,
                                      &call->helper);
    case ROUTE_SHIM:
        return call_shim(call, deadline_ns);
    case ROUTE_COMPANION:
    case ROUTE_AGENT:
    case ROUTE_NONE:
    case GUEST_ROUTES:
        break;
    }
    return call_agent(call, request->resizes ? AGENT_RESIZE_AND_STATS : AGENT_STATS, deadline_ns,
                      on_agent);
}

static void try_next(struct guest_call *call)
{
    const struct guest_target target = target_of(call);

    while (guest_walk_next(&call->walk, &target)) {
        struct error error;
        int r = call_route(call, &target);

        if (r == 0)
            return;
        (void)error_set_errno(&error, r, "cannot call the agent");
        guest_walk_note(&call->walk, REASON_AGENT_UNREACHABLE, true, &error);
    }
    guest_walk_conclude(&call->walk);
    finish(call, call->walk.reason, &call->walk.error);
}

/* ---- what they answer ---- */

static void learn(struct guest_call *call, enum agent_outcome outcome)
{
    const char *ability = guest_route_ability(outcome);

    if (call->request.resizes && ability)
        call->reply.ability[call->walk.route] = ability;
}

/* A file system that cannot grow ends a resize; a question for stats tries the next route. */
static void take_failure(struct guest_call *call, enum volume_reason reason, bool is_explained,
                         const struct error *error)
{
    if (call->request.resizes && guest_route_ends_resize(reason)) {
        finish(call, reason, error);
        return;
    }
    guest_walk_note(&call->walk, reason, is_explained, error);
    try_next(call);
}

static bool is_impossible(const struct guest_call *call, const struct agent_stats *stats)
{
    return stats->has_bytes && call->request.most_bytes && stats->total > call->request.most_bytes;
}

/* What an agent answered that has done what it was asked for. `came`: with the stats. */
static void take_stats(struct guest_call *call, bool came, const struct agent_stats *stats,
                       const struct error *why_not)
{
    struct error error;

    if (is_impossible(call, stats)) {
        (void)error_set(&error, 0,
                        "the guest says that the file system has %" PRIu64
                        " bytes, and its device has %" PRIu64,
                        stats->total, call->request.most_bytes);
        take_failure(call, REASON_AGENT_FAILED, true, &error);
    } else if (call->request.resizes) {
        finish_resized(call, came, stats, why_not);
    } else {
        finish_counted(call, stats);
    }
}

static void take_reply(struct guest_call *call, const struct agent_reply *reply)
{
    learn(call, reply->outcome);
    if (reply->outcome == AGENT_DONE)
        take_stats(call, reply->stats_outcome == AGENT_DONE, &reply->stats, &reply->error);
    else
        take_failure(call, guest_route_reason(reply->outcome), reply->outcome != AGENT_UNEXPLAINED,
                     &reply->error);
}

static void on_size(struct agent_call *agent, const struct agent_reply *reply, void *userdata)
{
    struct guest_call *call = userdata;
    struct agent_reply copy = *reply;

    call->agent = agent_call_free(agent);
    take_stats(call, copy.outcome == AGENT_DONE, &copy.stats, &copy.error);
}

/* Some servers take one request per connection. */
static void ask_size_again(struct guest_call *call, const struct agent_reply *reply)
{
    const struct guest_target target = target_of(call);
    const uint64_t time = time_left(call) / guest_walk_parts(&call->walk, &target) + 1;

    learn(call, AGENT_DONE);
    if (call_agent(call, AGENT_STATS, time, on_size) < 0)
        finish_resized(call, false, &reply->stats, &reply->error);
}

static void on_agent(struct agent_call *agent, const struct agent_reply *reply, void *userdata)
{
    struct guest_call *call = userdata;
    struct agent_reply copy = *reply;

    call->agent = agent_call_free(agent);
    if (call->request.resizes && copy.outcome == AGENT_DONE &&
        copy.stats_outcome == AGENT_UNREACHABLE)
        ask_size_again(call, &copy);
    else
        take_reply(call, &copy);
}

static void on_shim(struct shim_call *shim, const struct agent_reply *reply, void *userdata)
{
    struct guest_call *call = userdata;
    struct agent_reply copy = *reply;

    call->shim = shim_call_free(shim);
    take_reply(call, &copy);
}

static void on_helper(const struct guest_helper_reply *reply, void *userdata)
{
    struct guest_call *call = userdata;

    call->helper = NULL;
    call->reply.age_ns = reply->age_ns;
    if (reply->reason != REASON_NONE)
        take_failure(call, reply->reason, true, &reply->error);
    else
        take_stats(call, true, &reply->stats, &reply->error);
}

/* ---- where the agent listens ---- */

static void begin(struct guest_call *call)
{
    struct error error;

    if (call->request.guest_path[0] != '/') {
        (void)error_set(&error, 0, "nothing says where the guest has mounted this volume");
        guest_walk_note(&call->walk, REASON_GUEST_PATH_UNKNOWN, true, &error);
    }
    try_next(call);
}

static void on_address(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                       void *userdata)
{
    struct guest_call *call = userdata;
    struct guest_request *request = &call->request;
    struct error error;
    char shown[64];

    if (answer->end != HTTP_EXCHANGE_ANSWERED) {
        (void)error_set(&error, 0, "no agent address is known, and the shim cannot help: %s",
                        answer->error.text);
    } else if (answer->status != 200 ||
               shim_parse_agent_url(answer->body, answer->length, request->agent_port,
                                    request->agent_address, request->agent_address_size) < 0) {
        text_clean(answer->body, answer->length, shown, sizeof(shown));
        (void)error_set(&error, 0, "no agent address is known, and the shim answers %u: %s",
                        answer->status, shown);
    } else {
        call->reply.address_learned = true;
    }
    if (!call->reply.address_learned)
        guest_walk_note(&call->walk, REASON_AGENT_UNREACHABLE, true, &error);
    call->asking = http_exchange_free(exchange);
    begin(call);
}

static int ask_address(struct guest_call *call)
{
    const struct http_exchange_request request = {
        .directory = call->request.root,
        .socket_path = call->request.shim_socket,
        .listener = call->request.listener,
        .method = "GET",
        .target = "/agent-url",
        .body_limit = call->request.agent_address_size,
        .deadline_ns = time_left(call) / ASK_PART + 1,
    };

    return http_exchange_new(call->loop, &request, on_address, call, &call->asking);
}

/* ---- life ---- */

int guest_call_new(struct loop *loop, const struct guest_request *request, guest_done *done,
                   void *userdata, struct guest_call **ret_call)
{
    struct guest_call *call = calloc(1, sizeof(*call));
    int r = 0;

    if (!call)
        return -ENOMEM;
    call->loop = loop;
    call->request = *request;
    call->done = done;
    call->userdata = userdata;
    guest_walk_begin(&call->walk, request->order, request->inability);
    call->beginning = true;
    if (request->asks_address && !request->agent_address[0])
        r = ask_address(call);
    else
        begin(call);
    call->beginning = false;
    if (r < 0) {
        (void)guest_call_free(call);
        return r;
    }
    *ret_call = call;
    return 0;
}

struct guest_call *guest_call_free(struct guest_call *call)
{
    if (!call)
        return NULL;
    loop_timer_stop(&call->reporting);
    (void)agent_call_free(call->agent);
    (void)shim_call_free(call->shim);
    if (call->helper)
        (void)call->request.helper->free(call->helper);
    (void)http_exchange_free(call->asking);
    free(call);
    return NULL;
}
