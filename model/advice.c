/* SPDX-License-Identifier: Apache-2.0 */
/* advice.c - picks the explanation of the reason over that of the state, adds the remedies for
 * layers that have not followed, and names an obstacle to a resize once even if it is also the
 * state's reason.
 */
#include "model/advice.h"

#include <stddef.h>
#include <string.h>

#include "lib/json.h"

static void add_layers(struct advice *advice, const cJSON *layers)
{
    const cJSON *layer = NULL;

    cJSON_ArrayForEach(layer, layers)
    {
        const char *remedy = json_string(layer, "remedy");

        if (remedy && *remedy && advice->remedies < ADVICE_LAYERS)
            advice->remedy[advice->remedies++] = remedy;
    }
}

/* Two reasons may have the same one. */
static bool has_remedy(const struct advice *advice, const char *remedy)
{
    for (unsigned i = 0; i < advice->remedies; i++)
        if (strcmp(advice->remedy[i], remedy) == 0)
            return true;
    return false;
}

static void add_remedies(struct advice *advice, const struct explanation *text)
{
    for (unsigned i = 0; text && i < EXPLANATION_REMEDIES && text->remedy[i]; i++)
        if (!has_remedy(advice, text->remedy[i]))
            advice->remedy[advice->remedies++] = text->remedy[i];
}

void advice_collect(const cJSON *volume, const cJSON *layers, struct advice *ret_advice)
{
    const enum volume_state state = state_from_name(json_text(volume, "state"));
    struct advice advice = {
        .state = state_explain(state),
        .reason = reason_explain(reason_from_name(json_text(volume, "reason")), state),
        .resizable =
            reason_explain_resizable(reason_from_name(json_text(volume, "resizable_reason"))),
    };
    const struct explanation *text = advice.reason ? advice.reason : advice.state;

    advice.missing = text ? text->missing : NULL;
    add_layers(&advice, layers);
    if (advice.resizable != text)
        add_remedies(&advice, advice.resizable);
    add_remedies(&advice, text);
    *ret_advice = advice;
}
