/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup.h - finds stale metadata, a slice at a time, and moves it away.
 *
 * A pass examines every known directory, counts the node's processes for those that look stale, and
 * then decides all of them at once. It runs in slices when no other work is left, and may be
 * abandoned at any time before it decides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/cleanup/visibility.h"

struct census;
struct cleanup_pass;
struct fallback;
struct observer;

/* The last minute reaches into sixty-one seconds: of the first and of the last it has a part. */
enum { CLEANUP_RATE_SECONDS = 60, CLEANUP_RATE_SLOTS = CLEANUP_RATE_SECONDS + 1 };

struct cleanup {
    const struct context *context;
    const struct trees *trees;
    const struct observer *observer;
    const struct fallback *fallback;
    struct visibility visibility;
    struct cleanup_pass *pass; /* in progress; NULL: none */
    bool pass_wanted;
    bool trash_wanted;      /* rows of the trash may have a next step */
    struct loop_timer look; /* starts the next pass before the sweep does */
    struct loop_timer step; /* starts the next step in the trash */
    uint64_t settles_ns;    /* when the next step in the trash is due; UINT64_MAX: none */

    /* The number of removals in each of the last seconds, for the rate. */
    struct {
        uint64_t second;
        uint32_t count;
    } removed[CLEANUP_RATE_SLOTS];
    /* Recent removals of volumes whose sandboxes' exit was not observed, for the breaker. */
    uint64_t doubtful_ns;
    unsigned long doubtful;
};

void cleanup_done(struct cleanup *cleanup);

/* Requests a pass as soon as there is time, and a check of what is in the trash. */
void cleanup_want(struct cleanup *cleanup);

/* Does one slice of the work. Returns whether there is more to do now. */
bool cleanup_work(struct cleanup *cleanup);
bool cleanup_is_busy(const struct cleanup *cleanup);

/* The results of the pass in progress belong to another database. */
void cleanup_abandon(struct cleanup *cleanup);

/* Runs a whole pass at once, at a person's request, which confirms what the breaker holds back.
 * Appends [{volume_id, key, target_path, decision, reason, waits_for, evidence}, …]; dry: nothing
 * is removed. 0 or -errno of the store. */
struct cleanup_question;
int cleanup_run(struct cleanup *cleanup, const struct cleanup_question *question,
                struct buffer *ret_json);

/* cleanup.c: commands for people; see reconciler_gc() and reconciler_restore(). */
enum status_code cleanup_gc(struct cleanup *cleanup, bool dry_run, int64_t volume_id,
                            struct buffer *ret_json, struct error *error);
enum status_code cleanup_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error);

/* ---- brakes --------------------------------------------------------------------------------- */

/* Limits removals: so many per minute, and never half of all volumes without a person's
 * confirmation. */

struct cleanup;

/* How many more may be removed now; ret_wake_ns: when more will be allowed, if none are. */
unsigned long brakes_allowance(const struct cleanup *cleanup, uint32_t max_per_minute,
                               uint64_t now_ns, uint64_t *ret_wake_ns);

/* Removals in the last BRAKES_RECENT_SECONDS whose sandboxes' exit was not observed: they count
 * towards the breaker, so that spreading them out cannot evade it. */
enum { BRAKES_RECENT_SECONDS = 600 };
unsigned long brakes_recent(const struct cleanup *cleanup, uint64_t now_ns);

/* A person has confirmed all removals so far: none of them counts towards the breaker. */
void brakes_confirm(struct cleanup *cleanup);

void brakes_note(struct cleanup *cleanup, uint64_t now_ns, bool doubtful);
