/* SPDX-License-Identifier: Apache-2.0 */
/* states.c - a selector is one of the model's states, alone or with a reason that it can have. */
#include "crustctl/states.h"

#include <string.h>

#include "model/reason.h"

bool states_match(const char *selector, const char *state, const char *reason)
{
    const size_t length = strcspn(selector, "/");

    if (strlen(state) != length || strncmp(selector, state, length) != 0)
        return false;
    return selector[length] == '\0' || strcmp(selector + length + 1, reason) == 0;
}

bool states_is_selector(const char *selector)
{
    for (unsigned pair = 0; pair < STATES * REASONS; pair++)
        if (reason_is_of(pair % REASONS, pair / REASONS) &&
            states_match(selector, state_name(pair / REASONS), reason_name(pair % REASONS)))
            return true;
    return false;
}
