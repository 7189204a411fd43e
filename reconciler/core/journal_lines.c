/* SPDX-License-Identifier: Apache-2.0 */
/* journal_lines.c - see journal_lines.h. */
#include "reconciler/core/journal_lines.h"

#include <inttypes.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "store/journal_lines.h"

enum {
    ROWS_AT_ONCE = 32,     /* then the loop is served */
    BEHIND_MOST = 10000,   /* rows that a slow reader may be behind */
    BEHIND_AFTER = 5000,   /* rows that are left to it if it is further behind */
    ROUNDS_AT_END = 10000, /* of ROWS_AT_ONCE, when crustd stops */
};
static const uint64_t SAY_NS = 60 * NSEC_PER_SEC;

void journal_lines_init(struct journal_lines *lines, const struct context *context, int fd,
                        const char *node)
{
    *lines = (struct journal_lines){.context = context, .fd = fd, .node = node};
    if (fd > 0)
        line_output_init(&lines->output, context->loop, fd,
                         (size_t)ROWS_AT_ONCE * LINE_OUTPUT_LINE_BYTES);
}

uint64_t journal_lines_printed(const struct journal_lines *lines)
{
    return lines->output.written;
}

uint64_t journal_lines_dropped(const struct journal_lines *lines)
{
    return lines->skipped + lines->output.dropped;
}

/* ---- what is lost -------------------------------------------------------------------------- */

static void say_lost(struct journal_lines *lines)
{
    const uint64_t lost = journal_lines_dropped(lines), now = clock_boottime();

    if (lost == lines->said || (lines->said && now - lines->said_ns < SAY_NS))
        return;
    log_warning(NULL,
                "%" PRIu64 " rows of the journal were not printed to stdout: %s; audit_journal has "
                "them",
                lost - lines->said,
                lines->output.failure ? strerror(-lines->output.failure)
                                      : "its reader is too slow");
    lines->said = lost;
    lines->said_ns = now;
}

static void skip_to(struct journal_lines *lines, int64_t seq)
{
    if (seq <= lines->seq)
        return;
    lines->skipped += (uint64_t)(seq - lines->seq);
    lines->seq = seq;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Whether there may be more at once. */
static bool write_some(struct journal_lines *lines)
{
    struct store_journal_lines next = {.node = lines->node,
                                       .seq = lines->seq,
                                       .most = ROWS_AT_ONCE,
                                       .line_bytes = LINE_OUTPUT_LINE_BYTES};

    if (line_output_is_waiting(&lines->output))
        return false;
    /* A failure concerns the pass as well, which says so. */
    (void)store_read_journal_lines(lines->context->store, &next, &lines->output.lines);
    if (next.seq == lines->seq)
        return false;
    lines->seq = next.seq;
    lines->skipped += next.gone;
    line_output_flush(&lines->output);
    return lines->seq < lines->newest;
}

static void on_more(struct loop_timer *timer)
{
    journal_lines_follow(container_of(timer, struct journal_lines, more));
}

static bool find_newest(struct journal_lines *lines)
{
    return store_newest_journal_row(lines->context->store, &lines->newest) == 0;
}

void journal_lines_follow(struct journal_lines *lines)
{
    if (!lines->is_on || !find_newest(lines))
        return;
    if (lines->newest - lines->seq > BEHIND_MOST)
        skip_to(lines, lines->newest - BEHIND_AFTER);
    if (lines->newest > lines->seq && write_some(lines))
        loop_timer_start(lines->context->loop, &lines->more, 0, on_more);
    say_lost(lines);
}

/* ---- beginning and end --------------------------------------------------------------------- */

void journal_lines_start(struct journal_lines *lines)
{
    lines->is_on = lines->fd > 0 && lines->context->config->log.journal;
    if (!lines->is_on || store_opening_journal_row(lines->context->store, &lines->seq) < 0)
        return;
    lines->seq = lines->seq > 0 ? lines->seq - 1 : 0;
}

void journal_lines_configure(struct journal_lines *lines)
{
    const bool was_on = lines->is_on;

    lines->is_on = lines->fd > 0 && lines->context->config->log.journal;
    if (lines->is_on && !was_on && find_newest(lines))
        lines->seq = lines->newest;
}

void journal_lines_begin_anew(struct journal_lines *lines)
{
    if (!lines->is_on)
        return;
    skip_to(lines, lines->newest); /* went with the other store */
    journal_lines_start(lines);
}

void journal_lines_done(struct journal_lines *lines)
{
    loop_timer_stop(&lines->more);
    if (lines->fd <= 0)
        return;
    if (lines->is_on && find_newest(lines)) {
        line_output_flush(&lines->output);
        for (unsigned i = 0; i < ROUNDS_AT_END && write_some(lines); i++)
            ;
        skip_to(lines, lines->newest);
        lines->said_ns = 0;
        say_lost(lines);
    }
    line_output_done(&lines->output);
}
