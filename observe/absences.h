/* SPDX-License-Identifier: Apache-2.0 */
/* absences.h - that a sandbox has no shim, to a caller who asks until it is certain.
 *
 * The shim runs before the first question. So a reading of the processes that began after it, was
 * completed, whoever went on with it, and has missed nothing shows the shim, if there is one. When
 * that question came is remembered for the latest sandboxes that were asked about.
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
