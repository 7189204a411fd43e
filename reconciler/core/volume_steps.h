/* SPDX-License-Identifier: Apache-2.0 */
/* volume_steps.h - the steps of a volume's pass. Private to volume_pass.c and the files named
 * below.
 *
 * All that return int: 0 or -errno of the store.
 */
#pragma once

#include <stdbool.h>

#include "reconciler/decide/decide.h"
#include "store/store.h"

struct context;
struct devices;

/* binding.c: opens, describes or closes the volume's binding, and brings the row up to date. */
int binding_refresh(const struct context *context, struct store_volume *volume, bool *ret_mismatch);

/* volume_facts.c: the observed conflict that forbids acting on the volume's device, if any. */
enum decide_conflict volume_facts_conflict(struct devices *devices,
                                           const struct store_volume *volume, bool mismatch);
/* Whether a resize has to be opened: it is on record from the moment it is seen, whatever its
 * result. */
bool volume_facts_show_resize(const struct context *context, const struct store_volume *volume,
                              enum decide_conflict conflict);
/* All facts except whether a disk may be rescanned. */
struct decide_facts volume_facts_of(const struct context *context,
                                    const struct store_volume *volume,
                                    enum decide_conflict conflict);
/* The time at which the device will have had its present size for resize.settle_ms. */
uint64_t volume_facts_still_from(const struct context *context, const struct store_volume *volume);

/* volume_facts.c: the evidence that the volume is blocked, or what could not be verified. */
int evidence_text_record(const struct context *context, struct store_volume *volume,
                         const struct decision *decision);

/* volume_facts.c: whether a resize would reach the volume's file system, from the same facts. */
int resizable_record(const struct context *context, const struct store_volume *volume,
                     const struct decide_facts *facts);
