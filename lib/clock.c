/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - the clocks, read and written out.
 *
 * clock_gettime(2) cannot fail for these clocks on any kernel that crustd runs on, so none of the
 * functions has an error. The text is always 24 characters: a year outside 0000…9999 would not fit,
 * and is shown as the nearest one that does.
 */
#include "lib/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"

enum { MSEC_PER_SEC = 1000 };

/* 0000-01-01T00:00:00Z and the last second of 9999. */
#define FIRST_SECOND INT64_C(-62167219200)
#define LAST_SECOND  INT64_C(253402300799)

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

uint64_t clock_boottime(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

uint64_t clock_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_processor(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_realtime_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * MSEC_PER_SEC + now.tv_nsec / (int64_t)NSEC_PER_MSEC;
}

int clock_boot_id(char ret_boot_id[static CLOCK_BOOT_ID_BYTES])
{
    const size_t length = CLOCK_BOOT_ID_BYTES - 1;
    cleanup(fd_closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, ret_boot_id, length);
    int r = got < 0 ? -errno : got < (ssize_t)length ? -EBADMSG : 0;

    ret_boot_id[r == 0 ? length : 0] = '\0';
    return r;
}

/* By hand, because gmtime_r(3) brings time zones and their files into a static program. Years begin
 * in March here, so that the leap day is the last one and any five months have 153 days. */
void clock_text(int64_t realtime_ms, char ret_text[static CLOCK_TEXT_BYTES])
{
    enum { DAY_SECONDS = 24 * 60 * 60, CYCLE_YEARS = 400, CYCLE_DAYS = 146097, TO_MARCH = 60 };
    int64_t seconds = realtime_ms / MSEC_PER_SEC;
    int milliseconds = (int)(realtime_ms % MSEC_PER_SEC);
    int of_day, day, year, of_cycle, month;
    char text[96];

    if (milliseconds < 0) {
        milliseconds += MSEC_PER_SEC;
        seconds--;
    }
    if (seconds < FIRST_SECOND)
        seconds = FIRST_SECOND;
    if (seconds > LAST_SECOND)
        seconds = LAST_SECOND;
    seconds -= FIRST_SECOND;
    of_day = (int)(seconds % DAY_SECONDS);
    day = (int)(seconds / DAY_SECONDS) - TO_MARCH + CYCLE_DAYS; /* one cycle too much */
    year = (day / CYCLE_DAYS - 1) * CYCLE_YEARS;
    day %= CYCLE_DAYS;
    of_cycle = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    year += of_cycle;
    day -= 365 * of_cycle + of_cycle / 4 - of_cycle / 100;
    month = (5 * day + 2) / 153;
    day -= (153 * month + 2) / 5;
    year += month >= 10;
    month = month < 10 ? month + 3 : month - 9;
    (void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", year, month, day + 1,
                   of_day / 3600, of_day / 60 % 60, of_day % 60, milliseconds);
    memcpy(ret_text, text, CLOCK_TEXT_BYTES);
}

/* ---- histogram ------------------------------------------------------------------------------ */

/* One ladder of buckets for everything: from a commit in memory (0.1 ms) to a resize
 * that waits for somebody (10 min). From 0.1 s on its steps are those of the CSI sidecars, so that
 * their dashboards fit. */

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
