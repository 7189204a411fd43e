/* states.c - the list of states and reasons, and how a person names one. */
#include "crustctl/states.h"

#include <stddef.h>
#include <string.h>

#define ROW(state, reason) {state, reason},

const struct state_reason state_reasons[] = {VOLUME_STATE_REASONS(ROW){NULL, NULL}};

bool states_match(const char *selector, const char *state, const char *reason)
{
    const size_t length = strcspn(selector, "/");

    if (strlen(state) != length || strncmp(selector, state, length) != 0)
        return false;
    return selector[length] == '\0' || strcmp(selector + length + 1, reason) == 0;
}

bool states_is_selector(const char *selector)
{
    for (const struct state_reason *row = state_reasons; row->state; row++)
        if (states_match(selector, row->state, row->reason))
            return true;
    return false;
}
