/* SPDX-License-Identifier: Apache-2.0 */
/* brakes.c - the counters are kept in memory only: after a restart of the daemon the grace time
 * starts over as well. */
#include "reconciler/cleanup/brakes.h"

#include "lib/clock.h"
#include "reconciler/cleanup/cleanup.h"

static const uint64_t RECENT_NS = BRAKES_RECENT_SECONDS * NSEC_PER_SEC;

unsigned long brakes_allowance(const struct cleanup *cleanup, uint32_t max_per_minute,
                               uint64_t now_ns, uint64_t *ret_wake_ns)
{
    uint64_t now = now_ns / NSEC_PER_SEC, first = UINT64_MAX;
    unsigned long count = 0;

    for (unsigned i = 0; i < CLEANUP_RATE_SLOTS; i++) {
        if (!cleanup->removed[i].count || cleanup->removed[i].second + CLEANUP_RATE_SECONDS < now)
            continue;
        count += cleanup->removed[i].count;
        if (cleanup->removed[i].second < first)
            first = cleanup->removed[i].second;
    }
    *ret_wake_ns =
        count ? (first + CLEANUP_RATE_SECONDS + 1) * NSEC_PER_SEC : now_ns + NSEC_PER_SEC;
    return count < max_per_minute ? max_per_minute - count : 0;
}

unsigned long brakes_recent(const struct cleanup *cleanup, uint64_t now_ns)
{
    return now_ns - cleanup->doubtful_ns < RECENT_NS ? cleanup->doubtful : 0;
}

void brakes_confirm(struct cleanup *cleanup)
{
    cleanup->doubtful = 0;
}

void brakes_note(struct cleanup *cleanup, uint64_t now_ns, bool doubtful)
{
    uint64_t now = now_ns / NSEC_PER_SEC;
    unsigned slot = (unsigned)(now % CLEANUP_RATE_SLOTS);

    if (cleanup->removed[slot].second != now)
        cleanup->removed[slot].count = 0;
    cleanup->removed[slot].second = now;
    cleanup->removed[slot].count++;
    if (!doubtful)
        return;
    cleanup->doubtful = brakes_recent(cleanup, now_ns) + 1;
    cleanup->doubtful_ns = now_ns;
}
