/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h - the facts about a volume, in sentences. */
#pragma once

#include "config/config.h"
#include "crustctl/dossier.h"

enum { FACTS_MAX = 24, FACT_BYTES = 512 };

struct facts {
    unsigned count;
    char fact[FACTS_MAX][FACT_BYTES]; /* long ones are cut */
};

void facts_collect(const struct dossier *dossier, const struct config *config,
                   struct facts *ret_facts);
