/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup.c - schedules cleanup passes and steps in the trash.
 *
 * Both wait until no other work is left. A pass runs in slices, so that no resize waits for it; a
 * pass that a person requests runs at once.
 */
#include "reconciler/cleanup/cleanup.h"

#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/cleanup/cleanup_pass.h"
#include "reconciler/cleanup/trash.h"
#include "reconciler/core/context.h"

static const uint64_t SLICE_NS = 500 * 1000;
static const uint64_t SOON_NS = 5 * NSEC_PER_SEC; /* longer than any change takes to settle */

/* ---- in slices --------------------------------------------------------------------------- */

static void on_sweep(struct loop_timer *timer)
{
    struct cleanup *cleanup = container_of(timer, struct cleanup, look);

    cleanup->pass_wanted = true;
}

static void on_step(struct loop_timer *timer)
{
    struct cleanup *cleanup = container_of(timer, struct cleanup, step);

    cleanup->trash_wanted = true;
}

static void arm(struct cleanup *cleanup, struct loop_timer *timer, uint64_t at_ns,
                void (*callback)(struct loop_timer *timer))
{
    uint64_t now = clock_boottime();

    if (at_ns == UINT64_MAX)
        loop_timer_stop(timer);
    else
        loop_timer_start(cleanup->context->loop, timer,
                         at_ns > now ? at_ns - now + NSEC_PER_MSEC : NSEC_PER_MSEC, callback);
}

/* A failure is retried at the next sweep. */
static void advance_trash(struct cleanup *cleanup)
{
    int r;

    cleanup->trash_wanted = false;
    cleanup->settles_ns = UINT64_MAX;
    r = trash_advance(cleanup, &cleanup->settles_ns);
    if (r < 0)
        log_error(NULL, "cannot record what became of the trash: %s", strerror(-r));
    arm(cleanup, &cleanup->step, cleanup->settles_ns, on_step);
}

static void end_pass(struct cleanup *cleanup, int r)
{

    if (r < 0)
        log_error(NULL, "looking for stale metadata: %s", strerror(-r));
    else
        arm(cleanup, &cleanup->look, cleanup_pass_wake(cleanup->pass), on_sweep);
    cleanup->pass = cleanup_pass_free(cleanup->pass);
}

static bool begin_pass(struct cleanup *cleanup)
{

    cleanup->pass_wanted = false;
    return cleanup->context->config->cleanup.mode != CLEANUP_OFF &&
           cleanup_pass_new(cleanup, NULL, &cleanup->pass) == 0;
}

static void go_on(struct cleanup *cleanup)
{
    struct cleanup_pass *pass = cleanup->pass;
    uint64_t until = clock_boottime() + SLICE_NS;
    int r;

    do
        r = cleanup_pass_prepare(pass);
    while (r > 0 && clock_boottime() < until);
    if (r == 0)
        r = cleanup_pass_finish(pass);
    if (r <= 0)
        end_pass(cleanup, r);
}

bool cleanup_work(struct cleanup *cleanup)
{

    if (cleanup->trash_wanted)
        advance_trash(cleanup);
    else if (cleanup->pass || (cleanup->pass_wanted && begin_pass(cleanup)))
        go_on(cleanup);
    return cleanup->trash_wanted || cleanup->pass_wanted || cleanup->pass;
}

void cleanup_want(struct cleanup *cleanup)
{
    cleanup->pass_wanted = true;
    cleanup->trash_wanted = true;
}

/* Metadata that is only kept in the trash for a while does not count as work. */
bool cleanup_is_busy(const struct cleanup *cleanup)
{

    return cleanup->trash_wanted || cleanup->pass_wanted || cleanup->pass ||
           (loop_timer_is_active(&cleanup->step) &&
            cleanup->settles_ns < clock_boottime() + SOON_NS);
}

void cleanup_abandon(struct cleanup *cleanup)
{
    cleanup->pass = cleanup_pass_free(cleanup->pass);
}

void cleanup_done(struct cleanup *cleanup)
{
    loop_timer_stop(&cleanup->look);
    loop_timer_stop(&cleanup->step);
    cleanup_abandon(cleanup);
}

/* ---- at a person's request --------------------------------------------------------------- */

int cleanup_run(struct cleanup *cleanup, const struct cleanup_question *question,
                struct buffer *ret_json)
{
    struct cleanup_pass *pass;
    int r = cleanup_pass_new(cleanup, question, &pass);

    if (r < 0)
        return r;
    do
        r = cleanup_pass_prepare(pass);
    while (r > 0);
    if (r == 0)
        r = cleanup_pass_finish(pass);
    if (r == 0)
        r = cleanup_pass_report(pass, ret_json);
    if (cleanup->trash_wanted)
        advance_trash(cleanup);
    cleanup_pass_free(pass);
    return r;
}
