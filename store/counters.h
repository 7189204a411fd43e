/* SPDX-License-Identifier: Apache-2.0 */
/* counters.h - what the store has seen happen since it was opened, for metrics.
 *
 * They only grow, and count what was committed. History cannot be counted instead: it is trimmed.
 */
#pragma once

#include <stdint.h>

#include "lib/histogram.h"

struct store_reader;

enum store_resize_stage {
    STORE_STAGE_HYPERVISOR, /* from when the resize was seen until the hypervisor had it */
    STORE_STAGE_GUEST,      /* from then until the guest had it */
    STORE_STAGE_TOTAL,
    STORE_STAGES,
};

enum store_counted_cleanup {
    STORE_COUNTED_KEPT,
    STORE_COUNTED_REMOVED,
    STORE_COUNTED_PUT_BACK,
    STORE_COUNTED_RESTORED,
    STORE_COUNTED_FAILED,
    STORE_COUNTED_CLEANUPS,
};

enum { STORE_COUNTED_RESIZES = 64, STORE_COUNTED_BYTES = 32 };

/* result: "grown"; "blocked", each time that a resize comes to be held up for a reason; "ended",
 * with its volume or its sandbox. */
struct store_counted_resize {
    char result[STORE_COUNTED_BYTES];
    char reason[STORE_COUNTED_BYTES];
    uint64_t count;
};

struct store_counters {
    struct histogram commits;
    struct histogram resizes[STORE_STAGES]; /* that came through */
    unsigned resize_results;
    struct store_counted_resize resize_result[STORE_COUNTED_RESIZES];
    uint64_t cleanups[STORE_COUNTED_CLEANUPS];
    uint64_t published; /* volumes whose metadata read well for the first time */
};

/* Of the daemon's own reader; a reader of a file has none: NULL. */
const struct store_counters *store_reader_counters(const struct store_reader *reader);
