/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h - the route `helper`: a program that is brought into a guest for about a second, and
 * grows file systems there or reports their usage.
 *
 * One helper serves all volumes of its sandbox that wait for it, and includes the others. At most
 * one runs in a sandbox and guest.helpers on the node; resizes take precedence over reports. A
 * sandbox's usage is requested at most once in HELPER_FRESH_NS: in between the last answer is used,
 * with its age.
 *
 * What an earlier daemon left behind, on record or recognised by its name in the share of a live
 * sandbox, is removed before the sandbox gets another helper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent-client/guest_call.h"
#include "lib/clock.h"

#define HELPER_FRESH_NS (300 * NSEC_PER_SEC)

struct config;
struct context;
struct helper_call;
struct helpers;
struct store_volume;

enum helper_purpose { HELPER_RESIZE, HELPER_STATS };

/* targets.c: whether this route exists for the volume. */
bool helper_is_possible(const struct config *config, const struct store_volume *volume);

/* Exactly one `done` follows, from the loop and never from within; the call is freed then.
 * deadline_ns: how long to wait for a helper to begin, from now; 0: no limit. 0 or -ENOMEM. */
int helper_call_new(struct helpers *helpers, const struct store_volume *volume,
                    enum helper_purpose purpose, uint64_t deadline_ns, guest_helper_done *done,
                    void *userdata, struct helper_call **ret_call);
/* Returns NULL. A helper that runs for the call continues. */
struct helper_call *helper_call_free(struct helper_call *call);

struct helpers *helpers_new(const struct context *context); /* borrowed. NULL: no memory */
struct helpers *helpers_free(struct helpers *helpers);      /* returns NULL */
/* After the first scan: finds and removes what an earlier daemon left. */
void helpers_start(struct helpers *helpers);
/* A helper that another module ran could not be removed: that is tried again until it succeeds.
 * NULL: it was not tried yet. */
void helpers_note_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                           const struct error *error);
/* At times: forgets old answers. */
void helpers_sweep(struct helpers *helpers);
/* crustd is stopping: no further helper begins, and calls that wait for one are ended. A helper
 * that still runs after resize.call_timeout_seconds is left in the guest, on record. */
void helpers_stop(struct helpers *helpers);
/* No helper runs, and none is about to. */
bool helpers_are_idle(const struct helpers *helpers);
/* Ids have lost their meaning: waiting calls are refused, and running helpers are left in their
 * guests, on record. */
void helpers_reset(struct helpers *helpers);
