/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.c - see waiting.h. */
#include "reconciler/helper/waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/list.h"
#include "lib/log.h"
#include "reconciler/core/context.h"

/* ---- sandboxes --------------------------------------------------------------------------- */

static struct helper_sandbox *find_sandbox(struct helpers *helpers, int64_t sandbox_ref)
{
    struct helper_sandbox *sandbox;

    HASH_FIND(hh, helpers->sandboxes, &sandbox_ref, sizeof(sandbox_ref), sandbox);
    return sandbox;
}

struct helper_sandbox *helper_sandbox_get(struct helpers *helpers, int64_t sandbox_ref)
{
    struct helper_sandbox *sandbox = find_sandbox(helpers, sandbox_ref);

    if (sandbox)
        return sandbox;
    sandbox = calloc(1, sizeof(*sandbox));
    if (!sandbox)
        return NULL;
    sandbox->helpers = helpers;
    sandbox->sandbox_ref = sandbox_ref;
    HASH_ADD(hh, helpers->sandboxes, sandbox_ref, sizeof(sandbox->sandbox_ref), sandbox);
    if (!sandbox->hh.tbl) {
        free(sandbox);
        return NULL;
    }
    return sandbox;
}

void helper_sandbox_drop(struct helper_sandbox *sandbox)
{
    HASH_DEL(sandbox->helpers->sandboxes, sandbox);
    (void)helper_run_free(sandbox->run);
    free(sandbox->targets);
    helper_known_done(&sandbox->known);
    helper_leftovers_done(&sandbox->leftovers);
    free(sandbox);
}

/* ---- answers ----------------------------------------------------------------------------- */

static void unlink_call(struct helper_call *call)
{
    struct helper_sandbox *sandbox = find_sandbox(call->helpers, call->sandbox_ref);

    if (sandbox && sandbox->calls)
        LL_DELETE(sandbox->calls, call);
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

/* From within, the caller may call again. */
static void answer(struct helper_call *call, const struct guest_helper_reply *reply)
{
    guest_helper_done *done = call->done;
    void *userdata = call->userdata;

    (void)helper_call_free(call);
    done(reply, userdata);
}

void helper_call_refuse(struct helper_call *call, enum volume_reason reason, const char *text)
{
    struct guest_helper_reply reply = {.reason = reason};

    (void)error_set(&reply.error, 0, "%s", text);
    answer(call, &reply);
}

static void answer_by_fact(struct helper_call *call, const struct helper_fact *fact)
{
    struct guest_helper_reply reply = {
        .reason = fact->reason,
        .stats = fact->stats,
        .age_ns = clock_boottime() - fact->at_ns,
    };

    if (fact->reason != REASON_NONE)
        (void)error_set(&reply.error, 0, "%s", fact->text ? fact->text : reason_name(fact->reason));
    answer(call, &reply);
}

/* If the helper that ran for the call has no answer, the call's places were withheld from it or did
 * not fit. */
static void answer_by_run(const struct helper_sandbox *sandbox, struct helper_call *call)
{
    const struct helper_fact *fact = helper_known_find(&sandbox->known, call->binding_id);

    if (sandbox->known.reason != REASON_NONE)
        helper_call_refuse(call, sandbox->known.reason, sandbox->known.error.text);
    else if (fact && fact->at_ns == sandbox->known.at_ns)
        answer_by_fact(call, fact);
    else
        helper_call_refuse(
            call, REASON_GUEST_PATH_UNKNOWN,
            "the helper was not told of this volume: no place in the guest is known to be its");
}

static uint32_t seconds_since(uint64_t ns)
{
    return (uint32_t)((clock_boottime() - ns) / NSEC_PER_SEC);
}

/* Calls for usage wait until the next helper is due; until then the known answer is used. */
static bool answer_count(const struct helper_sandbox *sandbox, struct helper_call *call)
{
    const struct helper_known *known = &sandbox->known;
    const struct helper_fact *fact = helper_known_find(known, call->binding_id);
    uint64_t now = clock_boottime();
    char text[ERROR_TEXT_BYTES];

    if (call->inability != REASON_NONE) {
        helper_call_refuse(call, call->inability,
                           "the helper was found of no use in this sandbox before");
        return true;
    }
    if (fact && now - fact->at_ns < HELPER_FRESH_NS && fact->stats.has_bytes) {
        struct guest_helper_reply reply = {.stats = fact->stats, .age_ns = now - fact->at_ns};

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
    helper_call_refuse(call,
                       known->reason != REASON_NONE          ? known->reason
                       : fact && fact->reason != REASON_NONE ? fact->reason
                                                             : REASON_HELPER_FAILED,
                       text);
    return true;
}

/* A helper that ran for another volume of the sandbox has grown this one, too, or has found why it
 * cannot. A result from when the device was smaller does not count. */
static bool answer_resize(struct helper_sandbox *sandbox, struct helper_call *call)
{
    struct helper_fact *fact = helper_known_find(&sandbox->known, call->binding_id);

    if (!fact || !fact->is_news || !fact->grew ||
        clock_boottime() - fact->at_ns >= HELPER_FRESH_NS ||
        fact->device_bytes < call->device_bytes)
        return false;
    fact->is_news = false;
    answer_by_fact(call, fact);
    return true;
}

/* Answers without a helper, if possible. */
static bool answer_now(struct helper_sandbox *sandbox, struct helper_call *call)
{
    if (call->served)
        return false;
    if (sandbox->helpers->stopping) {
        helper_call_refuse(call, REASON_AGENT_UNREACHABLE, "crustd is stopping");
        return true;
    }
    if (call->barred) {
        helper_call_refuse(
            call, REASON_AGENT_UNREACHABLE,
            "crustd may not use a helper for this volume any more: its policy, its binding or "
            "the configuration has changed");
        return true;
    }
    if (call->expired) {
        helper_call_refuse(call, REASON_AGENT_UNREACHABLE,
                           "other helpers on this node took all of the time");
        return true;
    }
    if (helper_leftovers_are_stuck(&sandbox->leftovers)) {
        helper_call_refuse(call, REASON_HELPER_FAILED, sandbox->leftovers.error.text);
        return true;
    }
    return call->purpose == HELPER_STATS ? answer_count(sandbox, call)
                                         : answer_resize(sandbox, call);
}

/* An answer may change anything, including the lists, so the walk starts over after each. */
void helpers_answer(struct helpers *helpers)
{
    struct helper_sandbox *sandbox, *next;
    bool answered;

    do {
        answered = false;
        HASH_ITER (hh, helpers->sandboxes, sandbox, next) {
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

/* The volume that called has its answer, so the fact is no longer news. */
void helper_sandbox_answer_served(struct helper_sandbox *sandbox)
{
    struct helper_call *call;

    for (;;) {
        struct helper_fact *fact;

        for (call = sandbox->calls; call && !call->served; call = call->next)
            ;
        if (!call)
            return;
        fact = helper_known_find(&sandbox->known, call->binding_id);
        if (fact)
            fact->is_news = false;
        answer_by_run(sandbox, call);
    }
}

/* ---- calls ------------------------------------------------------------------------------- */

static void on_deadline(struct loop_timer *timer)
{
    struct helper_call *call = container_of(timer, struct helper_call, deadline);

    call->expired = true;
    helpers_serve_soon(call->helpers);
}

int helper_call_new(struct helpers *helpers, const struct store_volume *volume,
                    enum helper_purpose purpose, uint64_t deadline_ns, guest_helper_done *done,
                    void *userdata, struct helper_call **ret_call)
{
    struct helper_sandbox *sandbox = helper_sandbox_get(helpers, volume->sandbox_ref);
    struct helper_call *call = sandbox ? calloc(1, sizeof(*call)) : NULL;
    struct helper_call **link;

    if (!call)
        return -ENOMEM;
    call->helpers = helpers;
    call->sandbox_ref = volume->sandbox_ref;
    call->volume_id = volume->volume_id;
    call->binding_id = volume->binding_id;
    call->device_bytes = volume->device_bytes;
    call->purpose = purpose;
    call->number = ++helpers->calls;
    call->inability = reason_from_name(volume->ability[ROUTE_HELPER]);
    call->done = done;
    call->userdata = userdata;
    for (link = &sandbox->calls; *link; link = &(*link)->next)
        ;
    *link = call;
    sandbox->used_ns = clock_boottime();
    if (deadline_ns)
        loop_timer_start(helpers->context->loop, &call->deadline, deadline_ns, on_deadline);
    helpers_serve_soon(helpers);
    *ret_call = call;
    return 0;
}

/* ---- helper --------------------------------------------------------------------------------- */

/* Starts and ends the service of helpers, and removes what earlier ones left. */

static const uint64_t FORGET_NS = 2 * HELPER_FRESH_NS;

/* ---- what earlier helpers left ---- */

struct search {
    struct helpers *helpers;
    struct store_helper_run run;
};

static int put_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                        const struct error *error)
{
    struct helper_sandbox *sandbox = helper_sandbox_get(helpers, sandbox_ref);

    if (sandbox)
        helper_leftovers_put(&sandbox->leftovers, name, error);
    return sandbox ? 0 : -ENOMEM;
}

/* Without memory the record stays, and the next start finds it. */
void helpers_note_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                           const struct error *error)
{
    (void)put_leftover(helpers, sandbox_ref, name, error);
    helpers_serve_soon(helpers);
}

static int note_leftover(void *userdata, const struct store_helper_run *run)
{
    return put_leftover(userdata, run->sandbox_ref, run->name, NULL);
}

static int note_name(void *userdata, const char *name)
{
    struct search *search = userdata;

    (void)snprintf(search->run.name, sizeof(search->run.name), "%s", name);
    return note_leftover(search->helpers, &search->run);
}

static int search_share(void *userdata, const struct store_helper_run *run)
{
    struct search search = {userdata, *run};

    return helper_leftovers_search(search.helpers->context->root, run, note_name, &search);
}

/* Called before a sandbox's first helper, because the sandbox may have been found after the
 * start. */
int helper_sandbox_search(struct helper_sandbox *sandbox)
{
    struct store_helper_run run;
    int r = 0;

    if (sandbox->searched)
        return 0;
    r = store_get_helper_sandbox(sandbox->helpers->context->store, sandbox->sandbox_ref, &run);
    if (r == 0 && run.is_alive)
        r = search_share(sandbox->helpers, &run);
    sandbox->searched = r == 0;
    return r;
}

/* ---- all of them ------------------------------------------------------------------------- */

struct helpers *helpers_new(const struct context *context)
{
    struct helpers *helpers = calloc(1, sizeof(*helpers));

    if (helpers)
        helpers->context = context;
    return helpers;
}

void helpers_start(struct helpers *helpers)
{
    int r = store_each_helper_run(helpers->context->store, note_leftover, helpers);

    if (r == 0)
        r = store_each_helper_sandbox(helpers->context->store, search_share, helpers);
    if (r < 0)
        log_warning(NULL, "cannot search for helper leftovers in guests: %s", strerror(-r));
    helpers_serve_soon(helpers);
}

static void on_end(struct loop_timer *timer)
{
    helpers_abandon(container_of(timer, struct helpers, end));
}

/* Killing and removing a helper that hangs takes several steps, each of which may hang as well. */
void helpers_stop(struct helpers *helpers)
{
    helpers->stopping = true;
    helpers_serve_soon(helpers);
    loop_timer_start(helpers->context->loop, &helpers->end,
                     helpers->context->config->resize.call_timeout_seconds * NSEC_PER_SEC, on_end);
}

void helpers_sweep(struct helpers *helpers)
{
    uint64_t now = clock_boottime();
    struct helper_sandbox *sandbox, *next;

    HASH_ITER (hh, helpers->sandboxes, sandbox, next)
        if (!sandbox->calls && !sandbox->run && helper_leftovers_are_none(&sandbox->leftovers) &&
            now - sandbox->used_ns >= FORGET_NS)
            helper_sandbox_drop(sandbox);
}

bool helpers_are_idle(const struct helpers *helpers)
{
    struct helper_sandbox *sandbox, *next;

    if (helpers->running || loop_timer_is_active(&helpers->timer))
        return false;
    HASH_ITER (hh, helpers->sandboxes, sandbox, next)
        if (sandbox->calls)
            return false;
    return true;
}

void helpers_reset(struct helpers *helpers)
{
    while (helpers->sandboxes) {
        struct helper_sandbox *sandbox = helpers->sandboxes;

        while (sandbox->calls)
            helper_call_refuse(sandbox->calls, REASON_AGENT_UNREACHABLE,
                               "crustd starts over with another database");
        helper_sandbox_drop(sandbox);
    }
    loop_timer_stop(&helpers->timer);
    loop_timer_stop(&helpers->later);
    loop_timer_stop(&helpers->end);
    helpers->running = 0;
}

struct helpers *helpers_free(struct helpers *helpers)
{
    if (!helpers)
        return NULL;
    helpers_reset(helpers);
    free(helpers);
    return NULL;
}
