/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - the states of a volume, as auditors read them. The database keeps the names. */
#pragma once

#include "model/explanation.h"

enum volume_state {
    STATE_UNMANAGED,
    STATE_UNBOUND,
    STATE_DETACHED,
    STATE_BLOCKED,
    STATE_SHRUNK,
    STATE_UNKNOWN,
    STATE_HOST_GROWN,
    STATE_BLOCK_GROWN,
    STATE_IN_SYNC,
    STATES,
};

const char *state_name(enum volume_state state);

/* STATES: a state of another version, whose name is "other" here. */
enum volume_state state_from_name(const char *name);

/* The state by itself; NULL for STATES. */
const struct explanation *state_explain(enum volume_state state);
