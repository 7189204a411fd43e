/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup.c - schedules cleanup passes and steps in the trash.
 *
 * Both wait until no other work is left. A pass runs in slices, so that no resize waits for it; a
 * pass that a person requests runs at once.
 */
#include "reconciler/cleanup/cleanup.h"

#include <inttypes.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/cleanup/cleanup_pass.h"
#include "reconciler/cleanup/trash.h"
#include "reconciler/command/answers.h"
#include "reconciler/core/context.h"
#include "store/store.h"

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

/* ---- brakes --------------------------------------------------------------------------------- */

/* The counters are kept in memory only: after a restart of the daemon the grace time
 * starts over as well. */

static const uint64_t RECENT_NS = BRAKES_RECENT_SECONDS * NSEC_PER_SEC;

unsigned long brakes_allowance(const struct cleanup *cleanup, uint32_t max_per_minute,
                               uint64_t now_ns, uint64_t *ret_wake_ns)
{
    uint64_t now = now_ns / NSEC_PER_SEC, first = UINT64_MAX;
    unsigned long count = 0;

    for (unsigned i = 0; i < CLEANUP_RATE_SLOTS; i++) {
        if (!cleanup->removed[i].count || cleanup->removed[i].second + CLEANUP_RATE_SECONDS < now)
            continue;
        count += cleanup->removed[i].count;
        if (cleanup->removed[i].second < first)
            first = cleanup->removed[i].second;
    }
    *ret_wake_ns =
        count ? (first + CLEANUP_RATE_SECONDS + 1) * NSEC_PER_SEC : now_ns + NSEC_PER_SEC;
    return count < max_per_minute ? max_per_minute - count : 0;
}

unsigned long brakes_recent(const struct cleanup *cleanup, uint64_t now_ns)
{
    return now_ns - cleanup->doubtful_ns < RECENT_NS ? cleanup->doubtful : 0;
}

void brakes_confirm(struct cleanup *cleanup)
{
    cleanup->doubtful = 0;
}

void brakes_note(struct cleanup *cleanup, uint64_t now_ns, bool doubtful)
{
    uint64_t now = now_ns / NSEC_PER_SEC;
    unsigned slot = (unsigned)(now % CLEANUP_RATE_SLOTS);

    if (cleanup->removed[slot].second != now)
        cleanup->removed[slot].count = 0;
    cleanup->removed[slot].second = now;
    cleanup->removed[slot].count++;
    if (!doubtful)
        return;
    cleanup->doubtful = brakes_recent(cleanup, now_ns) + 1;
    cleanup->doubtful_ns = now_ns;
}

/* ---- cleanup command ------------------------------------------------------------------------ */

/* The commands about stale metadata. */

enum status_code cleanup_gc(struct cleanup *cleanup, bool dry_run, int64_t volume_id,
                            struct buffer *ret_json, struct error *error)
{
    const struct cleanup_question question = {.dry = dry_run, .volume_id = volume_id};
    int r;

    if (cleanup->context->config->cleanup.mode == CLEANUP_OFF)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "cleanup.mode = off: nothing is looked for or removed");
    if (!cleanup->context->synced)
        return error_set(error, STATUS_UNAVAILABLE, "the first scan is not done yet");
    if (volume_id && !dry_run)
        return error_set(error, STATUS_INVALID_ARGUMENT, "volume: only with dry_run");
    r = cleanup_run(cleanup, &question, ret_json);
    if (r < 0)
        return error_set(error, STATUS_UNAVAILABLE, "nothing was removed: %s (%s)",
                         store_error_text(cleanup->context->store), strerror(-r));
    if (!dry_run)
        log_info(NULL, "looked for stale metadata on request (gc)");
    return STATUS_OK;
}

enum status_code cleanup_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error)
{
    static const enum status_code codes[] = {[TRASH_RESTORED] = STATUS_OK,
                                             [TRASH_UNKNOWN] = STATUS_NOT_FOUND,
                                             [TRASH_REFUSED] = STATUS_FAILED_PRECONDITION,
                                             [TRASH_TAKEN] = STATUS_ALREADY_EXISTS,
                                             [TRASH_BUSY] = STATUS_UNAVAILABLE};
    int r;

    /* Ids in memory differ from those of the file, and only the file records what is in the
     * trash. */
    if (promise_check(cleanup->context->store, error) != STATUS_OK)
        return STATUS_UNAVAILABLE;
    r = trash_restore(cleanup, cleanup_id, error);
    if (r < 0)
        return error_set(error, STATUS_UNAVAILABLE, "nothing was restored: %s (%s)",
                         store_error_text(cleanup->context->store), strerror(-r));
    return codes[r];
}
