/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup.h - finding stale metadata, a slice at a time, and having it moved away.
 *
 * A pass examines every directory that is known, has the processes of the node counted for those
 * that look stale, and then decides about all of them at once. It runs when nothing else is to be
 * done, in slices, and may be abandoned anywhere before it decides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "lib/status.h"
#include "reconciler/cleanup/visibility.h"

struct census;
struct cleanup_pass;
struct fallback;
struct observer;

enum { CLEANUP_RATE_SECONDS = 60 };

struct cleanup {
    const struct context *context;
    const struct trees *trees;
    const struct observer *observer;
    const struct fallback *fallback;
    struct visibility visibility;
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

void cleanup_done(struct cleanup *cleanup);

/* Have a pass begun as soon as there is time, and what is under way looked at. */
void cleanup_want(struct cleanup *cleanup);

/* A slice of what there is to do. Whether there is more right now. */
bool cleanup_work(struct cleanup *cleanup);
bool cleanup_is_busy(const struct cleanup *cleanup);

/* What the pass under way knows is of another database. */
void cleanup_abandon(struct cleanup *cleanup);

/* A whole pass at once, on behalf of a person, who thereby confirms what the breaker holds back.
 * Appends [{volume_id, key, target_path, decision, reason, waits_for, evidence}, …]; dry: nothing
 * is done. 0 or -errno of the store. */
struct cleanup_question;
int cleanup_run(struct cleanup *cleanup, const struct cleanup_question *question,
                struct buffer *ret_json);

/* cleanup_command.c: what a person may ask for; see reconciler_gc() and reconciler_restore(). */
enum status_code cleanup_gc(struct cleanup *cleanup, bool dry_run, int64_t volume_id,
                            struct buffer *ret_json, struct error *error);
enum status_code cleanup_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error);
