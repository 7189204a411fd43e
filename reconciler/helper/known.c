/* SPDX-License-Identifier: Apache-2.0 */
/* known.c - see known.h. */
#include "reconciler/helper/known.h"

#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "reconciler/helper/helper.h"

static void drop(struct helper_known *known, struct helper_fact *fact)
{
    HASH_DEL(known->facts, fact);
    free(fact->text);
    free(fact);
}

void helper_known_begin(struct helper_known *known, enum volume_reason reason,
                        const struct error *error)
{
    struct helper_fact *fact, *next;

    known->at_ns = clock_boottime();
    known->reason = reason;
    known->error = *error;
    HASH_ITER (hh, known->facts, fact, next)
        if (known->at_ns - fact->at_ns >= 2 * HELPER_FRESH_NS)
            drop(known, fact);
}

struct helper_fact *helper_known_find(const struct helper_known *known, int64_t binding_id)
{
    struct helper_fact *fact;

    HASH_FIND(hh, known->facts, &binding_id, sizeof(binding_id), fact);
    return fact;
}

/* Without memory nothing is remembered, so a helper is asked again. */
void helper_known_put(struct helper_known *known, int64_t binding_id, bool grew,
                      const struct helper_verdict *verdict)
{
    struct helper_fact *fact = helper_known_find(known, binding_id);

    if (fact)
        drop(known, fact);
    fact = calloc(1, sizeof(*fact));
    if (!fact)
        return;
    *fact = (struct helper_fact){
        .binding_id = binding_id,
        .at_ns = known->at_ns,
        .grew = grew,
        .is_news = true,
        .device_bytes = verdict->device_bytes,
        .reason = verdict->reason,
        .text = verdict->text[0] ? strdup(verdict->text) : NULL,
        .stats = verdict->stats,
    };
    HASH_ADD(hh, known->facts, binding_id, sizeof(fact->binding_id), fact);
    if (fact->hh.tbl)
        return;
    free(fact->text);
    free(fact);
}

void helper_known_done(struct helper_known *known)
{
    struct helper_fact *fact, *next;

    HASH_ITER (hh, known->facts, fact, next)
        drop(known, fact);
}
