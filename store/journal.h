/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - history, line by line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "store/bounds.h"

/* A line of history. ids 0/NULL where it is about nothing in particular (a volume brings its own
 * sandbox and device); detail is JSON or NULL. The kinds and what their details have are listed in
 * docs/reference/audit-views.md (audit_journal). */
int store_journal(struct store *store, const char *kind, int64_t volume_id, const char *sandbox_id,
                  const char *device, const char *detail);

/* ---- event rows ----------------------------------------------------------------------------- */

/* A row of the journal that Kubernetes is told of, with the objects that it is about. Texts are
 * borrowed while the callback runs, and "" where unknown. */
struct store_event_row {
    int64_t seq, at; /* at: milliseconds since 1970 */
    const char *kind;
    const char *to;      /* "state/reason", the guest's condition, or the state at a resize's end */
    const char *message; /* the guest's own words */
    const char *cause;   /* why metadata was removed */
    const char *pv;
    const char *claim_namespace, *claim_name; /* if the driver wrote them into mountInfo.json */
    const char *pod_namespace, *pod_name; /* of the sandbox that has the volume, or had it last */
    const char *pod_uid;                  /* from the volume path */
    const char *target_path;
    bool is_current;  /* the volume is still as `to` says */
    bool is_stalled;  /* so is it now */
    bool is_repeated; /* it came to be as `to` says before, in this sandbox and at this size */
    int64_t from_bytes, to_bytes; /* of its newest resize; 0: unknown */
    bool is_raw;                  /* a file system on it is the pod's affair */
};

typedef void store_event_callback(void *userdata, const struct store_event_row *row);

/* Calls it for each such row from *seq + 1 to *seq + most, and moves *seq. Outside a transaction
 * only, so that every row is committed. 0 or an enum store_failure. */
int store_each_event_row(struct store *store, int64_t *seq, int64_t newest, unsigned most,
                         store_event_callback *callback, void *userdata);

/* ---- journal text --------------------------------------------------------------------------- */

/* One row of the journal as a line of JSON. Every value is escaped, and detail is embedded only if
 * it is JSON without control characters, so that nothing on record can begin another line. Texts
 * are borrowed, and "" where unknown. */
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

/* The journal's rows as lines of JSON, for log engines: docs/reference/journal.md is the contract.
 * Outside a transaction only, so that every line is of a row that is committed. */

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
