/* expand_answer.h - what a client that asked for a growth is told about a volume as it stands.
 *
 * Pure. The table is INTERFACES' ("gRPC on paths.grpc_socket"): the kubelet gives up on
 * FAILED_PRECONDITION and OUT_OF_RANGE, so what may still heal is UNAVAILABLE.
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
enum { EXPAND_WAIT = -1 };

/* STATUS_OK: the guest has it. EXPAND_WAIT: something is yet to be tried. Else error says why. */
int expand_answer(const struct expand_facts *facts, struct error *error);

/* What a reason comes to, which a volume is held up by. */
enum status_code expand_code_of(const char *reason);
