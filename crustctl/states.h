/* SPDX-License-Identifier: Apache-2.0 */
/* states.h - "STATE" or "STATE/REASON", by which a person names what a volume is waited for. */
#pragma once

#include <stdbool.h>

bool states_is_selector(const char *selector);
bool states_match(const char *selector, const char *state, const char *reason);
