/* SPDX-License-Identifier: Apache-2.0 */
/* absences.h - decides when it is certain that a sandbox has no shim.
 *
 * A shim runs before the first question about its sandbox can come. So a reading of all processes
 * that began after that question and missed none of root's finds the shim if it exists. The time of
 * the first question is kept for the sandboxes that were asked about last.
 */
#pragma once

#include "observe/process_index.h"

struct absences;

int absences_new(struct absences **ret_absences);
struct absences *absences_free(struct absences *absences);

/* Begins or continues a question about the sandbox. To be called before the search for its
 * processes. */
void absences_ask(struct absences *absences, const char *sandbox_id);

/* OBSERVED_ABSENT: the sandbox has no shim; OBSERVED_UNFINISHED: not certain yet, ask again;
 * -errno. */
int absences_find(struct absences *absences, struct process_index *processes,
                  const char *sandbox_id);
