/* SPDX-License-Identifier: Apache-2.0 */
/* backoff.c - see backoff.h. */
#include "reconciler/decide/backoff.h"

uint64_t backoff_bound(uint32_t failures)
{
    uint64_t bound = BACKOFF_FIRST_NS;

    for (uint32_t i = 1; i < failures && bound < BACKOFF_LARGEST_NS; i++)
        bound *= 2;
    return bound < BACKOFF_LARGEST_NS ? bound : BACKOFF_LARGEST_NS;
}

uint64_t backoff_delay(uint32_t failures, uint64_t random)
{
    uint64_t bound = backoff_bound(failures);
    uint64_t least = bound / 100;

    return least + random % (bound - least + 1);
}
