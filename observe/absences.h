/* SPDX-License-Identifier: Apache-2.0 */
/* absences.h - decides when it is certain that a sandbox has no shim.
 *
 * A shim is running before the first question about its sandbox comes. So a reading of all
 * processes that began after that question and missed none of root's shows the shim, if there is
 * one. The time of the first question is remembered for the sandboxes that were asked about last.
 */
#pragma once

#include "observe/process_index.h"

struct absences;

int absences_new(struct absences **ret_absences);
struct absences *absences_free(struct absences *absences);

/* A question about the sandbox begins or goes on. To be called before its processes are looked for.
 */
void absences_ask(struct absences *absences, const char *sandbox_id);

/* OBSERVED_ABSENT: it has none; OBSERVED_UNFINISHED: not certain, ask again; -errno. */
int absences_find(struct absences *absences, struct process_index *processes,
                  const char *sandbox_id);
