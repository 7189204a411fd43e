/* SPDX-License-Identifier: Apache-2.0 */
/* volume_pass.h - the pass over one volume: load, refresh its device, bind, decide, record.
 *
 * Everything is compared with the record, and an equal fact writes nothing. So it does not matter
 * why or how often a volume is decided again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reconciler/decide/decide.h"
#include "store/store.h"

struct context;

/* 0 or -errno of the store, which ends the pass. */
int volume_pass_run(const struct context *context, int64_t volume_id);

/* ---- volume steps --------------------------------------------------------------------------- */

/* In volume_facts.c, for volume_pass.c. All that return int: 0 or -errno of the store. */

/* The observed conflict that forbids acting on the volume's device, if any. */
enum decide_conflict volume_facts_conflict(const struct context *context,
                                           const struct store_volume *volume, bool mismatch);
/* All facts except whether a disk may be rescanned. */
struct decide_facts volume_facts_of(const struct context *context,
                                    const struct store_volume *volume,
                                    enum decide_conflict conflict);
/* The time at which the device will have had its present size for resize.settle_ms. */
uint64_t volume_facts_still_from(const struct context *context, const struct store_volume *volume);

/* Records the evidence that the volume is blocked, or what could not be verified. */
int blocked_detail_record(const struct context *context, struct store_volume *volume,
                          const struct decision *decision);

/* Records whether a resize would reach the volume's file system, from the same facts. */
int resizable_record(const struct context *context, const struct store_volume *volume,
                     const struct decide_facts *facts);
