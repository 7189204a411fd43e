/* SPDX-License-Identifier: Apache-2.0 */
/* guest_call.c - see guest_call.h.
 *
 * The routes up to a helper's are one job: a worker walks along them and sends back what is known
 * then. The daemon brings the helper, and begins another job for the routes after that.
 *
 * go_on() is the last thing that touches a call: its owner may free it there.
 */
#include "agent-client/guest_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent-client/agent_client.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/workers.h"

enum {
    ASK_PART = 4, /* of the time: a silent shim must leave the agent some */
    PRIORITY_MOST = 6,
};

/* What is known so far: a worker adds to it. */
struct walk {
    unsigned next; /* the routes of the order before this one have been tried or passed over */
    bool has_ended;
    bool agent_is_silent;                     /* kata-agent was called and did not answer */
    enum agent_outcome answers[GUEST_ROUTES]; /* AGENT_OUTCOMES: it was not asked */
    /* The most specific reason why a route failed, and how specific it is. Once the walk has ended,
     * that of the reply. */
    enum volume_reason reason;
    struct error error;
    unsigned priority;
    struct agent_stats stats;
    bool address_learned; /* from the shim */
    char address[GUEST_ADDRESS_BYTES];
};

struct progress {
    struct guest_request request; /* asks_address: the next job begins with that */
    bool has_shim, has_helper;    /* one that can be tried for this volume */
    struct walk walk;
};

static uint64_t time_left(const struct guest_request *request)
{
    uint64_t now = clock_boottime();

    return request->ends_at > now ? request->ends_at - now : 1;
}

/* ---- which routes there are ---- */

/* Whether the volume's guest has the route, and where it is asked. kata-agent knows no disks. On an
 * address without ports either agent may listen. */
static bool has_route(const struct progress *progress, enum guest_route route,
                      char ret_address[static GUEST_ADDRESS_BYTES])
{
    const struct guest_request *request = &progress->request;
    bool has_companion;

    if (route == ROUTE_HELPER) /* it is the agent's to run */
        return progress->has_helper && !progress->walk.agent_is_silent;
    if (route == ROUTE_SHIM && progress->has_shim)
        (void)snprintf(ret_address, GUEST_ADDRESS_BYTES, "%s", request->shim_socket);
    if (route == ROUTE_SHIM)
        return progress->has_shim;
    if (route == ROUTE_NONE || !request->agent_address[0] || !request->guest_path[0])
        return false;
    has_companion = agent_companion_address(request->agent_address, request->companion_port,
                                            ret_address, GUEST_ADDRESS_BYTES);
    if (route == ROUTE_COMPANION)
        return has_companion;
    (void)snprintf(ret_address, GUEST_ADDRESS_BYTES, "%s", request->agent_address);
    return request->guest_path[0] == '/' || !has_companion;
}

/* For the next route: a silent one leaves time for those after it. A helper has its own. */
static uint64_t route_time(const struct progress *progress)
{
    const struct guest_request *request = &progress->request;
    char address[GUEST_ADDRESS_BYTES];
    unsigned parts = 1;

    for (unsigned i = progress->walk.next + 1; i < GUEST_ROUTES; i++) {
        enum guest_route route = request->order[i];

        parts += route != ROUTE_HELPER && request->inability[route] == REASON_NONE &&
                 has_route(progress, route, address);
    }
    return time_left(request) / parts + 1;
}

/* ---- what came of them ---- */

/* How specific a reason is that leaves other routes to be tried. A failure that an agent has
 * explained is about the file system itself, so no reason of another route outweighs it. Another
 * route's permanent reason must not keep the helper from its next attempt. */
static unsigned priority_of(enum guest_route route, enum volume_reason reason, bool is_explained)
{
    if (reason == REASON_AGENT_FAILED && is_explained)
        return PRIORITY_MOST;
    if (route == ROUTE_HELPER && reason_heals(reason, STATE_BLOCK_GROWN))
        return PRIORITY_MOST - 1;
    switch ((int)reason) {
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

/* route: it has answered so, or it is ROUTE_NONE. is_explained: `error` is the agent's own text. */
static void note(struct walk *walk, enum guest_route route, enum volume_reason reason,
                 bool is_explained, const struct error *error)
{
    unsigned priority = priority_of(route, reason, is_explained);

    walk->agent_is_silent |= route == ROUTE_AGENT && reason == REASON_AGENT_UNREACHABLE;
    if (priority < walk->priority)
        return;
    walk->priority = priority;
    walk->reason = reason;
    walk->error = *error;
}

static void end(struct walk *walk, enum volume_reason reason, const struct error *error)
{
    walk->has_ended = true;
    walk->reason = reason;
    walk->error = reason == REASON_NONE ? (struct error){0} : *error;
}

bool guest_route_ends_resize(enum volume_reason reason)
{
    return reason == REASON_FILE_SYSTEM_NOT_GROWABLE || reason == REASON_READ_ONLY ||
           reason == REASON_FILE_SYSTEM_SHUT_DOWN || reason == REASON_FILE_SYSTEM_LIMIT ||
           reason == REASON_GROWING || reason == REASON_GUEST_LAYER_UNSUPPORTED ||
           reason == REASON_GUEST_PATH_UNKNOWN;
}

/* A file system that cannot grow ends a resize; a question for stats tries the next route. */
static void take_failure(struct progress *progress, enum guest_route route,
                         enum volume_reason reason, bool is_explained, const struct error *error)
{
    if (progress->request.resizes && guest_route_ends_resize(reason))
        end(&progress->walk, reason, error);
    else
        note(&progress->walk, route, reason, is_explained, error);
}

static bool is_too_large(const struct guest_request *request, const struct agent_stats *stats)
{
    return stats->has_bytes && request->most_bytes && stats->total > request->most_bytes;
}

/* A route has done what it was asked for. `came`: with the stats. After a resize they decide
 * whether that is verified. */
static void take_stats(struct progress *progress, enum guest_route route, bool came,
                       const struct agent_stats *stats, const struct error *why_not)
{
    const struct guest_request *request = &progress->request;
    struct error error;

    if (is_too_large(request, stats)) {
        (void)error_set(&error, 0,
                        "the guest says that the file system has %" PRIu64
                        " bytes, and its device has %" PRIu64,
                        stats->total, request->most_bytes);
        take_failure(progress, route, REASON_AGENT_FAILED, true, &error);
    } else if (request->resizes && !(came && stats->has_bytes)) {
        end(&progress->walk, REASON_UNVERIFIED, why_not);
    } else {
        progress->walk.stats = *stats;
        end(&progress->walk, REASON_NONE, NULL);
    }
}

static enum volume_reason reason_of(enum agent_outcome outcome)
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

/* What an answer to a resize shows of the route; NULL: nothing. A failure without a text says
 * nothing about its ability. */
static const char *ability_of(enum agent_outcome outcome)
{
    if (outcome == AGENT_OUTCOMES || outcome == AGENT_UNREACHABLE || outcome == AGENT_UNEXPLAINED)
        return NULL;
    return outcome == AGENT_UNSUPPORTED || outcome == AGENT_DENIED ? reason_name(reason_of(outcome))
                                                                   : ROUTE_ABLE;
}

/* `error`: why the agent's address is not known after all; NULL: nobody was asked for it. */
static void begin_walk(struct progress *progress, const struct error *address_error)
{
    struct error error;

    if (address_error)
        note(&progress->walk, ROUTE_NONE, REASON_AGENT_UNREACHABLE, true, address_error);
    if (progress->request.guest_path[0] == '/')
        return;
    (void)error_set(&error, 0, "nothing says where the guest has mounted this volume");
    note(&progress->walk, ROUTE_NONE, REASON_GUEST_PATH_UNKNOWN, true, &error);
}

/* Goes on to the next route worth trying, and returns it with its address. */
static enum guest_route find_next(struct progress *progress,
                                  char ret_address[static GUEST_ADDRESS_BYTES])
{
    const struct guest_request *request = &progress->request;
    struct walk *walk = &progress->walk;
    struct error error;

    for (; !walk->has_ended && walk->next < GUEST_ROUTES; walk->next++) {
        enum guest_route route = request->order[walk->next];

        if (!has_route(progress, route, ret_address))
            continue;
        if (request->inability[route] == REASON_NONE)
            return route;
        (void)error_set(&error, 0, "the sandbox was found unable before: %s",
                        reason_name(request->inability[route]));
        note(walk, ROUTE_NONE, request->inability[route], true, &error);
    }
    return ROUTE_NONE;
}

/* ---- in a worker ---- */

static void ask(const struct progress *progress, enum guest_route route, const char *address,
                bool resizes, struct agent_reply *reply)
{
    const struct guest_request *from = &progress->request;
    const struct agent_request request = {
        .resizes = resizes,
        .root = from->root,
        .address = address,
        .listener = from->listener,
        .volume = route == ROUTE_SHIM ? from->shim_volume : from->guest_path,
        .bytes = from->bytes,
        .allowed_ns = route_time(progress),
    };
    const uint64_t until_ns = clock_boottime() + request.allowed_ns;

    if (route == ROUTE_SHIM)
        shim_call_run(&request, from->shim_dialect, until_ns, reply);
    else
        agent_call_run(&request, until_ns, reply);
}

static void ask_route(const struct progress *progress, enum guest_route route, const char *address,
                      struct agent_reply *reply)
{
    struct agent_reply size;

    ask(progress, route, address, progress->request.resizes, reply);
    if (route == ROUTE_SHIM || !progress->request.resizes || reply->outcome != AGENT_DONE ||
        reply->stats_outcome != AGENT_UNREACHABLE)
        return;
    /* Some servers take one request per connection. */
    ask(progress, route, address, false, &size);
    reply->stats_outcome = size.outcome;
    reply->stats = size.stats;
    reply->error = size.error;
}

static void ask_address(struct progress *progress)
{
    struct guest_request *request = &progress->request;
    const struct agent_request shim = {
        .root = request->root, .address = request->shim_socket, .listener = request->listener};
    struct walk *walk = &progress->walk;
    const size_t size = request->agent_address_size < sizeof(walk->address)
                            ? request->agent_address_size
                            : sizeof(walk->address);
    struct error error;

    walk->address_learned =
        shim_ask_address(&shim, clock_boottime() + time_left(request) / ASK_PART + 1,
                         request->agent_port, walk->address, size, &error) == 0;
    request->agent_address = walk->address;
    begin_walk(progress, walk->address_learned ? NULL : &error);
}

static const struct job_texts texts[] = {
    {offsetof(struct progress, request.listener.sandbox_id), 1},
    {offsetof(struct progress, request.agent_address), 1},
    {offsetof(struct progress, request.guest_path), 1},
    {offsetof(struct progress, request.shim_socket), 1},
    {offsetof(struct progress, request.shim_volume), 1},
    {0, 0},
};

static void walk_act(const struct job_input *input, struct buffer *reply)
{
    struct progress progress;
    struct walk *walk = &progress.walk;
    char address[GUEST_ADDRESS_BYTES];
    enum guest_route route;

    job_read_message(input, texts, &progress, sizeof(progress));
    progress.request.root = input->fds[0];
    /* Here the walk only stops: with the address that is learned the daemon judges the helper anew.
     */
    progress.has_helper = true;
    progress.request.inability[ROUTE_HELPER] = REASON_NONE;
    if (progress.request.asks_address)
        ask_address(&progress);
    while ((route = find_next(&progress, address)) != ROUTE_NONE && route != ROUTE_HELPER) {
        struct agent_reply answer;

        ask_route(&progress, route, address, &answer);
        walk->next++;
        walk->answers[route] = answer.outcome;
        if (answer.outcome == AGENT_DONE)
            take_stats(&progress, route, answer.stats_outcome == AGENT_DONE, &answer.stats,
                       &answer.error);
        else
            take_failure(&progress, route, reason_of(answer.outcome),
                         answer.outcome != AGENT_UNEXPLAINED, &answer.error);
    }
    (void)buffer_append(reply, walk, sizeof(*walk));
}

/* ---- in the daemon ---- */

struct guest_call {
    struct job job;
    struct progress progress;
    struct helper_call *helper;
    uint64_t age_ns; /* of the helper's stats */
    struct loop_timer beginning;
    guest_done *done;
    void *userdata;
};

static void report(struct guest_call *call)
{
    const struct walk *walk = &call->progress.walk;
    struct guest_reply reply = {
        .reason = walk->reason,
        .error = walk->error,
        .stats = walk->stats,
        .age_ns = call->age_ns,
        .address_learned = walk->address_learned,
    };

    for (enum guest_route route = ROUTE_COMPANION; route < ROUTE_HELPER; route++)
        if (call->progress.request.resizes)
            reply.ability[route] = ability_of(walk->answers[route]);
    call->done(call, &reply, call->userdata);
}

static bool has_shim(const struct guest_request *request)
{
    struct stat status;

    return request->shim_socket && request->shim_volume[0] == '/' &&
           path_stat_in_root(request->root, request->shim_socket, &status) == 0 &&
           S_ISSOCK(status.st_mode);
}

static void on_job_done(struct job *job, enum job_end end, const void *bytes, size_t length);
static void on_helper(const struct guest_helper_reply *reply, void *userdata);

static int start_job(struct guest_call *call)
{
    const struct guest_request *request = &call->progress.request;

    return job_start_message(
        &call->job, &(struct job_message){&call->progress, sizeof(call->progress), texts, NULL, 0},
        (struct job_request){.act = walk_act,
                             .fds = {request->root, -1},
                             .deadline_ns = time_left(request),
                             .done = on_job_done});
}

/* Has the next route asked: the helper's, or as many others as there are before it. */
static void go_on(struct guest_call *call)
{
    struct progress *progress = &call->progress;
    struct guest_request *request = &progress->request;
    struct walk *walk = &progress->walk;
    char address[GUEST_ADDRESS_BYTES];
    enum guest_route route;
    struct error error;
    int r;

    progress->has_shim = has_shim(request);
    progress->has_helper = request->helper->is_possible(request->owner);
    if (request->asks_address) {
        r = start_job(call);
        if (r == 0)
            return;
        request->asks_address = false;
        (void)error_set_errno(&error, r, "cannot ask for the agent's address");
        begin_walk(progress, &error);
    }
    while ((route = find_next(progress, address)) != ROUTE_NONE) {
        r = route == ROUTE_HELPER ? request->helper->begin(request->owner, time_left(request),
                                                           on_helper, call, &call->helper)
                                  : start_job(call);
        if (r == 0)
            return;
        walk->next++;
        (void)error_set_errno(&error, r, "cannot call the agent");
        take_failure(progress, route, REASON_AGENT_UNREACHABLE, true, &error);
    }
    if (!walk->has_ended && walk->reason == REASON_NONE) {
        walk->reason = REASON_AGENT_UNREACHABLE;
        (void)error_set(&walk->error, 0, "agent.routes has no route to this agent");
    }
    report(call);
}

static bool is_reason(enum volume_reason reason)
{
    return reason == REASON_NONE || reason == REASON_UNVERIFIED ||
           (reason >= REASON_OF_GUEST_FIRST && reason <= REASON_OF_GUEST_LAST);
}

/* Only a walk that has worked has stats, and after a resize it has a size. */
static bool are_possible(const struct guest_request *request, const struct walk *walk)
{
    return walk->has_ended && walk->reason == REASON_NONE
               ? !is_too_large(request, &walk->stats) &&
                     (walk->stats.has_bytes || !request->resizes)
               : !walk->stats.has_bytes;
}

/* A worker that has brought the walk no further has not answered. */
static bool take_walk(struct progress *progress, const void *bytes, size_t length)
{
    struct guest_request *request = &progress->request;
    const unsigned first = progress->walk.next + !request->asks_address;
    struct agent_address address;
    struct walk walk;

    if (!job_take_reply(bytes, length, &walk, sizeof(walk)) || walk.next < first ||
        walk.next > GUEST_ROUTES || !job_is_flag(&walk.has_ended) ||
        !job_is_flag(&walk.agent_is_silent) || !is_reason(walk.reason) ||
        !job_is_error(&walk.error) || walk.priority > PRIORITY_MOST ||
        !job_is_flag(&walk.stats.has_bytes) || !job_is_flag(&walk.stats.has_inodes) ||
        !job_is_flag(&walk.stats.abnormal) || !job_is_text(walk.stats.condition) ||
        !are_possible(request, &walk) || !job_is_flag(&walk.address_learned) ||
        !job_is_text(walk.address))
        return false;
    for (enum guest_route route = ROUTE_NONE; route < GUEST_ROUTES; route++)
        if ((unsigned)walk.answers[route] > AGENT_OUTCOMES)
            return false;
    if (request->asks_address && walk.address_learned) {
        if (strlen(walk.address) >= request->agent_address_size ||
            agent_address_parse(walk.address, &address, NULL) < 0)
            return false;
        (void)strcpy(request->agent_address, walk.address);
    }
    progress->walk = walk;
    return true;
}

static void on_job_done(struct job *job, enum job_end how, const void *bytes, size_t length)
{
    struct guest_call *call = container_of(job, struct guest_call, job);
    struct progress *progress = &call->progress;
    struct error error;

    /* Without a reply the route that is next has failed, or the question for the address. */
    if (how != JOB_ANSWERED || !take_walk(progress, bytes, length)) {
        (void)error_set(&error, 0, "%s", job_fault_text(how));
        if (progress->request.asks_address)
            begin_walk(progress, &error);
        else
            take_failure(progress, progress->request.order[progress->walk.next++],
                         REASON_AGENT_UNREACHABLE, true, &error);
    }
    progress->request.asks_address = false;
    go_on(call);
}

static void on_helper(const struct guest_helper_reply *reply, void *userdata)
{
    struct guest_call *call = userdata;
    struct progress *progress = &call->progress;

    call->helper = NULL;
    call->age_ns = reply->age_ns;
    progress->walk.next++;
    if (reply->reason != REASON_NONE)
        take_failure(progress, ROUTE_HELPER, reply->reason, true, &reply->error);
    else
        take_stats(progress, ROUTE_HELPER, true, &reply->stats, &reply->error);
    go_on(call);
}

static void on_beginning(struct loop_timer *timer)
{
    struct guest_call *call = container_of(timer, struct guest_call, beginning);

    if (!call->progress.request.asks_address)
        begin_walk(&call->progress, NULL);
    go_on(call);
}

int guest_call_new(struct loop *loop, const struct guest_request *request, guest_done *done,
                   void *userdata, struct guest_call **ret_call)
{
    struct guest_call *call = calloc(1, sizeof(*call));

    if (!call)
        return -ENOMEM;
    call->done = done;
    call->userdata = userdata;
    call->progress.request = *request;
    call->progress.request.asks_address = request->asks_address && !request->agent_address[0];
    for (enum guest_route route = ROUTE_NONE; route < GUEST_ROUTES; route++)
        call->progress.walk.answers[route] = AGENT_OUTCOMES;
    loop_timer_start(loop, &call->beginning, 0, on_beginning);
    *ret_call = call;
    return 0;
}

struct guest_call *guest_call_free(struct guest_call *call)
{
    if (!call)
        return NULL;
    loop_timer_stop(&call->beginning);
    if (call->helper)
        (void)call->progress.request.helper->free(call->helper);
    return job_free(&call->job);
}
