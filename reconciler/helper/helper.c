/* SPDX-License-Identifier: Apache-2.0 */
/* helper.c - starts and ends the service of helpers, and removes what earlier ones left. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "reconciler/helper/waiting.h"

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
