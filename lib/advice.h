/* advice.h - what there is to say of one volume's state, from the table of explanations and from
 * the rows about it. */
#pragma once

#include <cjson/cJSON.h>

#include "lib/explain.h"

enum { ADVICE_LAYERS = 4, ADVICE_REMEDIES = ADVICE_LAYERS + EXPLAIN_REMEDIES };

struct advice {
    const struct explanation *state;  /* NULL: a word that this version does not know */
    const struct explanation *reason; /* NULL: none, or likewise */
    const char *missing;              /* NULL: nothing */
    unsigned remedies;
    const char *remedy[ADVICE_REMEDIES]; /* this volume's own come first */
};

/* layers: rows of audit_layers, or NULL. The texts are borrowed from them and from the table. */
void advice_collect(const char *state, const char *reason, const cJSON *layers,
                    struct advice *ret_advice);
