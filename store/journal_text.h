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
