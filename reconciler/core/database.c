/* SPDX-License-Identifier: Apache-2.0 */
/* database.c - see database.h.
 *
 * The failed operation is not repeated on the same handle. Only a file that another program keeps
 * locked is given some passes first. Failures that are not the file's (no memory, a fault in
 * crustd) would occur after a restart as well, so they only delay the next pass.
 */
#include "reconciler/core/database.h"

#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "reconciler/core/instance.h"
#include "store/store.h"

enum {
    BUSY_PASSES = 5, /* one second apart */
    LASTING_PASSES = 5,
};
static const uint64_t TRY_NS = 60 * NSEC_PER_SEC;
static const uint64_t SOON_NS = 100 * NSEC_PER_MSEC; /* whoever asked is answered first */

/* ---- in memory ---- */

static void set_degraded(struct database *database, int r, const char *text)
{
    char problem[ERROR_TEXT_BYTES];

    (void)snprintf(problem, sizeof(problem),
                   "the database fails: %.110s: %s; meanwhile crustd grows volumes from memory and "
                   "removes nothing",
                   text, start_failure_remedy(START_DATABASE, r));
    if (strcmp(database->degraded, problem) != 0)
        log_error(NULL, "%s", problem);
    (void)snprintf(database->degraded, sizeof(database->degraded), "%s", problem);
}

/* The file is good if it opens as at a start. Its journal then records the gap. */
static void on_timer(struct loop_timer *timer)
{
    struct database *database = container_of(timer, struct database, timer);
    const struct store_gap gap = {database->began_ms, database->degraded, .is_certain = true};
    struct error error = {0};
    int r;

    database->tries_soon = false;
    if (database->context->stopping)
        return;
    r = instance_try_store(database->instance, database->context->config, &gap, &error);
    if (r == STORE_OPENED) {
        log_info(NULL, "the database is in use again: %s", database->instance->database);
        database->restart(database->userdata, STORE_OPENED, "");
    } else {
        set_degraded(database, r, error.text);
        loop_timer_start(database->context->loop, timer, TRY_NS, on_timer);
    }
}

void database_begin_in_memory(struct database *database, const struct error *error)
{
    database->began_ms = clock_realtime_ms();
    set_degraded(database, store_failure_of(error->code), error->text);
    loop_timer_start(database->context->loop, &database->timer, TRY_NS, on_timer);
}

void database_try_soon(struct database *database)
{
    if (!store_is_in_memory(database->context->store) || database->tries_soon)
        return;
    database->tries_soon = true;
    loop_timer_start(database->context->loop, &database->timer, SOON_NS, on_timer);
}

void database_done(struct database *database)
{
    loop_timer_stop(&database->timer);
}

/* ---- failures ---- */

static bool is_of_the_file(const struct database *database, int r)
{
    if (database->context->stopping || store_is_in_memory(database->context->store))
        return false;
    switch (r) {
    case STORE_NO_MEMORY:
    case STORE_FAULT:
    case STORE_TOO_BIG:
    case STORE_RUNNING:
        return false;
    case STORE_LOCKED:
        return database->failed_passes >= BUSY_PASSES;
    default:
        return true;
    }
}

void database_on_failure(struct database *database, int r, const char *text)
{
    char problem[ERROR_TEXT_BYTES];

    database->failed_passes++;
    (void)snprintf(problem, sizeof(problem), "the database fails: %.180s (%s)", text, strerror(-r));
    if (strcmp(database->failing, problem) != 0)
        log_error(NULL, "%s", problem);
    (void)snprintf(database->failing, sizeof(database->failing), "%s", problem);
    if (is_of_the_file(database, r)) {
        log_warning(NULL, "the database fails and is being reopened: %s", text);
        database->restart(database->userdata, r, text);
    }
}

void database_check_file(struct database *database)
{
    int r = store_check_file(database->context->store);

    if (r == 0 || database->context->stopping)
        return;
    database_on_failure(database, r,
                        r == STORE_MISSING || r == STORE_REPLACED
                            ? "its file was removed or replaced"
                        : r == STORE_DAMAGED ? "its file was overwritten"
                                             : strerror(-r));
}

void database_on_success(struct database *database)
{
    database->failing[0] = '\0';
    database->failed_passes = 0;
}

bool database_is_waiting(const struct database *database)
{
    return database->failing[0] != '\0';
}

bool database_is_lasting(const struct database *database)
{
    return database->failed_passes >= LASTING_PASSES;
}

bool database_fails(const struct database *database)
{
    return database->failed_passes > 0 || database->degraded[0];
}

const char *database_problem(const struct database *database)
{
    if (database->degraded[0])
        return database->degraded;
    return database->failing[0] ? database->failing : NULL;
}
