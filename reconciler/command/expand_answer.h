/* SPDX-License-Identifier: Apache-2.0 */
/* expand_answer.h - the answer to a client that asked for a resize, from the volume's present
 * state.
 *
 * Pure. answers.h has the status of each refusal.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"
#include "store/store.h"

struct expand_facts {
    const struct store_volume
        *volume;           /* decided since the client asked, nothing in flight for it */
    bool observes;         /* crustd may observe it, and not act */
    uint64_t usable_bytes; /* the device's size, with what a LUKS header takes from it */
    uint64_t required_bytes, limit_bytes; /* 0: any */
};

/* Outcomes beside enum status_code. */
enum { EXPAND_WAIT = -1, EXPAND_LATER = -2 };

/* STATUS_OK: the guest has it. EXPAND_LATER: no sandbox has the volume yet, and its file system
 * will be grown when one does: STATUS_OK once that debt is on record. EXPAND_WAIT: something is yet
 * to be tried. Else error says why. */
int expand_answer(const struct expand_facts *facts, struct error *error);

/* Whether something forbids the resize that no attempt changes: then no answer may be OK. */
bool expand_is_barred(const struct store_volume *volume);
