/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_text.h - Prometheus' text format, version 0.0.4. Private to api/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/histogram.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics_text {
    struct buffer *out; /* latches failures to append */
    const char *family;
};

enum { METRICS_LABELS = 4 };

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

/* ---- metrics process ------------------------------------------------------------------------ */

/* The process_ metrics that every Prometheus client library provides. Private
 * to api/. */

/* Omits what /proc does not provide. */
void metrics_write_process(struct metrics_text *text);
