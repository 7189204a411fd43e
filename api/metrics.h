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

/* ---- Prometheus' text format, version 0.0.4 ----------------------------------------------------
 */

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics_text {
    struct buffer *out; /* latches failures to append */
    const char *family;
};

enum { METRICS_LABELS = 5 };

/* Ends with a name that is NULL. */
struct metrics_labels {
    struct {
        const char *name;
        const char *value; /* any text */
    } label[METRICS_LABELS];
};

#define METRICS_WITH(...) (&(const struct metrics_labels){{__VA_ARGS__}})

/* Begins a family; type: "counter", "gauge", "histogram". Its samples must follow. */
void metrics_begin(struct metrics_text *text, const char *name, const char *type, const char *help);

/* labels NULL: none. */
void metrics_put(struct metrics_text *text, const struct metrics_labels *labels, double value);
void metrics_put_histogram(struct metrics_text *text, const struct metrics_labels *labels,
                           const struct histogram *histogram);
