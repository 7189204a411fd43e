/* SPDX-License-Identifier: Apache-2.0 */
/* kata.h - whether the sandboxes that Kata's configuration makes can grow. Private to doctor/. */
#pragma once

#include "config/config.h"
#include "doctor/finding.h"
#include "doctor/kata_settings.h"
#include "doctor/program.h"

/* Finds the configurations in use, below root: those that the container engine's configuration
 * names, else those that Kata's runtimes look for by themselves. */
void kata_examine(int root, const struct config *config, struct findings *findings);

/* What one configuration leads to; pure. `runtimes`: who uses it, as people call them. */
void kata_judge(const struct kata_settings *settings, const struct program *program,
                const char *file, const char *runtimes, const struct config *config,
                struct findings *findings);
