/* SPDX-License-Identifier: Apache-2.0 */
/* journal_text.h - one row of the journal as a line of JSON. Pure.
 *
 * Every value is escaped, and detail is embedded only if it is JSON without control characters, so
 * that nothing on record can begin another line.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

/* Texts are borrowed, and "" where unknown. */
struct journal_row {
    int64_t seq, at, volume_id;
    const char *kind, *sandbox_id, *device, *detail;
    const char *pv, *pod_uid, *target_path, *state, *reason;
    int64_t state_since, stalled;
    const char *pod_namespace, *pod_name;
};

/* A row that makes more than line_bytes loses what can be looked up. node: NULL or "": left out. 0;
 * BUFFER_FULL or another -errno: nothing of the line was appended. */
int journal_text_append(struct buffer *text, const struct journal_row *row, const char *node,
                        size_t line_bytes);

/* ---- journal lines -------------------------------------------------------------------------- */

/* The journal's rows as lines of JSON, for log engines.
 *
 * docs/reference/journal.md is the contract. Outside a transaction only, so that every line is of a
 * row that is committed.
 */

struct store;

/* The newest row's number, and that of the row with which this opening of the store began; 0: there
 * is none. 0 or an enum store_failure. */
int store_newest_journal_row(struct store *store, int64_t *ret_seq);
int store_opening_journal_row(struct store *store, int64_t *ret_seq);

struct store_journal_lines {
    const char *node;  /* on every line; NULL or "": left out */
    int64_t seq;       /* in: rows after this one; out: the last that was written */
    unsigned most;     /* rows */
    size_t line_bytes; /* the longest line: a longer one loses what can be looked up */
};

/* Appends whole lines to a buffer that has room for `most` of them. How many, or an enum
 * store_failure. */
int store_read_journal_lines(struct store *store, struct store_journal_lines *lines,
                             struct buffer *ret_text);
