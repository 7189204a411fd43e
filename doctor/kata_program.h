/* SPDX-License-Identifier: Apache-2.0 */
/* kata_program.h - whether the VMM that a configuration names can be started. Private to doctor/.
 */
#pragma once

#include "doctor/finding.h"
#include "doctor/kata_settings.h"
#include "doctor/program.h"

/* Of the path; pure. `runtimes`: who uses it, as people call them. */
void kata_program_judge(const struct kata_table *table, const struct program *program,
                        const char *runtimes, struct findings *findings);

/* The same for valid_hypervisor_paths, which only restrict the annotations of pods. */
void kata_program_examine_valid(int root, const struct kata_table *table, const char *runtimes,
                                struct findings *findings);
