/* advice.c - the reason says more than the state; what helps a layer comes with the layer. */
#include "lib/advice.h"

#include <stddef.h>

#include "lib/json.h"

void advice_collect(const char *state, const char *reason, const cJSON *layers,
                    struct advice *ret_advice)
{
    struct advice advice = {.state = explain_state(state), .reason = explain_reason(state, reason)};
    const struct explanation *text = advice.reason ? advice.reason : advice.state;
    const cJSON *layer = NULL;

    advice.missing = text ? text->missing : NULL;
    cJSON_ArrayForEach(layer, layers)
    {
        const char *remedy = json_string(layer, "remedy");

        if (remedy && *remedy && advice.remedies < ADVICE_LAYERS)
            advice.remedy[advice.remedies++] = remedy;
    }
    for (unsigned i = 0; text && i < EXPLAIN_REMEDIES && text->remedy[i]; i++)
        advice.remedy[advice.remedies++] = text->remedy[i];
    *ret_advice = advice;
}
