/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c - picks the sandbox that gets the next helper, and processes its result; see
 * waiting.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "reconciler/helper/report.h"
#include "reconciler/helper/waiting.h"

/* ---- the end of a helper ----------------------------------------------------------------- */

static void judge(const struct helper_target *target, const struct helper_report *report, bool grew,
                  struct helper_verdict *ret_verdict)
{
    struct helper_volume candidates[HELPER_CANDIDATES];

    for (unsigned i = 0; i < target->candidates; i++)
        candidates[i] = report->volume[target->candidate[i]];
    helper_judge(candidates, target->candidates, target->device_bytes, grew, ret_verdict);
}

static void learn(struct helper_sandbox *sandbox, const struct helper_outcome *outcome)
{
    const struct helper_targets *targets = sandbox->targets;

    helper_known_begin(&sandbox->known, outcome->reason, &outcome->error);
    sandbox->alone = outcome->reason == REASON_HELPER_FAILED;
    if (targets->paths == 0)
        sandbox->known.at_ns = 0; /* nothing ran, so calls for usage need not wait */
    for (unsigned i = 0; outcome->reason == REASON_NONE && i < targets->targets; i++) {
        const struct helper_target *target = &targets->target[i];
        struct helper_verdict verdict;

        judge(target, &outcome->report, sandbox->grows, &verdict);
        helper_known_put(&sandbox->known, target->binding_id, sandbox->grows, &verdict);
    }
}

static void end_run(struct helper_sandbox *sandbox, const struct helper_outcome *outcome)
{
    const char *name = helper_run_name(sandbox->run);

    if (outcome->left)
        helper_leftovers_put(&sandbox->leftovers, name, &outcome->removal_error);
    else
        helper_leftovers_remove(&sandbox->leftovers, name);
    sandbox->run = helper_run_free(sandbox->run);
    free(take_pointer(&sandbox->targets));
    sandbox->helpers->running--;
    sandbox->used_ns = clock_boottime();
    helpers_serve_soon(sandbox->helpers);
}

static void on_helper(struct helper_run *run, const struct helper_outcome *outcome, void *userdata)
{
    struct helper_sandbox *sandbox = userdata;

    (void)run;
    if (outcome->reason != REASON_NONE)
        log_info(NULL, "a helper failed: %s: %s", reason_name(outcome->reason),
                 outcome->error.text);
    learn(sandbox, outcome);
    end_run(sandbox, outcome);
    helper_sandbox_answer_served(sandbox);
}

static void on_cleaned_up(struct helper_run *run, const struct helper_outcome *outcome,
                          void *userdata)
{
    struct helper_sandbox *sandbox = userdata;

    (void)run;
    end_run(sandbox, outcome);
}

/* ---- the next helper --------------------------------------------------------------------- */

static bool has_purpose(const struct helper_sandbox *sandbox, enum helper_purpose purpose)
{
    const struct helper_call *call = sandbox->calls;

    while (call && call->purpose != purpose)
        call = call->next;
    return call != NULL;
}

/* Policy, binding and configuration may have changed since the call. */
static void serve_call(struct helper_call *call, struct helper_targets *targets)
{
    struct helpers *helpers = call->helpers;
    cleanup(freep) struct store_volume *volume = malloc(sizeof(*volume));

    call->barred = volume &&
                   store_get_volume(helpers->context->store, call->volume_id, volume) == 0 &&
                   (volume->binding_id != call->binding_id ||
                    !helper_is_possible(helpers->context->config, volume));
    call->served = !call->barred;
    if (volume && call->served)
        helper_targets_add(helpers->context, volume, targets);
}

/* After a helper failed as a whole, the next one gets a single volume: one mount in the guest that
 * is gone or hangs makes the helper fail for all volumes. */
static int serve_calls(struct helper_sandbox *sandbox, struct helper_task *task)
{
    struct helper_targets *targets = sandbox->targets;
    int r;

    targets->grow = task->grow;
    r = helper_targets_begin(sandbox->helpers->context, task->sandbox.sandbox_id,
                             sandbox->sandbox_ref, targets);
    if (r < 0)
        return r;
    for (struct helper_call *call = sandbox->calls; call; call = call->next)
        if ((call->purpose == HELPER_RESIZE || !task->grow) &&
            (!sandbox->alone || targets->targets == 0))
            serve_call(call, targets);
    if (!sandbox->alone)
        helper_targets_complete(sandbox->helpers->context, task->sandbox.sandbox_id,
                                sandbox->sandbox_ref, targets);
    task->withheld = sandbox->targets->withheld;
    task->paths = sandbox->targets->paths;
    for (unsigned i = 0; i < task->paths; i++)
        task->path[i] = sandbox->targets->path[i];
    return 0;
}

static bool serves_any(const struct helper_sandbox *sandbox)
{
    const struct helper_call *call = sandbox->calls;

    while (call && !call->served)
        call = call->next;
    return call != NULL;
}

/* There is no run if all waiting calls are barred. */
static int begin_helper(struct helper_sandbox *sandbox)
{
    struct helper_task task = {.grow = has_purpose(sandbox, HELPER_RESIZE)};
    int r = store_get_helper_sandbox(sandbox->helpers->context->store, sandbox->sandbox_ref,
                                     &task.sandbox);

    if (r < 0)
        return r;
    sandbox->targets = calloc(1, sizeof(*sandbox->targets));
    if (!sandbox->targets)
        return -ENOMEM;
    sandbox->grows = task.grow;
    r = serve_calls(sandbox, &task);
    if (r == 0 && serves_any(sandbox))
        r = helper_run_new(sandbox->helpers->context, &task, on_helper, sandbox, &sandbox->run);
    if (!sandbox->run)
        free(take_pointer(&sandbox->targets));
    return r;
}

static int begin_clean_up(struct helper_sandbox *sandbox, const char *name)
{
    struct store_helper_run run;
    int r = store_get_helper_sandbox(sandbox->helpers->context->store, sandbox->sandbox_ref, &run);

    if (r < 0)
        return r;
    (void)snprintf(run.name, sizeof(run.name), "%s", name);
    return helper_run_clean_up(sandbox->helpers->context, &run, on_cleaned_up, sandbox,
                               &sandbox->run);
}

static int begin(struct helper_sandbox *sandbox)
{
    int r = helper_sandbox_search(sandbox);
    const char *leftover = helper_leftovers_due(&sandbox->leftovers);

    if (r == 0)
        r = leftover ? begin_clean_up(sandbox, leftover) : begin_helper(sandbox);
    sandbox->helpers->running += sandbox->run != NULL;
    return r;
}

static bool is_waiting(const struct helper_sandbox *sandbox, enum helper_purpose purpose)
{
    if (sandbox->run)
        return false;
    if (helper_leftovers_due(&sandbox->leftovers))
        return true;
    return helper_leftovers_are_none(&sandbox->leftovers) && has_purpose(sandbox, purpose);
}

static uint64_t turn_of(const struct helper_sandbox *sandbox)
{
    return sandbox->calls ? sandbox->calls->number : 0;
}

/* Picks the sandbox of the call that has waited longest; resizes come first. */
static struct helper_sandbox *find_next(struct helpers *helpers)
{
    struct helper_sandbox *found = NULL, *sandbox, *next;

    for (enum helper_purpose purpose = HELPER_RESIZE; !found && purpose <= HELPER_STATS; purpose++)
        HASH_ITER (hh, helpers->sandboxes, sandbox, next)
            if (is_waiting(sandbox, purpose) && (!found || turn_of(sandbox) < turn_of(found)))
                found = sandbox;
    return found;
}

/* Leftovers are retried later, as after a failed removal. */
static void fail_begin(struct helper_sandbox *sandbox, int r)
{
    struct error error;
    const char *leftover;

    (void)error_set_errno(&error, r, "the helper cannot begin");
    while ((leftover = helper_leftovers_due(&sandbox->leftovers)))
        helper_leftovers_put(&sandbox->leftovers, leftover, &error);
    helper_known_begin(&sandbox->known, REASON_HELPER_FAILED, &error);
    for (struct helper_call *call = sandbox->calls; call; call = call->next)
        call->served = true;
    helper_sandbox_answer_served(sandbox);
}

static bool has_room(const struct helpers *helpers)
{
    return !helpers->stopping && helpers->running < helpers->context->config->guest.helpers;
}

static void wait_for_leftovers(struct helpers *helpers);

static void serve(struct helpers *helpers)
{
    struct helper_sandbox *sandbox;

    do {
        int r;

        helpers_answer(helpers);
        sandbox = has_room(helpers) ? find_next(helpers) : NULL;
        r = sandbox ? begin(sandbox) : 0;
        if (r < 0)
            fail_begin(sandbox, r);
    } while (sandbox);
    wait_for_leftovers(helpers);
}

static void on_serve(struct loop_timer *timer)
{
    serve(container_of(timer, struct helpers, timer));
}

static void on_later(struct loop_timer *timer)
{
    serve(container_of(timer, struct helpers, later));
}

void helpers_serve_soon(struct helpers *helpers)
{
    loop_timer_start(helpers->context->loop, &helpers->timer, 0, on_serve);
}

static void wait_for_leftovers(struct helpers *helpers)
{
    struct helper_sandbox *sandbox, *next;
    uint64_t least = UINT64_MAX;

    HASH_ITER (hh, helpers->sandboxes, sandbox, next) {
        uint64_t wait = sandbox->run ? UINT64_MAX : helper_leftovers_wait(&sandbox->leftovers);

        least = wait < least ? wait : least;
    }
    if (least == UINT64_MAX || least == 0 || helpers->stopping)
        loop_timer_stop(&helpers->later);
    else
        loop_timer_start(helpers->context->loop, &helpers->later, least, on_later);
}

/* ---- the end --------------------------------------------------------------------------- */

static struct helper_sandbox *find_running(struct helpers *helpers)
{
    struct helper_sandbox *sandbox, *next;

    HASH_ITER (hh, helpers->sandboxes, sandbox, next)
        if (sandbox->run)
            return sandbox;
    return NULL;
}

static void abandon(struct helper_sandbox *sandbox)
{
    struct error error;

    (void)error_set(&error, 0,
                    "crustd is stopping; what the helper left is removed after its start");
    log_info(NULL, "helper %s will be removed at the next start", helper_run_name(sandbox->run));
    helper_known_begin(&sandbox->known, REASON_AGENT_UNREACHABLE, &error);
    sandbox->run = helper_run_free(sandbox->run);
    free(take_pointer(&sandbox->targets));
    sandbox->helpers->running--;
    helpers_serve_soon(sandbox->helpers);
    helper_sandbox_answer_served(sandbox);
}

void helpers_abandon(struct helpers *helpers)
{
    struct helper_sandbox *sandbox;

    while ((sandbox = find_running(helpers)))
        abandon(sandbox);
}
