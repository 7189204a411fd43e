/* SPDX-License-Identifier: Apache-2.0 */
/* volume_state.h - a volume's state, what shows it, and when it is tried again. */
#pragma once

#include "store/volume.h"

/* The only place that changes a volume's state. Journals "old -> new"; an open resize follows; one
 * that is in_sync, unmanaged or whose volume is removed is finished. The row follows. ret_changed
 * may be NULL. */
int store_set_state(struct store *store, struct store_volume *volume, enum volume_state state,
                    enum volume_reason reason, bool *ret_changed);

/* Whether crustd may only watch the volume's resizes: it then never counts as stalled or pending.
 */
int store_set_observed(struct store *store, int64_t volume_id, bool observed);

/* Whether a resize would reach the volume's file system: yes, no, unknown; NULL: nobody uses it.
 * reason: why not, or what was not seen. Journaled where it is or was "no".
 * ret_changed may be NULL. */
int store_set_resizable(struct store *store, const struct store_volume *volume,
                        const char *resizable, enum volume_reason reason, bool *ret_changed);

/* The evidence for why the volume is blocked; "" none. The row follows. */
int store_set_evidence(struct store *store, struct store_volume *volume, const char *evidence);

/* When it is tried again; next_attempt_ns 0: not until something changes. */
int store_set_attempts(struct store *store, int64_t volume_id, uint32_t attempts,
                       uint64_t next_attempt_ns, int64_t next_attempt_ms);

/* Whether a next attempt is set that no failed one came before. */
bool store_awaits_stillness(struct store *store);

/* An operator asked for a resync: every waiting volume may try at once, by every route. The result
 * of the last attempt stays until the next one ends. */
int store_forget_waiting(struct store *store);
/* The same for the volumes bound to one sandbox, about which something changed. */
int store_forget_waiting_of(struct store *store, int64_t sandbox_ref);
