/* SPDX-License-Identifier: Apache-2.0 */
/* histogram.c - one ladder of buckets for everything: from a commit in memory (0.1 ms) to a resize
 * that waits for somebody (10 min). From 0.1 s on its steps are those of the CSI sidecars, so that
 * their dashboards fit. */
#include "lib/histogram.h"

const double histogram_seconds[HISTOGRAM_BUCKETS] = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5,    1,       2.5,    5,     10,     15,    25,   50,    120,  300, 600};

void histogram_add(struct histogram *histogram, double seconds)
{
    histogram->count++;
    histogram->sum_seconds += seconds;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        if (seconds <= histogram_seconds[i]) {
            histogram->bucket[i]++;
            return;
        }
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
    into->count += from->count;
    into->sum_seconds += from->sum_seconds;
}
