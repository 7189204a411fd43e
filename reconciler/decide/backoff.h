/* SPDX-License-Identifier: Apache-2.0 */
/* backoff.h - when to try again: exponential with full jitter, 1 s doubling up to 5 minutes.
 *
 * Full jitter (a time anywhere between nothing and the bound) keeps many sandboxes that failed
 * together from coming back together.
 */
#pragma once

#include <stdint.h>

#define BACKOFF_FIRST_NS   UINT64_C(1000000000)
#define BACKOFF_LARGEST_NS UINT64_C(300000000000)

/* The largest delay after so many failures in a row (1, 2, …). */
uint64_t backoff_bound(uint32_t failures);

/* A random delay up to the bound; random is any number, evenly distributed. Never less than a
 * hundredth of the bound, so that no value makes a busy loop. */
uint64_t backoff_delay(uint32_t failures, uint64_t random);
