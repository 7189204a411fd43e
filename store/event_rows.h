/* SPDX-License-Identifier: Apache-2.0 */
/* event_rows.h - the journal's rows that Kubernetes is told of, with the objects they are about.
 *
 * Outside a transaction only, so that every row is committed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct store;

/* Texts are borrowed while the callback runs, and "" where unknown. */
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
};

typedef void store_event_callback(void *userdata, const struct store_event_row *row);

/* Calls it for each such row from *seq + 1 to *seq + most, and moves *seq. 0 or an enum
 * store_failure. */
int store_each_event_row(struct store *store, int64_t *seq, int64_t newest, unsigned most,
                         store_event_callback *callback, void *userdata);
