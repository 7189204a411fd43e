/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_pass.h - one look at all metadata, and what follows from it. Private to
 * reconciler/cleanup/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"

struct cleanup_pass;
struct cleanup;

/* What a person asks for. dry: nothing is done; otherwise the person thereby confirms what the
 * brakes hold back. volume_id: about one volume only, dry, and also if it does not look stale; 0:
 * all that look stale. */
struct cleanup_question {
    bool dry;
    int64_t volume_id;
};

/* question NULL: crustd's own. */
int cleanup_pass_new(struct cleanup *cleanup, const struct cleanup_question *question,
                     struct cleanup_pass **ret_pass);
struct cleanup_pass *cleanup_pass_free(struct cleanup_pass *pass);

/* A small step before the decision. 1: there are more, 0: that was the last, -errno. */
int cleanup_pass_prepare(struct cleanup_pass *pass);

/* Decides, records and moves away. 0, or -errno of the store: then nothing of it happened. */
int cleanup_pass_finish(struct cleanup_pass *pass);

/* What was decided, as a JSON array; before the trash is looked at. What is too much for the buffer
 * is left out. */
int cleanup_pass_report(struct cleanup_pass *pass, struct buffer *json);

/* When another pass would find something else (CLOCK_BOOTTIME); UINT64_MAX: not by itself. */
uint64_t cleanup_pass_wake(const struct cleanup_pass *pass);
