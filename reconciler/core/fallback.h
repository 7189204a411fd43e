/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.h - continues in memory while the database's file fails, and returns to the file.
 *
 * In memory, volumes are still resized, but nothing is removed and no history is kept. The file is
 * retried automatically, at growing intervals.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "lib/result.h"

struct context;
struct instance;

/* The fields are private to the module. */
struct fallback {
    const struct context *context;
    struct instance *instance; /* the location of the store's file */
    /* The store is a different one, in which the same objects have other ids: everything that holds
     * ids is dropped, and a scan finds everything again, as at a start. */
    void (*begin_anew)(void *userdata);
    void *userdata;
    struct loop_timer timer;
    unsigned failures;               /* consecutive failures to return to the file */
    uint64_t back_ns;                /* when the file was last taken into use again */
    unsigned failed_passes;          /* consecutive */
    char why[ERROR_TEXT_BYTES];      /* why the file was left */
    char degraded[ERROR_TEXT_BYTES]; /* for people; "" while the file is in use */
    char failing[ERROR_TEXT_BYTES];  /* why passes fail; "" while they succeed */
};

/* The store was opened in memory, because the file failed at start with this error. */
void fallback_begin(struct fallback *fallback, const struct error *error);
void fallback_done(struct fallback *fallback);

/* The store failed with r and has been rolled back; text is its error text. Switches to memory if
 * that helps, and otherwise waits. */
void fallback_on_failure(struct fallback *fallback, int r, const char *text);
/* A pass was committed. */
void fallback_on_success(struct fallback *fallback);

/* For the sweep: a file that was removed, replaced or overwritten causes no error by itself. */
void fallback_check_file(struct fallback *fallback);
/* Retries the file soon, because someone reports that it is good again. */
void fallback_hurry(struct fallback *fallback);

/* The last pass failed, and the next one is delayed. */
bool fallback_is_waiting(const struct fallback *fallback);
/* Passes have failed for so long that waiting longer is pointless. */
bool fallback_is_lasting(const struct fallback *fallback);
/* The file fails or is not in use. */
bool fallback_database_fails(const struct fallback *fallback);
/* The problem as text for people, or NULL. */
const char *fallback_problem(const struct fallback *fallback);
