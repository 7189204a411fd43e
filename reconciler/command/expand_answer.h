/* SPDX-License-Identifier: Apache-2.0 */
/* expand_answer.h - what a client that asked for a resize is told about a volume as it stands.
 *
 * Pure; which status a refusal has is answers.h's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"
#include "lib/status.h"
#include "store/store.h"

struct expand_facts {
    const struct store_volume
        *volume;           /* decided since the client asked, nothing in flight for it */
    bool observes;         /* crustd may look at it, and not act */
    uint64_t usable_bytes; /* the device's size, with what a LUKS header takes from it */
    uint64_t required_bytes, limit_bytes; /* 0: any */
};

/* Outcomes beside enum status_code. */
enum { EXPAND_WAIT = -1, EXPAND_LATER = -2 };

/* STATUS_OK: the guest has it. EXPAND_LATER: no sandbox has the volume yet, and its file system
 * will be grown when one does: STATUS_OK once that debt is on record. EXPAND_WAIT: something is yet
 * to be tried. Else error says why. */
int expand_answer(const struct expand_facts *facts, struct error *error);

/* Whether something forbids the resize, which no attempt at it changes: nobody is to say OK. */
bool expand_is_barred(const struct store_volume *volume);
