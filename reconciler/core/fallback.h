/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.h - going on in memory while the database's file fails, and back.
 *
 * Resizes go on in memory; nothing is removed there, and history is not kept. The file is tried
 * again by itself, at growing intervals.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "lib/result.h"

struct context;
struct instance;

/* The fields are the module's own. */
struct fallback {
    const struct context *context;
    struct instance *instance; /* where the store's file is */
    /* The store is another one: in it the same things have other ids, so whatever holds ids is
     * dropped, and everything is found by a scan, as at a start. */
    void (*begin_anew)(void *userdata);
    void *userdata;
    struct loop_timer timer;
    unsigned failures;               /* to come back, in a row */
    uint64_t back_ns;                /* when it last came back */
    unsigned failed_passes;          /* in a row */
    char why[ERROR_TEXT_BYTES];      /* the file was left */
    char degraded[ERROR_TEXT_BYTES]; /* for people; "" while the file is in use */
    char failing[ERROR_TEXT_BYTES];  /* why passes fail; "" while they do not */
};

/* The store was opened in memory, because the file failed at start like this. */
void fallback_begin(struct fallback *fallback, const struct error *error);
void fallback_done(struct fallback *fallback);

/* The store failed with r, and has been rolled back; text is its own words. Leaves the file where
 * that helps, and waits where it doesn't. */
void fallback_on_failure(struct fallback *fallback, int r, const char *text);
/* A pass was committed. */
void fallback_on_success(struct fallback *fallback);

/* The sweep: a file that was removed, replaced or overwritten does not fail by itself. */
void fallback_check_file(struct fallback *fallback);
/* Tries the file soon, for somebody says that it is good again. */
void fallback_hurry(struct fallback *fallback);

/* The last pass failed, and the next one waits. */
bool fallback_is_waiting(const struct fallback *fallback);
/* It has failed for so long that waiting for it is of no use. */
bool fallback_is_lasting(const struct fallback *fallback);
/* The file is not in use, or fails. */
bool fallback_database_fails(const struct fallback *fallback);
/* For people. NULL: there is none. */
const char *fallback_problem(const struct fallback *fallback);
