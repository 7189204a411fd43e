/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.c - see fallback.h.
 *
 * When the file fails, it is closed and opened anew, as at a start: the failed operation is not
 * repeated on the same handle, and a damaged file is set aside. If that fails again, or the file
 * cannot be opened, the store continues in memory. A file that another program keeps locked is
 * given some passes first. Failures that are not the file's (no memory, a fault in crustd) would
 * occur in memory as well, so they only delay the next pass.
 *
 * Calls in flight are dropped with the old store. Every call may be repeated safely; the next one
 * finds out what the dropped one had done.
 */
#include "reconciler/core/fallback.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "reconciler/core/instance.h"
#include "reconciler/core/start_failure.h"
#include "reconciler/decide/decide.h"
#include "store/store.h"

enum {
    BUSY_PASSES = 5, /* one second apart */
    LASTING_PASSES = 5,
    FAILURES_COUNTED = 7, /* by then, 64 s between attempts */
};
static const uint64_t GOOD_NS = 60 * NSEC_PER_SEC; /* a file that holds this long is good again */

/* ---- problem texts ---- */

static void set_problem(char problem[static ERROR_TEXT_BYTES], const char *text)
{
    if (strcmp(problem, text) != 0)
        log_error(NULL, "%s", text);
    (void)snprintf(problem, ERROR_TEXT_BYTES, "%s", text);
}

static void set_degraded(struct fallback *fallback, int r, const char *text)
{
    char problem[ERROR_TEXT_BYTES];

    (void)snprintf(problem, sizeof(problem),
                   "the database fails: %.110s: %s; meanwhile crustd grows volumes from memory and "
                   "removes nothing",
                   text, start_failure_remedy(START_DATABASE, r));
    set_problem(fallback->degraded, problem);
}

static void wait_for_store(struct fallback *fallback, int r, const char *text)
{
    char problem[ERROR_TEXT_BYTES];

    (void)snprintf(problem, sizeof(problem), "the database fails: %.180s (%s)", text, strerror(-r));
    set_problem(fallback->failing, problem);
}

/* ---- another store ---- */

/* Opens the file, which may be in a different directory by now. */
static int open_file(struct fallback *fallback, bool *ret_same, struct error *error)
{
    int r = instance_take_place(fallback->instance, error);

    return r == INSTANCE_ALONE
               ? store_return(fallback->context->store, fallback->instance->database, fallback->why,
                              ret_same, error)
               : r;
}

static void on_timer(struct loop_timer *timer);

static void wait_for_file(struct fallback *fallback)
{
    if (fallback->failures < FAILURES_COUNTED)
        fallback->failures++;
    loop_timer_start(fallback->context->loop, &fallback->timer, backoff_bound(fallback->failures),
                     on_timer);
}

static void come_back(struct fallback *fallback)
{
    fallback->back_ns = clock_boottime();
    fallback->degraded[0] = fallback->failing[0] = '\0';
    log_info(NULL, "the database is in use again: %s", fallback->instance->database);
}

static void on_timer(struct loop_timer *timer)
{
    struct fallback *fallback = container_of(timer, struct fallback, timer);
    struct error error = {0};
    bool same;
    int r;

    if (fallback->context->stopping)
        return;
    r = open_file(fallback, &same, &error);
    if (r != STORE_OPENED) {
        set_degraded(fallback, r, error.text);
        wait_for_file(fallback);
        return;
    }
    come_back(fallback);
    fallback->begin_anew(fallback->userdata);
}

/* ---- failures ---- */

static bool is_of_the_file(const struct fallback *fallback, int r)
{
    switch (r) {
    case STORE_NO_MEMORY:
    case STORE_FAULT:
    case STORE_TOO_BIG:
    case STORE_RUNNING:
        return false;
    case STORE_LOCKED:
        return fallback->failed_passes >= BUSY_PASSES;
    default:
        return true;
    }
}

/* Continues in memory, unless the file opens anew at the first attempt. */
static int leave_file(struct fallback *fallback, int r, const char *text)
{
    struct error error = {0};
    bool same = false;

    if (store_fall_back(fallback->context->store, &error) < 0)
        return STORE_NO_MEMORY;
    (void)snprintf(fallback->why, sizeof(fallback->why), "%s", text);
    if (clock_boottime() - fallback->back_ns > GOOD_NS)
        fallback->failures = 0;
    if (fallback->failed_passes == 1) {
        log_warning(NULL, "the database fails and is being reopened: %s", text);
        r = open_file(fallback, &same, &error);
        text = error.text;
    }
    if (fallback->failed_passes == 1 && r == STORE_OPENED) {
        come_back(fallback);
    } else {
        set_degraded(fallback, r, text);
        wait_for_file(fallback);
        fallback->failed_passes = 0;
        fallback->failing[0] = '\0';
    }
    if (!same)
        fallback->begin_anew(fallback->userdata);
    return 0;
}

void fallback_on_failure(struct fallback *fallback, int r, const char *text)
{
    fallback->failed_passes++;
    if (fallback->context->stopping || store_is_in_memory(fallback->context->store) ||
        !is_of_the_file(fallback, r) || leave_file(fallback, r, text) < 0)
        wait_for_store(fallback, r, text);
}

void fallback_check_file(struct fallback *fallback)
{
    int r = store_check_file(fallback->context->store);

    if (r == 0 || fallback->context->stopping)
        return;
    fallback_on_failure(fallback, r,
                        r == STORE_MISSING || r == STORE_REPLACED
                            ? "its file was removed or replaced"
                        : r == STORE_DAMAGED ? "its file was overwritten"
                                             : strerror(-r));
}

void fallback_on_success(struct fallback *fallback)
{
    fallback->failing[0] = '\0';
    fallback->failed_passes = 0;
}

bool fallback_is_waiting(const struct fallback *fallback)
{
    return fallback->failing[0] != '\0';
}

bool fallback_is_lasting(const struct fallback *fallback)
{
    return fallback->failed_passes >= LASTING_PASSES;
}

bool fallback_database_fails(const struct fallback *fallback)
{
    return fallback->failed_passes > 0 || fallback->degraded[0];
}

const char *fallback_problem(const struct fallback *fallback)
{
    if (fallback->degraded[0])
        return fallback->degraded;
    return fallback->failing[0] ? fallback->failing : NULL;
}

/* ---- life ---- */

void fallback_begin(struct fallback *fallback, const struct error *error)
{
    (void)snprintf(fallback->why, sizeof(fallback->why), "%s", error->text);
    set_degraded(fallback, store_failure_of(error->code), error->text);
    wait_for_file(fallback);
}

void fallback_hurry(struct fallback *fallback)
{
    if (store_is_in_memory(fallback->context->store))
        loop_timer_start(fallback->context->loop, &fallback->timer, 0, on_timer);
}

void fallback_done(struct fallback *fallback)
{
    loop_timer_stop(&fallback->timer);
}
