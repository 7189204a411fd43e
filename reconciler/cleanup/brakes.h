/* SPDX-License-Identifier: Apache-2.0 */
/* brakes.h - limits removals: so many per minute, and never half of all volumes without a person's
 * confirmation. Private to reconciler/cleanup/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

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
