/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - a guest asked for the size of a file system, for a client.
 *
 * The ways are those of a growth, in the same order, but what a sandbox is remembered to be unable
 * to is no matter here: an agent that cannot grow can often count. Nothing is changed and nothing
 * is recorded, so it needs neither a turn nor its sandbox's lane. Each costs a connection and some
 * memory until the guest answers or its time is over, so there is a bound on how many there are,
 * and one on those of a sandbox, so that one which hangs does not keep the others from theirs.
 *
 * Before all of them comes the tool of the volume's runtime, where it is named and may be run.
 *
 * An act is borrowed for its volume, its ways and its time; it is never started or recorded.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/act/act.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/expand_answer.h"
#include "reconciler/command/runtime_cli.h"

enum { AT_ONCE = 64, PER_SANDBOX = 8 };

struct stats_call {
    struct stats_call *next;
    struct act act;
    struct runtime_cli_run *cli;
    struct loop_timer deferred; /* an answer that needs nobody else */
    uint64_t age_ns;            /* of the answer */
    reconciler_counted *done;
    void *userdata;
};

/* ---- the end ---- */

struct stats_call *reconciler_count_cancel(struct stats_call *call)
{
    struct stats_call **link;

    if (!call)
        return NULL;
    link = &call->act.reconciler->clients.stats;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    (void)agent_call_free(call->act.agent);
    (void)shim_call_free(call->act.shim);
    (void)helper_call_free(call->act.helper);
    (void)runtime_cli_free(call->cli);
    loop_timer_stop(&call->deferred);
    free(call);
    return NULL;
}

void stats_done(struct reconciler *reconciler)
{
    while (reconciler->clients.stats)
        (void)reconciler_count_cancel(reconciler->clients.stats);
}

/* What is not of this moment says so. */
static void append_age(uint64_t age_ns, struct reconciler_stats *stats)
{
    const size_t length = strlen(stats->condition);
    const uint64_t seconds = age_ns / NSEC_PER_SEC;

    stats->age_ms = age_ns / NSEC_PER_MSEC;
    if (seconds > 0)
        (void)snprintf(stats->condition + length, sizeof(stats->condition) - length,
                       "; the guest was read %" PRIu64 " s ago", seconds);
}

static void describe(const struct store_volume *volume, const struct agent_stats *from,
                     struct reconciler_stats *ret_stats)
{
    bool is_held_up = volume->state == STATE_BLOCKED || volume->state == STATE_SHRUNK;

    *ret_stats = (struct reconciler_stats){
        .has_bytes = from->has_bytes,
        .has_inodes = from->has_inodes,
        .total = from->total,
        .used = from->used,
        .available = from->available,
        .total_inodes = from->total_inodes,
        .used_inodes = from->used_inodes,
        .available_inodes = from->available_inodes,
        .abnormal = is_held_up || from->abnormal,
        .mapping_id = volume->mapping_id,
        .guest_abnormal = from->abnormal,
    };
    (void)snprintf(ret_stats->guest_condition, sizeof(ret_stats->guest_condition), "%s",
                   from->condition);
    if (from->abnormal && !is_held_up)
        (void)snprintf(ret_stats->condition, sizeof(ret_stats->condition), "the guest says: %s",
                       from->condition[0] ? from->condition : "abnormal");
    else
        (void)snprintf(ret_stats->condition, sizeof(ret_stats->condition), "%s, %s",
                       state_name(volume->state), reason_name(volume->reason));
}

static void finish(struct stats_call *call, const struct agent_stats *from)
{
    struct reconciler_stats stats;
    struct error error;
    const char *reason = reason_name(call->act.reason);

    if (from) {
        describe(&call->act.volume, from, &stats);
        append_age(call->age_ns, &stats);
        call->done(call->userdata, STATUS_OK, &stats, NULL);
    } else {
        (void)error_set(&error, 0, "%s: %s", reason, call->act.error.text);
        call->done(call->userdata, reason_code(call->act.reason), NULL, &error);
    }
    (void)reconciler_count_cancel(call);
}

/* ---- the ways ---- */

static void on_agent(struct agent_call *agent, const struct agent_reply *reply, void *userdata);
static void on_shim(struct shim_call *shim, const struct agent_reply *reply, void *userdata);
static void on_helper(const struct helper_reply *reply, void *userdata);

static uint64_t time_for_way(const struct act *act)
{
    char address[STORE_ADDRESS_BYTES];
    unsigned left = 1;

    for (unsigned i = act->route_index; i < CONFIG_ROUTES; i++)
        left += act->reconciler->config.agent.routes[i] != ROUTE_HELPER &&
                act_guest_find_way(act, act->reconciler->config.agent.routes[i], address);
    return act_time_left(act) / left + 1;
}

static int ask(struct act *act, enum config_route route)
{
    struct agent_request request = {
        .act = AGENT_STATS,
        .root = act->reconciler->root,
        .address = act->address,
        .volume_path = act->volume.guest_path,
        .deadline_ns = time_for_way(act),
    };

    if (route == ROUTE_HELPER)
        return helper_call_new(act->reconciler, &act->volume, HELPER_COUNT, act_time_left(act),
                               on_helper, act, &act->helper);
    return route == ROUTE_SHIM
               ? act_shim_call(act, AGENT_STATS, request.deadline_ns, on_shim)
               : agent_call_new(act->reconciler->loop, &request, on_agent, act, &act->agent);
}

/* false: there is no way left. */
static bool ask_next(struct act *act)
{
    while (act->route_index < CONFIG_ROUTES) {
        enum config_route route = act->reconciler->config.agent.routes[act->route_index++];
        struct error error;
        int r;

        if (!act_guest_find_way(act, route, act->address))
            continue;
        act->route = route;
        r = ask(act, route);
        if (r == 0)
            return true;
        (void)error_set_errno(&error, r, "cannot call the agent");
        act_guest_note(act, AGENT_UNREACHABLE, &error);
    }
    return false;
}

static void take_reply(struct stats_call *call, const struct agent_reply *reply)
{
    call->act.agent_is_silent |=
        call->act.route == ROUTE_AGENT && reply->outcome == AGENT_UNREACHABLE;
    if (reply->outcome == AGENT_DONE) {
        finish(call, &reply->stats);
        return;
    }
    act_guest_note(&call->act, reply->outcome, &reply->error);
    if (!ask_next(&call->act))
        finish(call, NULL);
}

static void on_agent(struct agent_call *agent, const struct agent_reply *reply, void *userdata)
{
    struct stats_call *call = container_of((struct act *)userdata, struct stats_call, act);
    struct agent_reply copy = *reply;

    call->act.agent = agent_call_free(agent);
    take_reply(call, &copy);
}

static void on_shim(struct shim_call *shim, const struct agent_reply *reply, void *userdata)
{
    struct stats_call *call = container_of((struct act *)userdata, struct stats_call, act);
    struct agent_reply copy = *reply;

    call->act.shim = shim_call_free(shim);
    take_reply(call, &copy);
}

static void on_helper(const struct helper_reply *reply, void *userdata)
{
    struct stats_call *call = container_of((struct act *)userdata, struct stats_call, act);

    call->act.helper = NULL;
    call->age_ns = reply->age_ns;
    if (reply->reason == REASON_NONE) {
        finish(call, &reply->stats);
        return;
    }
    act_guest_note_reason(&call->act, reply->reason, &reply->error);
    if (!ask_next(&call->act))
        finish(call, NULL);
}

/* ---- the runtime's own tool ---- */

static enum status_code begin(struct stats_call *call, struct error *error);

/* The guest's ways remain, and what they come to is the answer. */
static void on_cli(const struct runtime_cli_answer *answer, void *userdata)
{
    struct stats_call *call = userdata;
    struct error error = {0};
    enum status_code code;

    call->cli = runtime_cli_free(call->cli);
    if (answer) {
        finish(call, &answer->stats);
        return;
    }
    code = begin(call, &error);
    if (code == STATUS_OK)
        return;
    call->done(call->userdata, code, NULL, &error);
    (void)reconciler_count_cancel(call);
}

/* Whether it is asked. */
static bool ask_cli(struct stats_call *call, const char *target_path)
{
    struct reconciler *reconciler = call->act.reconciler;
    struct runtime_cli cli;
    const struct runtime_cli_question question = {
        .cli = &cli,
        .volume_id = call->act.volume.volume_id,
        .target_path = target_path,
    };
    struct error error = {0};
    int r;

    if (expand_is_barred(&call->act.volume))
        return false; /* the tool would count what is not this volume */
    r = runtime_cli_find(reconciler, target_path, &cli, &error);
    if (r == RUNTIME_CLI_UNSAFE)
        runtime_cli_pass_over(question.volume_id, &error);
    return r == RUNTIME_CLI_FOUND &&
           runtime_cli_ask(reconciler, &question, on_cli, call, &call->cli) == 0;
}

/* ---- the beginning ---- */

/* Then the guest has another directory in the volume's place, or none, and cannot count it; unless
 * another container has the volume itself. */
static bool is_uncountable(const struct store_volume *volume)
{
    return !(volume->sandbox_ref && volume->bypassed) && volume->state == STATE_BLOCKED &&
           volume->reason == REASON_BYPASSED;
}

static void on_deferred(struct loop_timer *timer)
{
    finish(container_of(timer, struct stats_call, deferred), &(struct agent_stats){0});
}

static enum status_code check_volume(const struct store_volume *volume, struct error *error)
{
    if (volume->live_sandboxes > 1)
        return error_set(error, (int)reason_code(REASON_MULTIPLE_SANDBOXES),
                         "more than one live sandbox uses the volume");
    if (!volume->sandbox_ref)
        return answer_refuse(error, ANSWER_NO_SANDBOX, "no sandbox uses the volume yet");
    return STATUS_OK;
}

static enum status_code begin(struct stats_call *call, struct error *error)
{
    struct act *act = &call->act;
    uint32_t seconds = act->reconciler->config.resize.call_timeout_seconds;
    enum status_code code;

    if (is_uncountable(&act->volume)) {
        loop_timer_start(act->reconciler->loop, &call->deferred, 0, on_deferred);
        return STATUS_OK;
    }
    code = check_volume(&act->volume, error);
    if (code != STATUS_OK)
        return code;
    act->deadline_ns = clock_boottime() + seconds * NSEC_PER_SEC;
    if (ask_next(act))
        return STATUS_OK;
    if (act->error.text[0])
        return error_set(error, (int)reason_code(REASON_AGENT_UNREACHABLE), "%s", act->error.text);
    if (!act->volume.guest_path[0])
        return error_set(error, (int)reason_code(REASON_GUEST_PATH_UNKNOWN),
                         "guest_path_unknown: nothing says where the guest has mounted the volume");
    return error_set(error, (int)reason_code(REASON_AGENT_UNREACHABLE),
                     "agent_unreachable: agent.routes has no way to this agent");
}

/* The call is in the list already. */
static enum status_code check_room(const struct stats_call *call, struct error *error)
{
    unsigned all = 0, of_sandbox = 0;

    for (const struct stats_call *one = call->act.reconciler->clients.stats; one; one = one->next) {
        all++;
        of_sandbox += one->act.volume.sandbox_ref &&
                      one->act.volume.sandbox_ref == call->act.volume.sandbox_ref;
    }
    if (of_sandbox > PER_SANDBOX)
        return answer_refuse(error, ANSWER_BUSY,
                             "the volume's sandbox has %d such calls to answer already",
                             PER_SANDBOX);
    if (all > AT_ONCE)
        return answer_refuse(error, ANSWER_BUSY, "%d such calls wait for guests already", AT_ONCE);
    return STATUS_OK;
}

enum status_code reconciler_count(struct reconciler *reconciler,
                                  const struct reconciler_target *target, reconciler_counted *done,
                                  void *userdata, struct stats_call **ret_call, struct error *error)
{
    struct stats_call *call;
    int64_t volume_id = 0;
    enum status_code code =
        command_find_volume(reconciler, target, ANSWER_UNKNOWN_TO_STATS, &volume_id, error);

    if (code != STATUS_OK)
        return code;
    call = calloc(1, sizeof(*call));
    if (!call)
        return answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
    call->done = done;
    call->userdata = userdata;
    call->act.reconciler = reconciler;
    call->next = reconciler->clients.stats;
    reconciler->clients.stats = call;
    if (store_get_volume(reconciler->store, volume_id, &call->act.volume) < 0)
        code = answer_refuse(error, ANSWER_DATABASE, "the database fails: %s",
                             store_error_text(reconciler->store));
    if (code == STATUS_OK)
        code = check_room(call, error);
    if (code == STATUS_OK && !(target->target_path && ask_cli(call, target->target_path)))
        code = begin(call, error);
    if (code != STATUS_OK)
        (void)reconciler_count_cancel(call);
    else
        *ret_call = call;
    return code;
}
