/* SPDX-License-Identifier: Apache-2.0 */
/* operations.h - calls of clients, with their result and duration, for metrics. */
#pragma once

#include <stdint.h>

#include "lib/histogram.h"
#include "lib/result.h"

struct operation {
    struct operation *next;
    const char *method; /* a constant */
    enum status_code code;
    struct histogram spans;
};

/* One entry per pair of method and code; zero-initialise. */
struct operations {
    struct operation *first;
};

/* method: a constant, identified by its address. The call took from began_ns (CLOCK_BOOTTIME) until
 * now. */
void operations_note(struct operations *operations, const char *method, enum status_code code,
                     uint64_t began_ns);
void operations_done(struct operations *operations);
