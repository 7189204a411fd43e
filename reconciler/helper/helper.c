/* SPDX-License-Identifier: Apache-2.0 */
/* helper.c - who waits for a helper, who gets the next one, and what it came to.
 *
 * All decisions fall in serve(), which runs from the loop: whatever changes only sets its timer.
 */
#include "reconciler/helper/helper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/hash.h"
#include "lib/log.h"
#include "reconciler/core/internal.h"
#include "reconciler/helper/judge.h"
#include "reconciler/helper/known.h"
#include "reconciler/helper/leftovers.h"
#include "reconciler/helper/run.h"
#include "reconciler/helper/targets.h"

static const uint64_t FORGET_NS = 2 * HELPER_FRESH_NS;

struct helper_call {
    struct helper_call *next; /* of its sandbox, oldest first */
    struct reconciler *reconciler;
    int64_t sandbox_ref, volume_id, mapping_id;
    uint64_t device_bytes;
    enum helper_purpose purpose;
    uint64_t number;
    bool served; /* the helper that runs is for it, too */
    bool expired;
    bool barred; /* by the time of its turn, no helper may be used for its volume */
    enum volume_reason inability; /* what the sandbox is remembered for */
    struct loop_timer deadline;
    helper_done *done;
    void *userdata;
};

struct helper_sandbox {
    UT_hash_handle hh;
    struct reconciler *reconciler;
    int64_t sandbox_ref;
    struct helper_call *calls;
    struct helper_run *run; /* a helper, or the removal of one */
    bool grows;
    struct helper_targets *targets; /* of the run; NULL: it is no helper's */
    bool searched;                  /* its share, for what an earlier daemon left */
    bool alone; /* the last helper failed as a whole: the next is given one volume */
    struct helper_known known;
    struct helper_leftovers leftovers;
    uint64_t used_ns;
};

static void serve_soon(struct reconciler *reconciler);

/* ---- sandboxes --------------------------------------------------------------------------- */

static struct helper_sandbox *find_sandbox(struct reconciler *reconciler, int64_t sandbox_ref)
{
    struct helper_sandbox *sandbox;

    HASH_FIND(hh, reconciler->helpers.sandboxes, &sandbox_ref, sizeof(sandbox_ref), sandbox);
    return sandbox;
}

static struct helper_sandbox *get_sandbox(struct reconciler *reconciler, int64_t sandbox_ref)
{
    struct helper_sandbox *sandbox = find_sandbox(reconciler, sandbox_ref);

    if (sandbox)
        return sandbox;
    sandbox = calloc(1, sizeof(*sandbox));
    if (!sandbox)
        return NULL;
    sandbox->reconciler = reconciler;
    sandbox->sandbox_ref = sandbox_ref;
    HASH_ADD(hh, reconciler->helpers.sandboxes, sandbox_ref, sizeof(sandbox->sandbox_ref), sandbox);
    if (!sandbox->hh.tbl) {
        free(sandbox);
        return NULL;
    }
    return sandbox;
}

static void drop_sandbox(struct helper_sandbox *sandbox)
{
    HASH_DEL(sandbox->reconciler->helpers.sandboxes, sandbox);
    (void)helper_run_free(sandbox->run);
    free(sandbox->targets);
    helper_known_done(&sandbox->known);
    helper_leftovers_done(&sandbox->leftovers);
    free(sandbox);
}

/* ---- answers ----------------------------------------------------------------------------- */

static void unlink_call(struct helper_call *call)
{
    struct helper_sandbox *sandbox = find_sandbox(call->reconciler, call->sandbox_ref);
    struct helper_call **link = sandbox ? &sandbox->calls : NULL;

    while (link && *link && *link != call)
        link = &(*link)->next;
    if (link && *link)
        *link = call->next;
}

struct helper_call *helper_call_free(struct helper_call *call)
{
    if (!call)
        return NULL;
    unlink_call(call);
    loop_timer_stop(&call->deadline);
    free(call);
    return NULL;
}

/* Whoever is told may ask again. */
static void answer(struct helper_call *call, const struct helper_reply *reply)
{
    helper_done *done = call->done;
    void *userdata = call->userdata;

    (void)helper_call_free(call);
    done(reply, userdata);
}

static void refuse(struct helper_call *call, enum volume_reason reason, const char *text)
{
    struct helper_reply reply = {.reason = reason};

    (void)error_set(&reply.error, 0, "%s", text);
    answer(call, &reply);
}

static void answer_by_fact(struct helper_call *call, const struct helper_fact *fact)
{
    struct helper_reply reply = {
        .reason = fact->reason,
        .stats = fact->stats,
        .age_ns = clock_boottime() - fact->at_ns,
    };

    if (fact->reason != REASON_NONE)
        (void)error_set(&reply.error, 0, "%s", fact->text ? fact->text : reason_name(fact->reason));
    answer(call, &reply);
}

/* The helper that ran for it was given no place of it, or there was no room for its places. */
static void answer_by_run(const struct helper_sandbox *sandbox, struct helper_call *call)
{
    const struct helper_fact *fact = helper_known_find(&sandbox->known, call->mapping_id);

    if (sandbox->known.reason != REASON_NONE)
        refuse(call, sandbox->known.reason, sandbox->known.error.text);
    else if (fact && fact->at_ns == sandbox->known.at_ns)
        answer_by_fact(call, fact);
    else
        refuse(call, REASON_GUEST_PATH_UNKNOWN,
               "the helper was not told of this volume: no place in the guest is known to be its");
}

static uint32_t seconds_since(uint64_t ns)
{
    return (uint32_t)((clock_boottime() - ns) / NSEC_PER_SEC);
}

/* Counting waits for its time; meanwhile what is known serves. */
static bool answer_count(const struct helper_sandbox *sandbox, struct helper_call *call)
{
    const struct helper_known *known = &sandbox->known;
    const struct helper_fact *fact = helper_known_find(known, call->mapping_id);
    uint64_t now = clock_boottime();
    char text[ERROR_TEXT_BYTES];

    if (call->inability != REASON_NONE) {
        refuse(call, call->inability, "the helper was found of no use in this sandbox before");
        return true;
    }
    if (fact && now - fact->at_ns < HELPER_FRESH_NS && fact->stats.has_bytes) {
        struct helper_reply reply = {.stats = fact->stats, .age_ns = now - fact->at_ns};

        answer(call, &reply);
        return true;
    }
    if (!known->at_ns || now - known->at_ns >= HELPER_FRESH_NS)
        return false;
    (void)snprintf(text, sizeof(text),
                   "%.150s (tried %" PRIu32 " s ago; a helper counts at most once in %d s)",
                   known->reason != REASON_NONE ? known->error.text
                   : fact && fact->text         ? fact->text
                                                : "the volume was not there yet",
                   seconds_since(known->at_ns), (int)(HELPER_FRESH_NS / NSEC_PER_SEC));
    refuse(call,
           known->reason != REASON_NONE          ? known->reason
           : fact && fact->reason != REASON_NONE ? fact->reason
                                                 : REASON_HELPER_FAILED,
           text);
    return true;
}

/* A helper that ran for another volume of the sandbox has grown this one, too, or has found why
 * not. What it found while the device was smaller is no answer. */
static bool answer_growth(struct helper_sandbox *sandbox, struct helper_call *call)
{
    struct helper_fact *fact = helper_known_find(&sandbox->known, call->mapping_id);

    if (!fact || !fact->is_news || !fact->grew ||
        clock_boottime() - fact->at_ns >= HELPER_FRESH_NS ||
        fact->device_bytes < call->device_bytes)
        return false;
    fact->is_news = false;
    answer_by_fact(call, fact);
    return true;
}

/* Without a helper, if that is possible. */
static bool answer_now(struct helper_sandbox *sandbox, struct helper_call *call)
{
    if (call->served)
        return false;
    if (sandbox->reconciler->stopping) {
        refuse(call, REASON_AGENT_UNREACHABLE, "crustd is stopping");
        return true;
    }
    if (call->barred) {
        refuse(call, REASON_AGENT_UNREACHABLE,
               "crustd may not use a helper for this volume any more: its policy, its binding or "
               "the configuration has changed");
        return true;
    }
    if (call->expired) {
        refuse(call, REASON_AGENT_UNREACHABLE, "other helpers on this node took all of the time");
        return true;
    }
    if (helper_leftovers_are_stuck(&sandbox->leftovers)) {
        refuse(call, REASON_HELPER_FAILED, sandbox->leftovers.error.text);
        return true;
    }
    return call->purpose == HELPER_COUNT ? answer_count(sandbox, call)
                                         : answer_growth(sandbox, call);
}

/* Each answer may change everything: it begins anew after one. */
static void answer_all(struct reconciler *reconciler)
{
    struct helper_sandbox *sandbox, *next;
    bool answered;

    do {
        answered = false;
        HASH_ITER (hh, reconciler->helpers.sandboxes, sandbox, next) {
            for (struct helper_call *call = sandbox->calls; call && !answered; call = call->next) {
                answered = answer_now(sandbox, call);
                if (answered)
                    break;
            }
            if (answered)
                break;
        }
    } while (answered);
}

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
        sandbox->known.at_ns = 0; /* nothing ran: who counts need not wait */
    for (unsigned i = 0; outcome->reason == REASON_NONE && i < targets->targets; i++) {
        const struct helper_target *target = &targets->target[i];
        struct helper_verdict verdict;

        judge(target, &outcome->report, sandbox->grows, &verdict);
        helper_known_put(&sandbox->known, target->mapping_id, sandbox->grows, &verdict);
    }
}

/* The volume that asked has heard it. */
static void answer_served(struct helper_sandbox *sandbox)
{
    struct helper_call *call;

    for (;;) {
        struct helper_fact *fact;

        for (call = sandbox->calls; call && !call->served; call = call->next)
            ;
        if (!call)
            return;
        fact = helper_known_find(&sandbox->known, call->mapping_id);
        if (fact)
            fact->is_news = false;
        answer_by_run(sandbox, call);
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
    sandbox->reconciler->helpers.running--;
    sandbox->used_ns = clock_boottime();
    serve_soon(sandbox->reconciler);
}

static void on_helper(struct helper_run *run, const struct helper_outcome *outcome, void *userdata)
{
    struct helper_sandbox *sandbox = userdata;

    (void)run;
    if (outcome->reason != REASON_NONE)
        log_info(NULL, "a helper came to nothing: %s: %s", reason_name(outcome->reason),
                 outcome->error.text);
    learn(sandbox, outcome);
    end_run(sandbox, outcome);
    answer_served(sandbox);
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

/* Policy, binding and configuration may be others than when it was asked for. */
static void serve_call(struct helper_call *call, struct helper_targets *targets)
{
    struct reconciler *reconciler = call->reconciler;
    cleanup(freep) struct store_volume *volume = malloc(sizeof(*volume));

    call->barred =
        volume && store_get_volume(reconciler->store, call->volume_id, volume) == 0 &&
        (volume->mapping_id != call->mapping_id || !helper_is_possible(reconciler, volume));
    call->served = !call->barred;
    if (volume && call->served)
        helper_targets_add(reconciler, volume, targets);
}

/* One volume whose place in the guest is gone, or hangs, fails the helper for all of them. */
static int serve_calls(struct helper_sandbox *sandbox, struct helper_task *task)
{
    struct helper_targets *targets = sandbox->targets;
    int r;

    targets->grow = task->grow;
    r = helper_targets_begin(sandbox->reconciler, task->sandbox.sandbox_id, sandbox->sandbox_ref,
                             targets);
    if (r < 0)
        return r;
    for (struct helper_call *call = sandbox->calls; call; call = call->next)
        if ((call->purpose == HELPER_GROW || !task->grow) &&
            (!sandbox->alone || targets->targets == 0))
            serve_call(call, targets);
    if (!sandbox->alone)
        helper_targets_complete(sandbox->reconciler, task->sandbox.sandbox_id, sandbox->sandbox_ref,
                                targets);
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

/* Without a run where all that waited for one are barred. */
static int begin_helper(struct helper_sandbox *sandbox)
{
    struct helper_task task = {.grow = has_purpose(sandbox, HELPER_GROW)};
    int r =
        store_get_helper_sandbox(sandbox->reconciler->store, sandbox->sandbox_ref, &task.sandbox);

    if (r < 0)
        return r;
    sandbox->targets = calloc(1, sizeof(*sandbox->targets));
    if (!sandbox->targets)
        return -ENOMEM;
    sandbox->grows = task.grow;
    r = serve_calls(sandbox, &task);
    if (r == 0 && serves_any(sandbox))
        r = helper_run_new(sandbox->reconciler, &task, on_helper, sandbox, &sandbox->run);
    if (!sandbox->run)
        free(take_pointer(&sandbox->targets));
    return r;
}

static int begin_clean_up(struct helper_sandbox *sandbox, const char *name)
{
    struct store_helper_run run;
    int r = store_get_helper_sandbox(sandbox->reconciler->store, sandbox->sandbox_ref, &run);

    if (r < 0)
        return r;
    (void)snprintf(run.name, sizeof(run.name), "%s", name);
    return helper_run_clean_up(sandbox->reconciler, &run, on_cleaned_up, sandbox, &sandbox->run);
}

struct search {
    struct reconciler *reconciler;
    struct store_helper_run run;
};

static int note_leftover(void *userdata, const struct store_helper_run *run)
{
    struct helper_sandbox *sandbox = get_sandbox(userdata, run->sandbox_ref);

    if (sandbox)
        helper_leftovers_put(&sandbox->leftovers, run->name, NULL);
    return sandbox ? 0 : -ENOMEM;
}

static int note_name(void *userdata, const char *name)
{
    struct search *search = userdata;

    (void)snprintf(search->run.name, sizeof(search->run.name), "%s", name);
    return note_leftover(search->reconciler, &search->run);
}

static int search_share(void *userdata, const struct store_helper_run *run)
{
    struct search search = {userdata, *run};

    return helper_leftovers_search(search.reconciler->root, run, note_name, &search);
}

/* Before its first helper: it may have been found after the start. */
static int search_sandbox(struct helper_sandbox *sandbox)
{
    struct store_helper_run run;
    int r = 0;

    if (sandbox->searched)
        return 0;
    r = store_get_helper_sandbox(sandbox->reconciler->store, sandbox->sandbox_ref, &run);
    if (r == 0 && run.is_alive)
        r = search_share(sandbox->reconciler, &run);
    sandbox->searched = r == 0;
    return r;
}

static int begin(struct helper_sandbox *sandbox)
{
    int r = search_sandbox(sandbox);
    const char *leftover = helper_leftovers_due(&sandbox->leftovers);

    if (r == 0)
        r = leftover ? begin_clean_up(sandbox, leftover) : begin_helper(sandbox);
    sandbox->reconciler->helpers.running += sandbox->run != NULL;
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

/* Who waits longest; those first that are to grow. */
static struct helper_sandbox *find_next(struct reconciler *reconciler)
{
    struct helper_sandbox *found = NULL, *sandbox, *next;

    for (enum helper_purpose purpose = HELPER_GROW; !found && purpose <= HELPER_COUNT; purpose++)
        HASH_ITER (hh, reconciler->helpers.sandboxes, sandbox, next)
            if (is_waiting(sandbox, purpose) && (!found || turn_of(sandbox) < turn_of(found)))
                found = sandbox;
    return found;
}

/* What was left is tried again later, as after a removal that failed. */
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
    answer_served(sandbox);
}

static bool has_room(const struct reconciler *reconciler)
{
    return !reconciler->stopping && reconciler->helpers.running < reconciler->config.guest.helpers;
}

static void wait_for_leftovers(struct reconciler *reconciler);

static void serve(struct reconciler *reconciler)
{
    struct helper_sandbox *sandbox;

    do {
        int r;

        answer_all(reconciler);
        sandbox = has_room(reconciler) ? find_next(reconciler) : NULL;
        r = sandbox ? begin(sandbox) : 0;
        if (r < 0)
            fail_begin(sandbox, r);
    } while (sandbox);
    wait_for_leftovers(reconciler);
}

static void on_serve(struct loop_timer *timer)
{
    struct helpers *helpers = container_of(timer, struct helpers, timer);

    serve(container_of(helpers, struct reconciler, helpers));
}

static void on_later(struct loop_timer *timer)
{
    struct helpers *helpers = container_of(timer, struct helpers, later);

    serve(container_of(helpers, struct reconciler, helpers));
}

static void serve_soon(struct reconciler *reconciler)
{
    loop_timer_start(reconciler->loop, &reconciler->helpers.timer, 0, on_serve);
}

static void wait_for_leftovers(struct reconciler *reconciler)
{
    struct helper_sandbox *sandbox, *next;
    uint64_t least = UINT64_MAX;

    HASH_ITER (hh, reconciler->helpers.sandboxes, sandbox, next) {
        uint64_t wait = sandbox->run ? UINT64_MAX : helper_leftovers_wait(&sandbox->leftovers);

        least = wait < least ? wait : least;
    }
    if (least == UINT64_MAX || least == 0 || reconciler->stopping)
        loop_timer_stop(&reconciler->helpers.later);
    else
        loop_timer_start(reconciler->loop, &reconciler->helpers.later, least, on_later);
}

/* ---- calls ------------------------------------------------------------------------------- */

static void on_deadline(struct loop_timer *timer)
{
    struct helper_call *call = container_of(timer, struct helper_call, deadline);

    call->expired = true;
    serve_soon(call->reconciler);
}

static enum volume_reason inability_of(const struct store_volume *volume)
{
    const char *ability = volume->ability[STORE_ROUTE_HELPER];

    return strcmp(ability, "able") == 0 ? REASON_NONE : reason_from_name(ability);
}

int helper_call_new(struct reconciler *reconciler, const struct store_volume *volume,
                    enum helper_purpose purpose, uint64_t deadline_ns, helper_done *done,
                    void *userdata, struct helper_call **ret_call)
{
    struct helper_sandbox *sandbox = get_sandbox(reconciler, volume->sandbox_ref);
    struct helper_call *call = sandbox ? calloc(1, sizeof(*call)) : NULL;
    struct helper_call **link;

    if (!call)
        return -ENOMEM;
    call->reconciler = reconciler;
    call->sandbox_ref = volume->sandbox_ref;
    call->volume_id = volume->volume_id;
    call->mapping_id = volume->mapping_id;
    call->device_bytes = volume->device_bytes;
    call->purpose = purpose;
    call->number = ++reconciler->helpers.calls;
    call->inability = inability_of(volume);
    call->done = done;
    call->userdata = userdata;
    for (link = &sandbox->calls; *link; link = &(*link)->next)
        ;
    *link = call;
    sandbox->used_ns = clock_boottime();
    if (deadline_ns)
        loop_timer_start(reconciler->loop, &call->deadline, deadline_ns, on_deadline);
    serve_soon(reconciler);
    *ret_call = call;
    return 0;
}

/* ---- all of them ------------------------------------------------------------------------- */

void helpers_start(struct reconciler *reconciler)
{
    int r = store_each_helper_run(reconciler->store, note_leftover, reconciler);

    if (r == 0)
        r = store_each_helper_sandbox(reconciler->store, search_share, reconciler);
    if (r < 0)
        log_warning(NULL, "cannot look for what helpers left in guests: %s", strerror(-r));
    serve_soon(reconciler);
}

static struct helper_sandbox *find_running(struct reconciler *reconciler)
{
    struct helper_sandbox *sandbox, *next;

    HASH_ITER (hh, reconciler->helpers.sandboxes, sandbox, next)
        if (sandbox->run)
            return sandbox;
    return NULL;
}

static void abandon(struct helper_sandbox *sandbox)
{
    struct error error;

    (void)error_set(&error, 0,
                    "crustd is stopping; what the helper left is removed after its start");
    log_info(NULL, "helper %s is left for the next start", helper_run_name(sandbox->run));
    helper_known_begin(&sandbox->known, REASON_AGENT_UNREACHABLE, &error);
    sandbox->run = helper_run_free(sandbox->run);
    free(take_pointer(&sandbox->targets));
    sandbox->reconciler->helpers.running--;
    serve_soon(sandbox->reconciler);
    answer_served(sandbox);
}

static void on_end(struct loop_timer *timer)
{
    struct helpers *helpers = container_of(timer, struct helpers, end);
    struct reconciler *reconciler = container_of(helpers, struct reconciler, helpers);
    struct helper_sandbox *sandbox;

    while ((sandbox = find_running(reconciler)))
        abandon(sandbox);
}

/* A helper that hangs would be killed and removed step by step, each of which may hang as well. */
void helpers_stop(struct reconciler *reconciler)
{
    serve_soon(reconciler);
    loop_timer_start(reconciler->loop, &reconciler->helpers.end,
                     reconciler->config.resize.call_timeout_seconds * NSEC_PER_SEC, on_end);
}

void helpers_sweep(struct reconciler *reconciler)
{
    uint64_t now = clock_boottime();
    struct helper_sandbox *sandbox, *next;

    HASH_ITER (hh, reconciler->helpers.sandboxes, sandbox, next)
        if (!sandbox->calls && !sandbox->run && helper_leftovers_are_none(&sandbox->leftovers) &&
            now - sandbox->used_ns >= FORGET_NS)
            drop_sandbox(sandbox);
}

bool helpers_are_idle(const struct reconciler *reconciler)
{
    struct helper_sandbox *sandbox, *next;

    if (reconciler->helpers.running || loop_timer_is_active(&reconciler->helpers.timer))
        return false;
    HASH_ITER (hh, reconciler->helpers.sandboxes, sandbox, next)
        if (sandbox->calls)
            return false;
    return true;
}

void helpers_done(struct reconciler *reconciler)
{
    while (reconciler->helpers.sandboxes) {
        struct helper_sandbox *sandbox = reconciler->helpers.sandboxes;

        while (sandbox->calls)
            refuse(sandbox->calls, REASON_AGENT_UNREACHABLE, "crustd begins anew");
        drop_sandbox(sandbox);
    }
    loop_timer_stop(&reconciler->helpers.timer);
    loop_timer_stop(&reconciler->helpers.later);
    loop_timer_stop(&reconciler->helpers.end);
    reconciler->helpers.running = 0;
}
