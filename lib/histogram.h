/* SPDX-License-Identifier: Apache-2.0 */
/* histogram.h - how long things took, counted in fixed buckets, for metrics. */
#pragma once

#include <stdint.h>

enum { HISTOGRAM_BUCKETS = 22 };

/* The upper ends, inclusive; what took longer is only in `count`. */
extern const double histogram_seconds[HISTOGRAM_BUCKETS];

struct histogram {
    uint64_t bucket[HISTOGRAM_BUCKETS]; /* each by itself, not added up */
    uint64_t count;
    double sum_seconds;
};

void histogram_add(struct histogram *histogram, double seconds);
void histogram_merge(struct histogram *into, const struct histogram *from);
