/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup.h - finding stale metadata, a slice at a time, and having it moved away.
 *
 * A pass looks at every directory that is known, has the processes of the node counted for those
 * that look stale, and then decides about all of them at once. It runs when nothing else is to be
 * done, in slices, and may be abandoned anywhere before it decides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/core/sources.h"

struct census;
struct cleanup_pass;
struct reconciler;

enum { CLEANUP_RATE_SECONDS = 60 };

struct cleanup {
    struct sources sources;
    struct cleanup_pass *pass; /* under way; NULL: none */
    bool pass_wanted;
    bool trash_wanted;      /* rows of the trash may have a next step */
    struct loop_timer look; /* the next pass, before the sweep wants one */
    struct loop_timer step; /* the next step in the trash */
    uint64_t settles_ns;    /* when the trash has its next step; UINT64_MAX: never */

    /* How many were removed in each of the last seconds, for the rate. */
    struct {
        uint64_t second;
        uint32_t count;
    } removed[CLEANUP_RATE_SECONDS];
    /* And lately without having been seen to end, for the breaker. */
    uint64_t doubtful_ns;
    unsigned long doubtful;
};

void cleanup_done(struct reconciler *reconciler);

/* Have a pass begun as soon as there is time, and what is under way looked at. */
void cleanup_want(struct reconciler *reconciler);

/* A slice of what there is to do. Whether there is more right now. */
bool cleanup_work(struct reconciler *reconciler);
bool cleanup_is_busy(const struct reconciler *reconciler);

/* What the pass under way knows is of another database. */
void cleanup_abandon(struct reconciler *reconciler);

/* A whole pass at once, on behalf of a person, who thereby confirms what the breaker holds back.
 * Appends [{volume_id, key, target_path, decision, reason, evidence}, …]; dry: nothing is done. 0
 * or -errno of the store. */
int cleanup_run(struct reconciler *reconciler, bool dry, struct buffer *ret_json);
