/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_pass.h - one check of all metadata, and its consequences. Private to
 * reconciler/cleanup/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"

struct cleanup_pass;
struct cleanup;

/* A person's request. dry: nothing is removed; otherwise the request confirms what the brakes hold
 * back. volume_id: only about this volume, dry, and also if it does not look stale; 0: all that
 * look stale. */
struct cleanup_question {
    bool dry;
    int64_t volume_id;
};

/* question NULL: crustd's own pass. */
int cleanup_pass_new(struct cleanup *cleanup, const struct cleanup_question *question,
                     struct cleanup_pass **ret_pass);
struct cleanup_pass *cleanup_pass_free(struct cleanup_pass *pass);

/* One small step before the decision. 1: there are more, 0: that was the last, -errno. */
int cleanup_pass_prepare(struct cleanup_pass *pass);

/* Decides, records and moves away. 0, or -errno of the store: then none of it is on record. */
int cleanup_pass_finish(struct cleanup_pass *pass);

/* The decisions as a JSON array; to be called before the trash is advanced. What exceeds the buffer
 * is left out. */
int cleanup_pass_report(struct cleanup_pass *pass, struct buffer *json);

/* When another pass would have a different result (CLOCK_BOOTTIME); UINT64_MAX: only after a
 * change. */
uint64_t cleanup_pass_wake(const struct cleanup_pass *pass);
