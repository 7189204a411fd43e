/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - the content of /metrics.
 *
 * Unless metrics.per_volume is on, no volume, sandbox or device is a label: the number of lines is
 * bounded by the names of states, reasons, runtimes, methods and codes.
 */
#pragma once

#include <stdint.h>

#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

/* ---- operations ----------------------------------------------------------------------------- */

/* Calls of clients, with their result and duration, for metrics. */

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

/* 0 or -errno with a text. */
int metrics_write(struct reconciler *reconciler, const struct operations *operations,
                  struct buffer *ret_text, struct error *error);

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"
