/* SPDX-License-Identifier: Apache-2.0 */
/* journal_lines.h - log.journal: the journal on stdout, a line of JSON for each committed row.
 *
 * The database is the queue: rows are read once stdout takes more, so a slow reader costs no
 * memory. A reader that falls behind too far loses the oldest rows, which are counted and logged;
 * audit_journal has them. The loop never waits for stdout.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/line_output.h"

struct context;

/* The fields are private to the module. */
struct journal_lines {
    const struct context *context;
    const char *node; /* borrowed */
    int fd;           /* where to; 0: nowhere */
    bool is_on;
    struct line_output output;
    struct loop_timer more;
    int64_t seq;      /* the last row that was read */
    int64_t newest;   /* on record */
    uint64_t skipped; /* rows that were never read */
    uint64_t said;    /* of those that were lost, in the log */
    uint64_t said_ns; /* when */
};

void journal_lines_init(struct journal_lines *lines, const struct context *context, int fd,
                        const char *node);
/* Writes what is committed and still to be written, as far as that goes at once. */
void journal_lines_done(struct journal_lines *lines);

/* As log.journal says now. At the start: from the row on with which the store was opened. */
void journal_lines_start(struct journal_lines *lines);
void journal_lines_configure(struct journal_lines *lines);
/* The store is a different one. */
void journal_lines_begin_anew(struct journal_lines *lines);

/* Outside a transaction: writes some of what was committed since. */
void journal_lines_follow(struct journal_lines *lines);

uint64_t journal_lines_printed(const struct journal_lines *lines);
uint64_t journal_lines_dropped(const struct journal_lines *lines);
