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
#include <stdbool.h>
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

/* The number in so many digits, and a character after them. */
static char *put_number(char *at, int number, unsigned digits, char after)
{
    for (unsigned i = digits; i-- > 0; number /= 10)
        at[i] = (char)('0' + number % 10);
    at[digits] = after;
    return at + digits + 1;
}

struct date {
    int year, month, day; /* month and day from 1 on */
};

/* From 0000-01-01 to the year's first day. The year 0 is a leap year. */
static int days_before_year(int year)
{
    return 365 * year + (year + 3) / 4 - (year + 99) / 100 + (year + 399) / 400;
}

/* By hand, because gmtime_r(3) brings time zones and their files into a static program. */
static struct date date_of_day(int day)
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    struct date date = {.year = day / 366, .month = 1};
    bool is_leap;

    while (day >= days_before_year(date.year + 1))
        date.year++;
    day -= days_before_year(date.year);
    is_leap = days_before_year(date.year + 1) - days_before_year(date.year) == 366;
    for (;; date.month++) {
        int length = lengths[date.month - 1] + (date.month == 2 && is_leap);

        if (day < length)
            break;
        day -= length;
    }
    date.day = day + 1;
    return date;
}

void clock_text(int64_t realtime_ms, char ret_text[static CLOCK_TEXT_BYTES])
{
    enum { DAY_SECONDS = 24 * 60 * 60 };
    int64_t seconds = realtime_ms / MSEC_PER_SEC;
    int64_t milliseconds = realtime_ms % MSEC_PER_SEC;
    struct date date;
    char *at = ret_text;
    int of_day;

    if (milliseconds < 0) {
        milliseconds += MSEC_PER_SEC;
        seconds--;
    }
    if (seconds < FIRST_SECOND)
        seconds = FIRST_SECOND;
    if (seconds > LAST_SECOND)
        seconds = LAST_SECOND;
    seconds -= FIRST_SECOND;
    date = date_of_day((int)(seconds / DAY_SECONDS));
    of_day = (int)(seconds % DAY_SECONDS);
    at = put_number(at, date.year, 4, '-');
    at = put_number(at, date.month, 2, '-');
    at = put_number(at, date.day, 2, 'T');
    at = put_number(at, of_day / 3600, 2, ':');
    at = put_number(at, of_day / 60 % 60, 2, ':');
    at = put_number(at, of_day % 60, 2, '.');
    at = put_number(at, (int)milliseconds, 3, 'Z');
    *at = '\0';
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
