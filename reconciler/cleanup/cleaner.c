/* SPDX-License-Identifier: Apache-2.0 */
/* cleaner.c - schedules cleanup passes and steps in the trash.
 *
 * Both wait until no other work is left. A pass runs in slices, so that no resize waits for it; a
 * pass that a person requests runs at once.
 */
#include "reconciler/cleanup/cleaner.h"

#include <inttypes.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/cleanup/cleanup_pass.h"
#include "reconciler/core/reconciler_internal.h"

static const uint64_t SLICE_NS = 500 * 1000;
static const uint64_t SOON_NS = 5 * NSEC_PER_SEC; /* longer than any change takes to settle */

static void on_sweep(struct loop_timer *timer)
{
    container_of(timer, struct cleanup, look)->pass_wanted = true;
}

static void on_step(struct loop_timer *timer)
{
    container_of(timer, struct cleanup, step)->trash_wanted = true;
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
    if (r > 0)
        return;
    if (r < 0)
        log_error(NULL, "looking for stale metadata: %s", strerror(-r));
    else
        arm(cleanup, &cleanup->look, cleanup_pass_wake(pass), on_sweep);
    cleanup->pass = cleanup_pass_free(pass);
}

bool cleanup_work(struct cleanup *cleanup)
{
    if (cleanup->trash_wanted) {
        advance_trash(cleanup);
    } else {
        if (!cleanup->pass && cleanup->pass_wanted) {
            cleanup->pass_wanted = false;
            if (cleanup->context->config->cleanup.mode != CLEANUP_OFF)
                (void)cleanup_pass_new(cleanup, NULL, &cleanup->pass);
        }
        if (cleanup->pass)
            go_on(cleanup);
        else
            (void)monitors_work(&cleanup->monitors);
    }
    return cleanup->trash_wanted || cleanup->pass_wanted || cleanup->pass ||
           monitors_are_busy(&cleanup->monitors);
}

void cleanup_want(struct cleanup *cleanup)
{
    cleanup->pass_wanted = cleanup->trash_wanted = cleanup->monitors.wanted = true;
}

/* Metadata that is only kept in the trash for a while does not count as work. */
bool cleanup_is_busy(const struct cleanup *cleanup)
{
    return cleanup->trash_wanted || cleanup->pass_wanted || cleanup->pass ||
           monitors_are_busy(&cleanup->monitors) ||
           (loop_timer_is_active(&cleanup->step) &&
            cleanup->settles_ns < clock_boottime() + SOON_NS);
}

void cleanup_done(struct cleanup *cleanup)
{
    loop_timer_stop(&cleanup->look);
    loop_timer_stop(&cleanup->step);
    cleanup->pass = cleanup_pass_free(cleanup->pass);
    monitors_done(&cleanup->monitors);
}

enum status_code reconciler_gc(struct reconciler *reconciler, bool dry_run, int64_t volume_id,
                               struct buffer *ret_json, struct error *error)
{
    struct cleanup *cleanup = &reconciler->cleanup;
    const struct cleanup_question question = {.dry = dry_run, .volume_id = volume_id};
    struct cleanup_pass *pass = NULL;
    int r;

    if (cleanup->context->config->cleanup.mode == CLEANUP_OFF)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "cleanup.mode = off: nothing is looked for or removed");
    if (!cleanup->context->synced)
        return error_set(error, STATUS_UNAVAILABLE, "the first scan is not done yet");
    if (volume_id && !dry_run)
        return error_set(error, STATUS_INVALID_ARGUMENT, "volume: only with dry_run");
    r = cleanup_pass_new(cleanup, &question, &pass);
    if (r == 0)
        do
            r = cleanup_pass_prepare(pass);
        while (r > 0);
    if (r == 0)
        r = cleanup_pass_finish(pass);
    if (r == 0)
        r = cleanup_pass_report(pass, ret_json);
    if (cleanup->trash_wanted && pass)
        advance_trash(cleanup);
    cleanup_pass_free(pass);
    if (r < 0)
        return error_set(error, STATUS_UNAVAILABLE, "nothing was removed: %s (%s)",
                         store_error_text(cleanup->context->store), strerror(-r));
    if (!dry_run)
        log_info(NULL, "looked for stale metadata on request (gc)");
    return STATUS_OK;
}

enum status_code reconciler_restore(struct reconciler *reconciler, int64_t cleanup_id,
                                    struct error *error)
{
    struct cleanup *cleanup = &reconciler->cleanup;
    static const enum status_code codes[] = {[TRASH_RESTORED] = STATUS_OK,
                                             [TRASH_UNKNOWN] = STATUS_NOT_FOUND,
                                             [TRASH_REFUSED] = STATUS_FAILED_PRECONDITION,
                                             [TRASH_TAKEN] = STATUS_ALREADY_EXISTS,
                                             [TRASH_BUSY] = STATUS_UNAVAILABLE};
    int r;

    /* Ids in memory differ from those of the file, and only the file records what is in the
     * trash. */
    if (require_durable(cleanup->context->store, error) != STATUS_OK)
        return STATUS_UNAVAILABLE;
    r = trash_restore(cleanup, cleanup_id, error);
    if (r < 0)
        return error_set(error, STATUS_UNAVAILABLE, "nothing was restored: %s (%s)",
                         store_error_text(cleanup->context->store), strerror(-r));
    return codes[r];
}
