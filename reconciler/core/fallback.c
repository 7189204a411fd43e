/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.c - see fallback.h.
 *
 * A failure of the file is answered by closing it and opening it anew, as a start does: what failed
 * is not repeated on the same handle, and what is damaged is set aside. If it fails once more, or
 * cannot be opened, the store goes on in memory. A file that another program keeps locked is given
 * some turns first. What is no failure of the file (no memory, a fault of crustd's own) would fail
 * in memory as well, and only waits.
 *
 * In another store the same things have other ids. So whatever holds ids is dropped with the old
 * one, calls in flight too, and everything is found by a scan, as at a start. Every call may be
 * repeated safely; what one of them had done is found out by the next.
 */
#include "reconciler/core/fallback.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/clients.h"
#include "reconciler/command/stats_poll.h"
#include "reconciler/core/instance.h"
#include "reconciler/core/internal.h"
#include "reconciler/core/start_failure.h"
#include "reconciler/decide/backoff.h"
#include "reconciler/helper/helper.h"

enum {
    BUSY_TURNS = 5,       /* a second apart */
    FAILURES_COUNTED = 7, /* 64 s between attempts, then */
};
static const uint64_t GOOD_NS = 60 * NSEC_PER_SEC; /* a file that holds so long is good again */

/* ---- words ---- */

static void set_problem(struct reconciler *reconciler, int r, const char *text)
{
    struct fallback *fallback = &reconciler->fallback;
    char problem[sizeof(fallback->problem)];

    (void)snprintf(problem, sizeof(problem),
                   "the database fails: %.110s: %s; meanwhile crustd grows volumes from memory and "
                   "removes nothing",
                   text, start_failure_remedy(START_DATABASE, r));
    if (strcmp(problem, fallback->problem) != 0)
        log_error(NULL, "%s", problem);
    memcpy(fallback->problem, problem, sizeof(problem));
}

/* ---- another store ---- */

static void begin_anew(struct reconciler *reconciler)
{
    actor_reset(reconciler->actor);
    stats_poll_reset(reconciler->stats_poll);
    helpers_reset(reconciler->helpers);
    expansions_end(reconciler->clients);
    stagings_fail(reconciler->clients, "crustd begins anew with another one");
    cleanup_abandon(reconciler);
    marks_done(&reconciler->volumes);
    scan_done(reconciler);
    reconciler->attempts_marked_ns = 0;
    reconciler->synced = false;
    reconciler->devices_are_fresh = true;
    reconciler_look_at_everything(reconciler);
}

/* Opens the file, whose place may be another by now. */
static int open_file(struct reconciler *reconciler, bool *ret_same, struct error *error)
{
    int r = instance_take_place(reconciler->instance, error);

    return r == INSTANCE_ALONE ? store_return(reconciler->store, reconciler->instance->database,
                                              reconciler->fallback.why, ret_same, error)
                               : r;
}

static void on_timer(struct loop_timer *timer);

static void wait_for_file(struct reconciler *reconciler)
{
    struct fallback *fallback = &reconciler->fallback;

    if (fallback->failures < FAILURES_COUNTED)
        fallback->failures++;
    loop_timer_start(reconciler->loop, &fallback->timer, backoff_bound(fallback->failures),
                     on_timer);
}

static void come_back(struct reconciler *reconciler)
{
    struct fallback *fallback = &reconciler->fallback;

    fallback->back_ns = clock_boottime();
    fallback->problem[0] = reconciler->problem[0] = '\0';
    log_info(NULL, "the database is in use again: %s", reconciler->instance->database);
}

static void on_timer(struct loop_timer *timer)
{
    struct fallback *fallback = container_of(timer, struct fallback, timer);
    struct reconciler *reconciler = container_of(fallback, struct reconciler, fallback);
    struct error error = {0};
    bool same;
    int r;

    if (reconciler->stopping)
        return;
    r = open_file(reconciler, &same, &error);
    if (r != STORE_OPENED) {
        set_problem(reconciler, r, error.text);
        wait_for_file(reconciler);
        return;
    }
    come_back(reconciler);
    begin_anew(reconciler);
}

/* ---- failures ---- */

static bool is_of_the_file(const struct reconciler *reconciler, int r)
{
    switch (r) {
    case STORE_NO_MEMORY:
    case STORE_FAULT:
    case STORE_TOO_BIG:
    case STORE_RUNNING:
        return false;
    case STORE_LOCKED:
        return reconciler->failed_turns >= BUSY_TURNS;
    default:
        return true;
    }
}

static void wait_for_store(struct reconciler *reconciler, int r, const char *text)
{
    char problem[sizeof(reconciler->problem)];

    (void)snprintf(problem, sizeof(problem), "the database fails: %.180s (%s)", text, strerror(-r));
    if (strcmp(problem, reconciler->problem) != 0)
        log_error(NULL, "%s", problem);
    memcpy(reconciler->problem, problem, sizeof(problem));
}

/* In memory from here on, unless the file opens anew at the first attempt. */
static int leave_file(struct reconciler *reconciler, int r, const char *text)
{
    struct fallback *fallback = &reconciler->fallback;
    struct error error = {0};
    bool same = false;

    if (store_fall_back(reconciler->store, &error) < 0)
        return STORE_NO_MEMORY;
    (void)snprintf(fallback->why, sizeof(fallback->why), "%s", text);
    if (clock_boottime() - fallback->back_ns > GOOD_NS)
        fallback->failures = 0;
    if (reconciler->failed_turns == 1) {
        log_warning(NULL, "the database fails, and is opened anew: %s", text);
        r = open_file(reconciler, &same, &error);
        text = error.text;
    }
    if (reconciler->failed_turns == 1 && r == STORE_OPENED) {
        come_back(reconciler);
    } else {
        set_problem(reconciler, r, text);
        wait_for_file(reconciler);
        reconciler->failed_turns = 0;
        reconciler->problem[0] = '\0';
    }
    if (!same)
        begin_anew(reconciler);
    return 0;
}

void fallback_on_failure(struct reconciler *reconciler, int r, const char *text)
{
    reconciler->failed_turns++;
    if (reconciler->stopping || store_is_in_memory(reconciler->store) ||
        !is_of_the_file(reconciler, r) || leave_file(reconciler, r, text) < 0)
        wait_for_store(reconciler, r, text);
}

void fallback_check_file(struct reconciler *reconciler)
{
    int r = store_check_file(reconciler->store);

    if (r == 0 || reconciler->stopping)
        return;
    fallback_on_failure(reconciler, r,
                        r == STORE_MISSING || r == STORE_REPLACED
                            ? "its file was removed or replaced"
                        : r == STORE_DAMAGED ? "its file was overwritten"
                                             : strerror(-r));
}

/* ---- life ---- */

void fallback_begin(struct reconciler *reconciler, const struct error *error)
{
    struct fallback *fallback = &reconciler->fallback;

    (void)snprintf(fallback->why, sizeof(fallback->why), "%s", error->text);
    set_problem(reconciler, store_failure_of(error->code), error->text);
    wait_for_file(reconciler);
}

void fallback_hurry(struct reconciler *reconciler)
{
    if (store_is_in_memory(reconciler->store))
        loop_timer_start(reconciler->loop, &reconciler->fallback.timer, 0, on_timer);
}

void fallback_done(struct reconciler *reconciler)
{
    loop_timer_stop(&reconciler->fallback.timer);
}
