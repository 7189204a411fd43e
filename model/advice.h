/* SPDX-License-Identifier: Apache-2.0 */
/* advice.h - the explanation and the remedies for one volume's state, from the table of reasons and
 * from the rows about the volume. */
#pragma once

#include <cjson/cJSON.h>

#include "model/reason.h"

enum { ADVICE_LAYERS = 4, ADVICE_REMEDIES = ADVICE_LAYERS + 2 * EXPLANATION_REMEDIES };

struct advice {
    const struct explanation *state;     /* NULL: a word that this version does not know */
    const struct explanation *reason;    /* NULL: none, or likewise */
    const struct explanation *resizable; /* why a resize would not reach it; NULL: it would */
    const char *missing;                 /* NULL: nothing */
    unsigned remedies;
    const char *remedy[ADVICE_REMEDIES]; /* this volume's own come first */
};

/* volume: a row of audit_volumes. layers: rows of audit_layers, or NULL. The texts are borrowed
 * from them and from the table. */
void advice_collect(const cJSON *volume, const cJSON *layers, struct advice *ret_advice);
