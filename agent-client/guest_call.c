/* SPDX-License-Identifier: Apache-2.0 */
/* guest_call.c - see guest_call.h.
 *
 * One route after the other is asked, each by a job in a worker; the helper is the caller's to
 * bring. go_on() is the last thing that touches a call: its owner may free it there.
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

enum { ASK_PART = 4 }; /* of the time: a silent shim must leave the agent some */

struct guest_call {
    struct job job;
    struct guest_request request;
    bool is_at_address; /* the job asks the shim for the agent's address */
    unsigned next;      /* the routes of the order before this one were tried or passed over */
    bool has_ended;
    bool agent_is_silent; /* kata-agent was called and did not answer */
    struct helper_call *helper;
    struct loop_timer beginning;
    unsigned priority;        /* of the reply's reason */
    struct guest_reply reply; /* so far: the most specific reason why a route failed */
    guest_done *done;
    void *userdata;
};

static uint64_t time_left(const struct guest_request *request)
{
    uint64_t now = clock_boottime();

    return request->ends_at > now ? request->ends_at - now : 1;
}

/* ---- which routes there are ---- */

static bool has_shim(const struct guest_request *request)
{
    struct stat status;

    return request->shim_socket && request->shim_volume[0] == '/' &&
           path_stat_in_root(request->root, request->shim_socket, &status) == 0 &&
           S_ISSOCK(status.st_mode);
}

/* Whether the volume's guest has the route, and where it is asked. kata-agent knows no disks. On an
 * address without ports either agent may listen. */
static bool has_route(const struct guest_call *call, enum guest_route route,
                      char ret_address[static GUEST_ADDRESS_BYTES])
{
    const struct guest_request *request = &call->request;
    bool has_companion;

    if (route == ROUTE_HELPER) /* it is the agent's to run */
        return !call->agent_is_silent && request->helper->is_possible(request->owner);
    if (route == ROUTE_SHIM) {
        (void)snprintf(ret_address, GUEST_ADDRESS_BYTES, "%s",
                       request->shim_socket ? request->shim_socket : "");
        return has_shim(request);
    }
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
static uint64_t route_time(const struct guest_call *call)
{
    const struct guest_request *request = &call->request;
    char address[GUEST_ADDRESS_BYTES];
    unsigned parts = 1;

    for (unsigned i = call->next + 1; i < GUEST_ROUTES; i++) {
        enum guest_route route = request->order[i];

        parts += route != ROUTE_HELPER && request->inability[route] == REASON_NONE &&
                 has_route(call, route, address);
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
        return 6;
    if (route == ROUTE_HELPER && reason_heals(reason, STATE_BLOCK_GROWN))
        return 5;
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
static void note(struct guest_call *call, enum guest_route route, enum volume_reason reason,
                 bool is_explained, const struct error *error)
{
    unsigned priority = priority_of(route, reason, is_explained);

    call->agent_is_silent |= route == ROUTE_AGENT && reason == REASON_AGENT_UNREACHABLE;
    if (priority < call->priority)
        return;
    call->priority = priority;
    call->reply.reason = reason;
    call->reply.error = *error;
}

static void end(struct guest_call *call, enum volume_reason reason, const struct error *error)
{
    call->has_ended = true;
    call->reply.reason = reason;
    call->reply.error = reason == REASON_NONE ? (struct error){0} : *error;
}

bool guest_route_ends_resize(enum volume_reason reason)
{
    return reason == REASON_FILE_SYSTEM_NOT_GROWABLE || reason == REASON_READ_ONLY ||
           reason == REASON_FILE_SYSTEM_SHUT_DOWN || reason == REASON_FILE_SYSTEM_LIMIT ||
           reason == REASON_GROWING || reason == REASON_GUEST_LAYER_UNSUPPORTED ||
           reason == REASON_GUEST_PATH_UNKNOWN;
}

/* A file system that cannot grow ends a resize; a question for stats tries the next route. */
static void take_failure(struct guest_call *call, enum guest_route route, enum volume_reason reason,
                         bool is_explained, const struct error *error)
{
    if (call->request.resizes && guest_route_ends_resize(reason))
        end(call, reason, error);
    else
        note(call, route, reason, is_explained, error);
}

/* A route has done what it was asked for. After a resize the stats decide whether that is verified;
 * NULL: it has none to give. */
static void take_stats(struct guest_call *call, enum guest_route route,
                       const struct agent_stats *stats, const struct error *why_not)
{
    const struct guest_request *request = &call->request;
    struct error error;

    if (stats && stats->has_bytes && request->most_bytes && stats->total > request->most_bytes) {
        (void)error_set(&error, 0,
                        "the guest says that the file system has %" PRIu64
                        " bytes, and its device has %" PRIu64,
                        stats->total, request->most_bytes);
        take_failure(call, route, REASON_AGENT_FAILED, true, &error);
    } else if (request->resizes && !(stats && stats->has_bytes)) {
        end(call, REASON_UNVERIFIED, why_not);
    } else {
        call->reply.stats = *stats;
        end(call, REASON_NONE, NULL);
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
    if (outcome == AGENT_UNREACHABLE || outcome == AGENT_UNEXPLAINED)
        return NULL;
    return outcome == AGENT_UNSUPPORTED || outcome == AGENT_DENIED ? reason_name(reason_of(outcome))
                                                                   : ROUTE_ABLE;
}

/* Goes on to the next route worth trying, and returns it with its address. */
static enum guest_route find_next(struct guest_call *call,
                                  char ret_address[static GUEST_ADDRESS_BYTES])
{
    const struct guest_request *request = &call->request;
    struct error error;

    for (; !call->has_ended && call->next < GUEST_ROUTES; call->next++) {
        enum guest_route route = request->order[call->next];

        if (!has_route(call, route, ret_address))
            continue;
        if (request->inability[route] == REASON_NONE)
            return route;
        (void)error_set(&error, 0, "the sandbox was found unable before: %s",
                        reason_name(request->inability[route]));
        note(call, ROUTE_NONE, request->inability[route], true, &error);
    }
    return ROUTE_NONE;
}

/* ---- in a worker ---- */

struct question {
    enum guest_route route; /* NONE: where the agent listens, of the shim */
    enum shim_dialect dialect;
    uint32_t agent_port;
    size_t address_size; /* the longest address and its NUL */
    struct agent_request request;
};

struct answer {
    struct agent_reply reply;
    char address[GUEST_ADDRESS_BYTES]; /* of the agent; "": why not is the reply's error */
};

static const struct job_texts texts[] = {
    {offsetof(struct question, request.address), 1},
    {offsetof(struct question, request.listener.sandbox_id), 1},
    {offsetof(struct question, request.volume), 1},
    {0, 0},
};

static void ask_act(const struct job_input *input, struct buffer *reply)
{
    struct question question;
    struct agent_request *request = &question.request;
    struct answer answer = {.reply.outcome = AGENT_UNREACHABLE};

    job_read_message(input, texts, &question, sizeof(question));
    request->root = input->fds[0];
    if (question.route == ROUTE_NONE) {
        if (shim_ask_address(request, input->deadline_ns, question.agent_port, answer.address,
                             question.address_size, &answer.reply.error) < 0)
            answer.address[0] = '\0';
    } else if (question.route == ROUTE_SHIM) {
        shim_call_run(request, question.dialect, input->deadline_ns, &answer.reply);
    } else {
        agent_call_run(request, input->deadline_ns, &answer.reply);
    }
    (void)buffer_append(reply, &answer, sizeof(answer));
}

/* ---- in the daemon ---- */

static void on_job_done(struct job *job, enum job_end end, const void *bytes, size_t length);

static int start_job(struct guest_call *call, enum guest_route route, const char *address,
                     uint64_t allowed_ns)
{
    const struct guest_request *from = &call->request;
    const struct question question = {
        .route = route,
        .dialect = from->shim_dialect,
        .agent_port = from->agent_port,
        .address_size = from->agent_address_size < GUEST_ADDRESS_BYTES ? from->agent_address_size
                                                                       : GUEST_ADDRESS_BYTES,
        .request = {.resizes = from->resizes,
                    .address = address,
                    .listener = from->listener,
                    .volume = route == ROUTE_SHIM ? from->shim_volume : from->guest_path,
                    .bytes = from->bytes,
                    .allowed_ns = allowed_ns}};

    return job_start_message(&call->job,
                             &(struct job_message){&question, sizeof(question), texts, NULL, 0},
                             (struct job_request){.act = ask_act,
                                                  .fds = {from->root, -1},
                                                  .allowed_ns = allowed_ns,
                                                  .done = on_job_done});
}

static void on_helper(const struct guest_helper_reply *reply, void *userdata);

static void go_on(struct guest_call *call)
{
    const struct guest_request *request = &call->request;
    char address[GUEST_ADDRESS_BYTES];
    struct guest_reply reply;
    enum guest_route route;
    struct error error;

    while ((route = find_next(call, address)) != ROUTE_NONE) {
        int r = route == ROUTE_HELPER ? request->helper->begin(request->owner, time_left(request),
                                                               on_helper, call, &call->helper)
                                      : start_job(call, route, address, route_time(call));

        if (r == 0)
            return;
        call->next++;
        (void)error_set_errno(&error, r, "cannot call the agent");
        take_failure(call, route, REASON_AGENT_UNREACHABLE, true, &error);
    }
    reply = call->reply;
    if (!call->has_ended && reply.reason == REASON_NONE) {
        reply.reason = REASON_AGENT_UNREACHABLE;
        (void)error_set(&reply.error, 0, "agent.routes has no route to this agent");
    }
    call->done(call, &reply, call->userdata);
}

/* address_error: why the agent's address is not known after all; NULL: nobody was asked for it. */
static void begin_walk(struct guest_call *call, const struct error *address_error)
{
    struct error error;

    if (address_error)
        note(call, ROUTE_NONE, REASON_AGENT_UNREACHABLE, true, address_error);
    if (call->request.guest_path[0] != '/') {
        (void)error_set(&error, 0, "nothing says where the guest has mounted this volume");
        note(call, ROUTE_NONE, REASON_GUEST_PATH_UNKNOWN, true, &error);
    }
    go_on(call);
}

static void take_address(struct guest_call *call, const struct answer *answer)
{
    struct guest_request *request = &call->request;
    struct agent_address address;

    call->is_at_address = false;
    call->reply.address_learned = strlen(answer->address) < request->agent_address_size &&
                                  agent_address_parse(answer->address, &address, NULL) == 0;
    if (call->reply.address_learned)
        (void)strcpy(request->agent_address, answer->address);
    begin_walk(call, call->reply.address_learned ? NULL : &answer->reply.error);
}

static void take_reply(struct guest_call *call, const struct agent_reply *reply)
{
    enum guest_route route = call->request.order[call->next++];

    if (call->request.resizes)
        call->reply.ability[route] = ability_of(reply->outcome);
    if (reply->outcome == AGENT_DONE)
        take_stats(call, route, reply->stats_outcome == AGENT_DONE ? &reply->stats : NULL,
                   &reply->error);
    else
        take_failure(call, route, reason_of(reply->outcome), reply->outcome != AGENT_UNEXPLAINED,
                     &reply->error);
    go_on(call);
}

/* An answer to a question for stats alone has them. */
static bool take_answer(const void *bytes, size_t length, bool resizes, struct answer *answer)
{
    struct agent_reply *reply = &answer->reply;

    return job_take_reply(bytes, length, answer, sizeof(*answer)) &&
           (unsigned)reply->outcome < AGENT_OUTCOMES &&
           (resizes || reply->outcome != AGENT_DONE || reply->stats_outcome == AGENT_DONE) &&
           job_is_error(&reply->error) && job_is_flag(&reply->stats.has_bytes) &&
           job_is_flag(&reply->stats.has_inodes) && job_is_flag(&reply->stats.abnormal) &&
           job_is_text(reply->stats.condition) && job_is_text(answer->address);
}

static void on_job_done(struct job *job, enum job_end how, const void *bytes, size_t length)
{
    struct guest_call *call = container_of(job, struct guest_call, job);
    struct answer answer;

    if (how != JOB_ANSWERED || !take_answer(bytes, length, call->request.resizes, &answer)) {
        answer = (struct answer){.reply.outcome = AGENT_UNREACHABLE};
        (void)error_set(&answer.reply.error, 0, "%s", job_fault_text(how));
    }
    if (call->is_at_address)
        take_address(call, &answer);
    else
        take_reply(call, &answer.reply);
}

static void on_helper(const struct guest_helper_reply *reply, void *userdata)
{
    struct guest_call *call = userdata;

    call->helper = NULL;
    call->reply.age_ns = reply->age_ns;
    call->next++;
    if (reply->reason != REASON_NONE)
        take_failure(call, ROUTE_HELPER, reply->reason, true, &reply->error);
    else
        take_stats(call, ROUTE_HELPER, &reply->stats, &reply->error);
    go_on(call);
}

static void on_beginning(struct loop_timer *timer)
{
    struct guest_call *call = container_of(timer, struct guest_call, beginning);
    const struct guest_request *request = &call->request;
    struct error error;
    int r;

    call->is_at_address = request->asks_address && !request->agent_address[0];
    if (!call->is_at_address) {
        begin_walk(call, NULL);
        return;
    }
    r = start_job(call, ROUTE_NONE, request->shim_socket, time_left(request) / ASK_PART + 1);
    if (r == 0)
        return;
    call->is_at_address = false;
    (void)error_set_errno(&error, r, "cannot ask for the agent's address");
    begin_walk(call, &error);
}

int guest_call_new(struct loop *loop, const struct guest_request *request, guest_done *done,
                   void *userdata, struct guest_call **ret_call)
{
    struct guest_call *call = calloc(1, sizeof(*call));

    if (!call)
        return -ENOMEM;
    call->done = done;
    call->userdata = userdata;
    call->request = *request;
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
        (void)call->request.helper->free(call->helper);
    return job_free(&call->job);
}
