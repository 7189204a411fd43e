/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - which clock for what.
 *
 * Timeouts and ages count nanoseconds of CLOCK_BOOTTIME (they go on while the machine sleeps and
 * never jump); text for people is CLOCK_REALTIME. How long crustd itself takes is measured by
 * CLOCK_MONOTONIC, and by processor time where the bound must not depend on who else runs. Nothing
 * compares wall time with a file's mtime.
 */
#pragma once

#include <stdint.h>

#define NSEC_PER_SEC  UINT64_C(1000000000)
#define NSEC_PER_MSEC UINT64_C(1000000)

enum { CLOCK_TEXT_BYTES = 25 }; /* "2026-01-02T03:04:05.678Z" and a NUL */

uint64_t clock_boottime(void);   /* nanoseconds since boot */
uint64_t clock_monotonic(void);  /* the same without the time that the machine slept */
uint64_t clock_processor(void);  /* nanoseconds of processor time that this thread has used */
int64_t clock_realtime_ms(void); /* milliseconds since 1970 UTC */

/* Which boot boottime counts from. Empty if it can't be read, and -errno. */
enum { CLOCK_BOOT_ID_BYTES = 37 }; /* a UUID and a NUL */
int clock_boot_id(char ret_boot_id[static CLOCK_BOOT_ID_BYTES]);

void clock_text(int64_t realtime_ms, char ret_text[static CLOCK_TEXT_BYTES]);

/* ---- histogram ------------------------------------------------------------------------------ */

/* How long things took, counted in fixed buckets, for metrics. */

enum { HISTOGRAM_BUCKETS = 22 };

/* The upper ends, inclusive; what took longer is only in `count`. */
extern const double histogram_seconds[HISTOGRAM_BUCKETS];

struct histogram {
    uint64_t bucket[HISTOGRAM_BUCKETS]; /* each by itself, not added up */
    uint64_t count;
    double sum_seconds;
};

void histogram_add(struct histogram *histogram, double seconds);
