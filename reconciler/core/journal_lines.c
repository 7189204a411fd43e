/* SPDX-License-Identifier: Apache-2.0 */
/* journal_lines.c - see database.h. */
#include "reconciler/core/database.h"

#include <string.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "reconciler/core/context.h"
#include "store/journal.h"

enum { ROWS_AT_ONCE = 32 }; /* then the loop is served */

void journal_lines_init(struct journal_lines *lines, const struct context *context, int fd,
                        const char *node)
{
    *lines = (struct journal_lines){.context = context, .has_output = fd > 0, .node = node};
    if (lines->has_output)
        line_output_init(&lines->output, fd);
}

bool journal_lines_follow(struct journal_lines *lines)
{
    cleanup(buffer_done) struct buffer text =
        BUFFER_INIT((size_t)ROWS_AT_ONCE * LINE_OUTPUT_LINE_BYTES);
    struct store_journal_lines next = {.node = lines->node,
                                       .seq = lines->seq,
                                       .most = ROWS_AT_ONCE,
                                       .line_bytes = LINE_OUTPUT_LINE_BYTES};
    const bool has_dropped = lines->output.dropped > 0;
    int rows, failure;

    if (!lines->is_on)
        return false;
    /* A failure concerns the pass as well, which says so. */
    rows = store_read_journal_lines(lines->context->store, &next, &text);
    failure = line_output_write(&lines->output, text.data, text.length);
    lines->seq = next.seq;
    if (failure < 0 && !has_dropped)
        log_warning(NULL,
                    "lines of the journal are dropped, because stdout does not take them: %s; "
                    "crustd_journal_lines_total counts them, and audit_journal has the rows",
                    failure == LINE_OUTPUT_FULL ? "it is full" : strerror(-failure));
    return rows == ROWS_AT_ONCE;
}

void journal_lines_configure(struct journal_lines *lines, bool starts)
{
    struct store *store = lines->context->store;
    const bool is_on = lines->has_output && lines->context->config->log.journal;
    int r = 0;

    if (is_on && starts)
        r = store_opening_journal_row(store, &lines->seq);
    else if (is_on && !lines->is_on)
        r = store_newest_journal_row(store, &lines->seq);
    lines->is_on = is_on && (starts || r >= 0);
    if (starts && lines->seq > 0)
        lines->seq--;
}

void journal_lines_done(struct journal_lines *lines)
{
    while (journal_lines_follow(lines))
        ;
    if (lines->has_output)
        line_output_done(&lines->output);
}
