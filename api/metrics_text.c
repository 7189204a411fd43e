/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_text.c - the format, independent of what is measured. */
#include "api/metrics_text.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/text.h"

static void put(struct metrics_text *text, const char *bytes)
{
    buffer_append_text(text->out, bytes);
}

static void put_value(struct metrics_text *text, double value)
{
    char number[32];

    (void)snprintf(number, sizeof(number), " %.15g\n", value);
    put(text, number);
}

static void put_character(struct metrics_text *text, const char *bytes, size_t length)
{
    if (*bytes == '\\' || *bytes == '"')
        put(text, "\\");
    if (*bytes == '\n')
        put(text, "\\n");
    else
        buffer_append(text->out, bytes, length);
}

/* A single label that is not UTF-8 would make Prometheus refuse the whole answer. */
static void put_escaped(struct metrics_text *text, const char *value)
{
    const char *end = value + strlen(value);

    while (value < end) {
        uint32_t character;
        size_t length = text_decode_utf8(value, (size_t)(end - value), &character);

        if (length == 0)
            put(text, "\xef\xbf\xbd");
        else
            put_character(text, value, length);
        value += length ? length : 1;
    }
}

/* {name="value",…}; `limit` is the bucket's, or NULL. */
static void put_labels(struct metrics_text *text, const struct metrics_labels *labels,
                       const char *limit)
{
    const char *before = "{";

    for (size_t i = 0; labels && i < METRICS_LABELS && labels->label[i].name; i++) {
        put(text, before);
        put(text, labels->label[i].name);
        put(text, "=\"");
        put_escaped(text, labels->label[i].value);
        put(text, "\"");
        before = ",";
    }
    if (limit) {
        put(text, before);
        put(text, "le=\"");
        put(text, limit);
        put(text, "\"");
        before = ",";
    }
    if (*before == ',')
        put(text, "}");
}

void metrics_begin(struct metrics_text *text, const char *name, const char *type, const char *help)
{
    text->family = name;
    put(text, "# HELP ");
    put(text, name);
    put(text, " ");
    put(text, help);
    put(text, "\n# TYPE ");
    put(text, name);
    put(text, " ");
    put(text, type);
    put(text, "\n");
}

void metrics_put(struct metrics_text *text, const struct metrics_labels *labels, double value)
{
    put(text, text->family);
    put_labels(text, labels, NULL);
    put_value(text, value);
}

static void put_part(struct metrics_text *text, const char *suffix,
                     const struct metrics_labels *labels, const char *limit, double value)
{
    put(text, text->family);
    put(text, suffix);
    put_labels(text, labels, limit);
    put_value(text, value);
}

void metrics_put_histogram(struct metrics_text *text, const struct metrics_labels *labels,
                           const struct histogram *histogram)
{
    uint64_t below = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        char limit[32];

        below += histogram->bucket[i];
        (void)snprintf(limit, sizeof(limit), "%g", histogram_seconds[i]);
        put_part(text, "_bucket", labels, limit, (double)below);
    }
    put_part(text, "_bucket", labels, "+Inf", (double)histogram->count);
    put_part(text, "_sum", labels, NULL, histogram->sum_seconds);
    put_part(text, "_count", labels, NULL, (double)histogram->count);
}

/* ---- metrics process ------------------------------------------------------------------------ */

/* Reads /proc/self as described in proc(5). */

struct process {
    uint64_t user_ticks, system_ticks, start_ticks;
    uint64_t virtual_bytes;
    int64_t resident_pages;
};

/* The name may contain any byte, and ends at the last parenthesis. */
static bool read_stat(struct process *ret_process)
{
    FILE *file = fopen("/proc/self/stat", "re");
    char line[1024] = "";
    const char *rest = NULL;

    if (!file)
        return false;
    if (fgets(line, sizeof(line), file))
        rest = strrchr(line, ')');
    (void)fclose(file);
    return rest &&
           sscanf(rest,
                  ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
                  " %*d %*d %*d %*d %*d %*d %" SCNu64 " %" SCNu64 " %" SCNd64,
                  &ret_process->user_ticks, &ret_process->system_ticks, &ret_process->start_ticks,
                  &ret_process->virtual_bytes, &ret_process->resident_pages) == 5;
}

/* Excludes the descriptor that is used for counting; -1: unknown. */
static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = -1;

    if (!directory)
        return -1;
    for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        count += entry->d_name[0] != '.';
    (void)closedir(directory);
    return count;
}

/* Computed once: the clocks drift against each other, but the start time must stay the same. */
static double started_at(const struct process *process)
{
    static double started;

    if (started == 0)
        started = (double)clock_realtime_ms() / 1000 -
                  (double)clock_boottime() / (double)NSEC_PER_SEC +
                  (double)process->start_ticks / (double)sysconf(_SC_CLK_TCK);
    return started;
}

static void write_stat(struct metrics_text *text, const struct process *process)
{
    double ticks = (double)(process->user_ticks + process->system_ticks);

    metrics_begin(text, "process_cpu_seconds_total", "counter",
                  "Processor time, of user and system.");
    metrics_put(text, NULL, ticks / (double)sysconf(_SC_CLK_TCK));
    metrics_begin(text, "process_start_time_seconds", "gauge", "When it started, since 1970.");
    metrics_put(text, NULL, started_at(process));
    metrics_begin(text, "process_virtual_memory_bytes", "gauge", "Virtual memory.");
    metrics_put(text, NULL, (double)process->virtual_bytes);
    metrics_begin(text, "process_resident_memory_bytes", "gauge", "Memory that is in use.");
    metrics_put(text, NULL, (double)process->resident_pages * (double)sysconf(_SC_PAGESIZE));
}

void metrics_write_process(struct metrics_text *text)
{
    struct process process;
    struct rlimit limit;
    int descriptors = count_descriptors();

    if (read_stat(&process))
        write_stat(text, &process);
    if (descriptors >= 0) {
        metrics_begin(text, "process_open_fds", "gauge", "Open file descriptors.");
        metrics_put(text, NULL, descriptors);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        metrics_begin(text, "process_max_fds", "gauge", "File descriptors that it may have.");
        metrics_put(text, NULL, (double)limit.rlim_cur);
    }
}
