/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.h - going on in memory while the database's file fails, and back.
 *
 * Private to reconciler/. Growth goes on in memory; nothing is removed there, and history is not
 * kept. The file is tried again by itself, at growing intervals.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "lib/result.h"

struct reconciler;

struct fallback {
    struct loop_timer timer;
    unsigned failures;              /* to come back, in a row */
    uint64_t back_ns;               /* when it last came back */
    char why[ERROR_TEXT_BYTES];     /* the file was left */
    char problem[ERROR_TEXT_BYTES]; /* for people; "" while the file is in use */
};

/* The store was opened in memory, because the file failed at start like this. */
void fallback_begin(struct reconciler *reconciler, const struct error *error);

/* The store failed with r, and has been rolled back; text is its own words. Leaves the file where
 * that helps, sets the reconciler's problem where it doesn't. */
void fallback_on_failure(struct reconciler *reconciler, int r, const char *text);

/* The sweep: a file that was removed, replaced or overwritten does not fail by itself. */
void fallback_check_file(struct reconciler *reconciler);

/* Tries the file soon, for somebody says that it is good again. */
void fallback_hurry(struct reconciler *reconciler);

void fallback_done(struct reconciler *reconciler);
