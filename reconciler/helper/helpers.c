/* SPDX-License-Identifier: Apache-2.0 */
/* helpers.c - who waits for a helper, which sandbox gets the next one, and what its result says to
 * those that wait; see helper.h.
 *
 * Changes only set a timer; all decisions are made in serve(), from the loop. It answers the calls
 * that need no further helper, and then begins helpers as long as there is room: first in the
 * sandboxes where one is left over, then for resizes, then for usage, the oldest call first.
 */
#include "reconciler/helper/helper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "reconciler/core/context.h"

static const uint64_t FORGET_NS = 2 * HELPER_FRESH_NS;
/* Until the next attempt to remove what was left; doubled so many times. */
static const uint64_t FIRST_PAUSE_NS = 2 * NSEC_PER_SEC;
enum { PAUSE_DOUBLINGS = 7 };

struct helpers {
    const struct context *context;
    struct helper_sandbox *sandboxes; /* with calls, a helper, leftovers or a recent answer */
    unsigned running;
    uint64_t calls; /* number of calls so far, which orders them */
    bool stopping, is_due;
    struct loop_timer timer; /* at once if is_due; else the next attempt to remove leftovers */
    struct loop_timer end;   /* after a stop: helpers that still run stay in their guests */
};

struct helper_call {
    struct helper_call *next;       /* of its sandbox, oldest first */
    struct helper_sandbox *sandbox; /* which is kept as long as it has calls */
    int64_t volume_id, binding_id;
    uint64_t device_bytes;
    enum helper_purpose purpose;
    uint64_t number;
    bool served; /* the running helper is for it, too */
    bool barred; /* by the time it could be served, its volume may no longer use a helper */
    enum volume_reason inability; /* the remembered inability of the sandbox */
    struct loop_timer deadline;
    guest_helper_done *done;
    void *userdata;
};

/* What a helper said of a volume. */
struct fact {
    struct fact *next;
    int64_t binding_id;
    uint64_t at_ns;
    bool grew;    /* the helper was to grow */
    bool is_news; /* and no call of the volume has been given it */
    struct helper_verdict verdict;
};

/* A helper that may still be in the guest. */
struct leftover {
    struct leftover *next;
    char name[HELPER_NAME_BYTES];
};

struct helper_sandbox {
    struct helper_sandbox *next;
    struct helpers *helpers;
    int64_t sandbox_ref;
    struct helper_call *calls;
    struct helper_run *run;         /* a helper, or a clean-up */
    struct helper_targets *targets; /* of the run; NULL: it is a clean-up */
    bool searched;                  /* its share was searched for what an earlier daemon left */
    bool alone; /* the last helper failed as a whole: the next one gets one volume only */

    uint64_t ended_ns; /* when the last helper ended; 0: never */
    enum volume_reason reason;
    struct error error;
    struct fact *facts;

    struct leftover *leftovers;
    unsigned failures; /* of their removal, in a row */
    uint64_t next_ns;  /* of the next attempt */
    struct error removal_error;
    uint64_t used_ns;
};

static void on_serve(struct loop_timer *timer);

static void serve_soon(struct helpers *helpers)
{
    helpers->is_due = true;
    loop_timer_start(helpers->context->loop, &helpers->timer, 0, on_serve);
}

/* NULL: no memory. */
static struct helper_sandbox *get_sandbox(struct helpers *helpers, int64_t sandbox_ref)
{
    struct helper_sandbox *sandbox = helpers->sandboxes;

    while (sandbox && sandbox->sandbox_ref != sandbox_ref)
        sandbox = sandbox->next;
    if (sandbox)
        return sandbox;
    sandbox = calloc(1, sizeof(*sandbox));
    if (!sandbox)
        return NULL;
    sandbox->helpers = helpers;
    sandbox->sandbox_ref = sandbox_ref;
    LL_PREPEND(helpers->sandboxes, sandbox);
    return sandbox;
}

/* ---- what earlier helpers left ---- */

static struct leftover *find_leftover(const struct helper_sandbox *sandbox, const char *name)
{
    struct leftover *one = sandbox->leftovers;

    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one;
}

/* Its removal has failed; NULL: it was not tried yet. It is tried after the others. Without memory
 * the record stays, and the next start finds it. */
static void put_leftover(struct helper_sandbox *sandbox, const char *name,
                         const struct error *error)
{
    struct leftover *one = find_leftover(sandbox, name);

    if (one)
        LL_DELETE(sandbox->leftovers, one);
    else
        one = calloc(1, sizeof(*one));
    if (!one)
        return;
    if (one->name != name)
        (void)snprintf(one->name, sizeof(one->name), "%s", name);
    LL_APPEND(sandbox->leftovers, one);
    if (!error)
        return;
    sandbox->next_ns = clock_boottime() + (FIRST_PAUSE_NS << sandbox->failures);
    sandbox->failures += sandbox->failures < PAUSE_DOUBLINGS;
    (void)error_set(&sandbox->removal_error, 0, "an earlier helper is still in the guest: %s",
                    error->text[0] ? error->text : "it could not be removed");
}

static void remove_leftover(struct helper_sandbox *sandbox, const char *name)
{
    struct leftover *one = find_leftover(sandbox, name);

    if (!one)
        return;
    LL_DELETE(sandbox->leftovers, one);
    free(one);
    sandbox->failures = 0;
    sandbox->next_ns = 0;
}

static bool may_remove(const struct helper_sandbox *sandbox)
{
    return sandbox->leftovers && sandbox->next_ns <= clock_boottime();
}

void helpers_note_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                           const struct error *error)
{
    struct helper_sandbox *sandbox = get_sandbox(helpers, sandbox_ref);

    if (sandbox)
        put_leftover(sandbox, name, error);
    serve_soon(helpers);
}

static int note_record(void *userdata, const struct store_helper_run *run)
{
    helpers_note_leftover(userdata, run->sandbox_ref, run->name, NULL);
    return 0;
}

static int note_name(void *userdata, const char *name)
{
    put_leftover(userdata, name, NULL);
    return 0;
}

static int search_share(void *userdata, const struct store_helper_run *run)
{
    struct helpers *helpers = userdata;
    cleanup(fd_closep) int share = -1;
    struct helper_sandbox *sandbox;
    int r = helper_share_open(helpers->context->root, run->runtime, run->sandbox_id, &share, NULL);

    if (r != HELPER_SHARE_OK)
        return r < 0 ? r : 0;
    sandbox = get_sandbox(helpers, run->sandbox_ref);
    return sandbox ? helper_share_each(share, note_name, sandbox) : -ENOMEM;
}

void helpers_start(struct helpers *helpers)
{
    int r = store_each_sandbox(helpers->context->store, true, note_record, helpers);

    if (r == 0)
        r = store_each_sandbox(helpers->context->store, false, search_share, helpers);
    if (r < 0)
        log_warning(NULL, "cannot search for helper leftovers in guests: %s", strerror(-r));
    serve_soon(helpers);
}

/* ---- what the last helpers said ---- */

static struct fact *find_fact(const struct helper_sandbox *sandbox, int64_t binding_id)
{
    struct fact *fact = sandbox->facts;

    while (fact && fact->binding_id != binding_id)
        fact = fact->next;
    return fact;
}

static void note_end(struct helper_sandbox *sandbox, enum volume_reason reason,
                     const struct error *error)
{
    struct fact *fact, *next;

    sandbox->ended_ns = clock_boottime();
    sandbox->reason = reason;
    sandbox->error = *error;
    LL_FOREACH_SAFE(sandbox->facts, fact, next)
    if (sandbox->ended_ns - fact->at_ns >= FORGET_NS) {
        LL_DELETE(sandbox->facts, fact);
        free(fact);
    }
}

/* Without memory nothing is remembered, so a helper is asked again. */
static void put_fact(struct helper_sandbox *sandbox, const struct helper_target *target,
                     const struct helper_report *report)
{
    struct fact *fact = find_fact(sandbox, target->binding_id);
    struct helper_volume candidates[HELPER_CANDIDATES];

    if (!fact) {
        fact = calloc(1, sizeof(*fact));
        if (!fact)
            return;
        LL_PREPEND(sandbox->facts, fact);
    }
    fact->binding_id = target->binding_id;
    fact->at_ns = sandbox->ended_ns;
    fact->grew = sandbox->targets->grow;
    fact->is_news = true;
    for (unsigned i = 0; i < target->candidates; i++)
        candidates[i] = report->volume[target->candidate[i]];
    helper_judge(candidates, target->candidates, target->device_bytes, fact->grew, &fact->verdict);
}

/* ---- answers ---- */

struct helper_call *helper_call_free(struct helper_call *call)
{
    if (!call)
        return NULL;
    LL_DELETE(call->sandbox->calls, call);
    loop_timer_stop(&call->deadline);
    free(call);
    return NULL;
}

/* From within, the caller may call again, or free other calls. fact: NULL if there is none. */
static void answer(struct helper_call *call, enum volume_reason reason, const char *text,
                   const struct fact *fact)
{
    struct guest_helper_reply reply = {.reason = reason};
    guest_helper_done *done = call->done;
    void *userdata = call->userdata;

    if (fact) {
        reply.stats = fact->verdict.stats;
        reply.age_ns = clock_boottime() - fact->at_ns;
    }
    if (reason != REASON_NONE)
        (void)error_set(&reply.error, 0, "%s", text);
    (void)helper_call_free(call);
    done(&reply, userdata);
}

static bool turn_away(struct helper_call *call, enum volume_reason reason, const char *text)
{
    answer(call, reason, text, NULL);
    return true;
}

static void answer_by_fact(struct helper_call *call, const struct fact *fact)
{
    const struct helper_verdict *verdict = &fact->verdict;

    answer(call, verdict->reason, verdict->text[0] ? verdict->text : reason_name(verdict->reason),
           fact);
}

/* Calls for usage wait until the next helper is due; until then the known answer is used. */
static bool answer_count(const struct helper_sandbox *sandbox, struct helper_call *call,
                         const struct fact *fact)
{
    const uint64_t now = clock_boottime();
    enum volume_reason reason = sandbox->reason;
    const char *why = sandbox->error.text;
    char text[ERROR_TEXT_BYTES];

    if (call->inability != REASON_NONE)
        return turn_away(call, call->inability,
                         "the helper was found of no use in this sandbox before");
    if (fact && now - fact->at_ns < HELPER_FRESH_NS && fact->verdict.stats.has_bytes) {
        answer(call, REASON_NONE, "", fact);
        return true;
    }
    if (!sandbox->ended_ns || now - sandbox->ended_ns >= HELPER_FRESH_NS)
        return false;
    if (reason == REASON_NONE) {
        why = fact && fact->verdict.text[0] ? fact->verdict.text : "the volume was not there yet";
        reason = fact && fact->verdict.reason != REASON_NONE ? fact->verdict.reason
                                                             : REASON_HELPER_FAILED;
    }
    (void)snprintf(text, sizeof(text),
                   "%.150s (tried %" PRIu32 " s ago; a helper counts at most once in %d s)", why,
                   (uint32_t)((now - sandbox->ended_ns) / NSEC_PER_SEC),
                   (int)(HELPER_FRESH_NS / NSEC_PER_SEC));
    return turn_away(call, reason, text);
}

/* Answers without a helper, if possible. A helper that ran for another volume of the sandbox has
 * grown this one, too, or has found why it cannot. A result from when the device was smaller does
 * not count. */
static bool answer_now(const struct helper_sandbox *sandbox, struct helper_call *call)
{
    struct fact *fact = find_fact(sandbox, call->binding_id);

    if (call->served)
        return false;
    if (sandbox->helpers->stopping)
        return turn_away(call, REASON_AGENT_UNREACHABLE, "crustd is stopping");
    if (call->barred)
        return turn_away(call, REASON_AGENT_UNREACHABLE,
                         "crustd may not use a helper for this volume any more: its policy, its "
                         "binding or the configuration has changed");
    if (sandbox->leftovers && !may_remove(sandbox))
        return turn_away(call, REASON_HELPER_FAILED, sandbox->removal_error.text);
    if (call->purpose == HELPER_STATS)
        return answer_count(sandbox, call, fact);
    if (!fact || !fact->is_news || !fact->grew ||
        clock_boottime() - fact->at_ns >= HELPER_FRESH_NS ||
        fact->verdict.device_bytes < call->device_bytes)
        return false;
    fact->is_news = false;
    answer_by_fact(call, fact);
    return true;
}

/* The helper that ran for these calls has ended. Each has its answer then, so the fact is no longer
 * news. If there is none, the call's places were withheld from the helper or did not fit. */
static void answer_served(struct helper_sandbox *sandbox)
{
    struct helper_call *call = sandbox->calls;

    while (call) {
        struct fact *fact = find_fact(sandbox, call->binding_id);

        if (!call->served) {
            call = call->next;
            continue;
        }
        if (fact)
            fact->is_news = false;
        if (sandbox->reason != REASON_NONE)
            answer(call, sandbox->reason, sandbox->error.text, NULL);
        else if (fact && fact->at_ns == sandbox->ended_ns)
            answer_by_fact(call, fact);
        else
            answer(call, REASON_GUEST_PATH_UNKNOWN,
                   "the helper was not told of this volume: no place in the guest is known to be "
                   "its",
                   NULL);
        call = sandbox->calls;
    }
}

/* ---- one helper ---- */

static void end_run(struct helper_sandbox *sandbox)
{
    sandbox->run = helper_run_free(sandbox->run);
    free(take_pointer(&sandbox->targets));
    sandbox->helpers->running--;
    sandbox->used_ns = clock_boottime();
    serve_soon(sandbox->helpers);
}

static void on_end(struct helper_run *run, const struct helper_outcome *outcome, void *userdata)
{
    struct helper_sandbox *sandbox = userdata;
    const struct helper_targets *targets = sandbox->targets;

    if (targets) {
        note_end(sandbox, outcome->reason, &outcome->error);
        sandbox->alone = outcome->reason == REASON_HELPER_FAILED;
        if (targets->paths == 0)
            sandbox->ended_ns = 0; /* nothing ran, so calls for usage need not wait */
        if (outcome->reason != REASON_NONE)
            log_info(NULL, "a helper failed: %s: %s", reason_name(outcome->reason),
                     outcome->error.text);
        else
            for (unsigned i = 0; i < targets->targets; i++)
                put_fact(sandbox, &targets->target[i], &outcome->report);
    }
    if (outcome->left)
        put_leftover(sandbox, helper_run_name(run), &outcome->removal_error);
    else
        remove_leftover(sandbox, helper_run_name(run));
    end_run(sandbox);
    if (targets)
        answer_served(sandbox);
}

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
    const struct context *context = call->sandbox->helpers->context;
    cleanup(freep) struct store_volume *volume = malloc(sizeof(*volume));

    call->barred =
        volume && store_get_volume(context->store, call->volume_id, volume) == 0 &&
        (volume->binding_id != call->binding_id || !helper_is_possible(context->config, volume));
    call->served = !call->barred;
    if (volume && call->served)
        helper_targets_add(context, volume, targets);
}

/* After a helper failed as a whole, the next one gets a single volume: one mount in the guest that
 * is gone or hangs makes the helper fail for all volumes. There is no run if all waiting calls are
 * barred. */
static int begin_helper(struct helper_sandbox *sandbox, const struct store_helper_run *run)
{
    const struct context *context = sandbox->helpers->context;
    struct helper_task task = {.sandbox = *run, .grow = has_purpose(sandbox, HELPER_RESIZE)};
    struct helper_targets *targets = sandbox->targets = calloc(1, sizeof(*targets));
    bool is_for_any = false;
    int r;

    if (!targets)
        return -ENOMEM;
    targets->grow = task.grow;
    r = helper_targets_begin(context, run->sandbox_id, sandbox->sandbox_ref, targets);
    for (struct helper_call *call = r == 0 ? sandbox->calls : NULL; call; call = call->next) {
        if ((call->purpose == HELPER_RESIZE || !task.grow) &&
            (!sandbox->alone || targets->targets == 0))
            serve_call(call, targets);
        is_for_any = is_for_any || call->served;
    }
    if (r == 0 && !sandbox->alone)
        helper_targets_complete(context, run->sandbox_id, sandbox->sandbox_ref, targets);
    task.withheld = targets->withheld;
    task.paths = targets->paths;
    for (unsigned i = 0; i < task.paths; i++)
        task.path[i] = targets->path[i];
    if (is_for_any)
        r = helper_run_new(context, &task, on_end, sandbox, &sandbox->run);
    if (!sandbox->run)
        free(take_pointer(&sandbox->targets));
    return r;
}

/* The sandbox may have been found after the start, so its share is searched before its first
 * helper. What is left is removed before another helper begins, and retried later if that cannot
 * begin. */
static void begin(struct helper_sandbox *sandbox)
{
    struct helpers *helpers = sandbox->helpers;
    struct store_helper_run run;
    struct error error;
    int r = store_get_helper_sandbox(helpers->context->store, sandbox->sandbox_ref, &run);

    if (r == 0 && !sandbox->searched && run.is_alive)
        r = search_share(helpers, &run);
    sandbox->searched = sandbox->searched || r >= 0;
    if (r >= 0 && may_remove(sandbox)) {
        (void)snprintf(run.name, sizeof(run.name), "%s", sandbox->leftovers->name);
        r = helper_run_new(helpers->context, &(struct helper_task){.sandbox = run}, on_end, sandbox,
                           &sandbox->run);
    } else if (r >= 0) {
        r = begin_helper(sandbox, &run);
    }
    helpers->running += sandbox->run != NULL;
    if (r >= 0)
        return;
    (void)error_set_errno(&error, r, "the helper cannot begin");
    if (may_remove(sandbox))
        put_leftover(sandbox, sandbox->leftovers->name, &error);
    note_end(sandbox, REASON_HELPER_FAILED, &error);
    for (struct helper_call *call = sandbox->calls; call; call = call->next)
        call->served = true;
    answer_served(sandbox);
}

/* ---- the next one ---- */

/* Picks the sandbox of the call that has waited longest; resizes come first, and what is left over
 * before them. */
static struct helper_sandbox *find_next(const struct helpers *helpers)
{
    struct helper_sandbox *found = NULL, *sandbox;
    uint64_t least = UINT64_MAX;

    for (enum helper_purpose purpose = HELPER_RESIZE; !found && purpose <= HELPER_STATS; purpose++)
        LL_FOREACH(helpers->sandboxes, sandbox)
        {
            const uint64_t number = sandbox->calls ? sandbox->calls->number : 0;

            if (sandbox->run || number >= least ||
                !(may_remove(sandbox) || (!sandbox->leftovers && has_purpose(sandbox, purpose))))
                continue;
            found = sandbox;
            least = number;
        }
    return found;
}

static void serve(struct helpers *helpers)
{
    const unsigned most = helpers->stopping ? 0 : helpers->context->config->guest.helpers;
    uint64_t next_ns = UINT64_MAX, now;
    struct helper_sandbox *sandbox;

    do {
        LL_FOREACH(helpers->sandboxes, sandbox)
        for (struct helper_call *call = sandbox->calls; call;)
            call = answer_now(sandbox, call) ? sandbox->calls : call->next;
        sandbox = helpers->running < most ? find_next(helpers) : NULL;
        if (sandbox)
            begin(sandbox);
    } while (sandbox);
    if (helpers->is_due || helpers->stopping)
        return;
    now = clock_boottime();
    LL_FOREACH(helpers->sandboxes, sandbox)
    if (sandbox->leftovers && !sandbox->run && sandbox->next_ns > now && sandbox->next_ns < next_ns)
        next_ns = sandbox->next_ns;
    if (next_ns != UINT64_MAX)
        loop_timer_start(helpers->context->loop, &helpers->timer, next_ns - now, on_serve);
}

static void on_serve(struct loop_timer *timer)
{
    struct helpers *helpers = container_of(timer, struct helpers, timer);

    helpers->is_due = false;
    serve(helpers);
}

/* ---- calls ---- */

static void on_deadline(struct loop_timer *timer)
{
    struct helper_call *call = container_of(timer, struct helper_call, deadline);

    if (!call->served)
        answer(call, REASON_AGENT_UNREACHABLE, "other helpers on this node took all of the time",
               NULL);
}

int helper_call_new(struct helpers *helpers, const struct store_volume *volume,
                    enum helper_purpose purpose, uint64_t wait_ns, guest_helper_done *done,
                    void *userdata, struct helper_call **ret_call)
{
    struct helper_sandbox *sandbox = get_sandbox(helpers, volume->sandbox_ref);
    struct helper_call *call = sandbox ? calloc(1, sizeof(*call)) : NULL;

    if (!call)
        return -ENOMEM;
    *call = (struct helper_call){
        .sandbox = sandbox,
        .volume_id = volume->volume_id,
        .binding_id = volume->binding_id,
        .device_bytes = volume->device_bytes,
        .purpose = purpose,
        .number = ++helpers->calls,
        .inability = reason_from_name(volume->ability[ROUTE_HELPER]),
        .done = done,
        .userdata = userdata,
    };
    LL_APPEND(sandbox->calls, call);
    sandbox->used_ns = clock_boottime();
    if (wait_ns)
        loop_timer_start(helpers->context->loop, &call->deadline, wait_ns, on_deadline);
    serve_soon(helpers);
    *ret_call = call;
    return 0;
}

/* ---- all of them ---- */

struct helpers *helpers_new(const struct context *context)
{
    struct helpers *helpers = calloc(1, sizeof(*helpers));

    if (helpers)
        helpers->context = context;
    return helpers;
}

static void drop_sandbox(struct helper_sandbox *sandbox)
{
    struct fact *fact, *next;

    LL_DELETE(sandbox->helpers->sandboxes, sandbox);
    (void)helper_run_free(sandbox->run);
    free(sandbox->targets);
    LL_FOREACH_SAFE(sandbox->facts, fact, next)
    free(fact);
    while (sandbox->leftovers)
        remove_leftover(sandbox, sandbox->leftovers->name);
    free(sandbox);
}

void helpers_sweep(struct helpers *helpers)
{
    const uint64_t now = clock_boottime();
    struct helper_sandbox *sandbox, *next;

    LL_FOREACH_SAFE(helpers->sandboxes, sandbox, next)
    if (!sandbox->calls && !sandbox->run && !sandbox->leftovers &&
        now - sandbox->used_ns >= FORGET_NS)
        drop_sandbox(sandbox);
}

static void on_abandon(struct loop_timer *timer)
{
    struct helpers *helpers = container_of(timer, struct helpers, end);
    struct helper_sandbox *sandbox;
    struct error error;

    (void)error_set(&error, 0,
                    "crustd is stopping; what the helper left is removed after its start");
    LL_FOREACH(helpers->sandboxes, sandbox)
    if (sandbox->run) {
        log_info(NULL, "helper %s will be removed at the next start",
                 helper_run_name(sandbox->run));
        note_end(sandbox, REASON_AGENT_UNREACHABLE, &error);
        end_run(sandbox);
        answer_served(sandbox);
    }
}

/* Killing and removing a helper that hangs takes several steps, each of which may hang as well. */
void helpers_stop(struct helpers *helpers)
{
    helpers->stopping = true;
    serve_soon(helpers);
    loop_timer_start(helpers->context->loop, &helpers->end,
                     helpers->context->config->resize.call_timeout_seconds * NSEC_PER_SEC,
                     on_abandon);
}

bool helpers_are_idle(const struct helpers *helpers)
{
    const struct helper_sandbox *sandbox = helpers->sandboxes;

    while (sandbox && !sandbox->calls)
        sandbox = sandbox->next;
    return !helpers->running && !helpers->is_due && !sandbox;
}

struct helpers *helpers_free(struct helpers *helpers)
{
    if (!helpers)
        return NULL;
    while (helpers->sandboxes) {
        while (helpers->sandboxes->calls)
            answer(helpers->sandboxes->calls, REASON_AGENT_UNREACHABLE, "crustd stops", NULL);
        drop_sandbox(helpers->sandboxes);
    }
    loop_timer_stop(&helpers->timer);
    loop_timer_stop(&helpers->end);
    free(helpers);
    return NULL;
}
