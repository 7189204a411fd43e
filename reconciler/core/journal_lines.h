/* SPDX-License-Identifier: Apache-2.0 */
/* journal_lines.h - log.journal: the journal on stdout, a line of JSON for each committed row.
 *
 * The loop never waits for stdout: a line that it does not take at once is dropped and counted.
 * audit_journal has the row.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/log.h"

struct context;

/* Others read output.written and output.dropped; the rest is private to the module. */
struct journal_lines {
    const struct context *context;
    const char *node; /* borrowed */
    bool has_output, is_on;
    struct line_output output;
    int64_t seq; /* the last row that was read */
};

/* fd: borrowed; 0: nowhere. */
void journal_lines_init(struct journal_lines *lines, const struct context *context, int fd,
                        const char *node);
/* Writes the rows that are left. */
void journal_lines_done(struct journal_lines *lines);

/* As log.journal says now. Where crustd starts it begins with the row with which the store was
 * opened, switched on later with the next row. */
void journal_lines_configure(struct journal_lines *lines, bool starts);

/* Outside a transaction: writes some of what was committed since. Whether there may be more. */
bool journal_lines_follow(struct journal_lines *lines);
