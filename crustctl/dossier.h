/* SPDX-License-Identifier: Apache-2.0 */
/* dossier.h - all that is known about one volume, from several views. */
#pragma once

#include <cjson/cJSON.h>

#include "crustctl/command.h"

enum { DOSSIER_JOURNAL_LINES = 8, DOSSIER_LAYERS = 32 };

/* Members but the volume are NULL if there is none. */
struct dossier {
    cJSON *volume;
    cJSON *binding; /* open */
    cJSON *sandbox; /* that it is bound to */
    cJSON *layers;  /* an array: what its device stands on, itself first */
    cJSON *resize;  /* the newest */
    cJSON *cleanup; /* the newest */
    cJSON *judged;  /* an array: what the daemon says of each of its directories now */
    cJSON *journal; /* an array of its last lines, at most DOSSIER_JOURNAL_LINES */
};

/* Asks the daemon, if one answers, whether the volume's metadata looks stale. */
void dossier_ask_judged(struct session *session, struct dossier *dossier);

/* Fills the dossier of the volume that the first operand names. 0, or an exit code after saying why
 * on stderr. Call dossier_done() in either case. */
int dossier_collect(struct session *session, struct dossier *ret_dossier);
void dossier_done(struct dossier *dossier);
