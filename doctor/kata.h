/* SPDX-License-Identifier: Apache-2.0 */
/* kata.h - whether volumes of sandboxes with Kata's configuration can be resized. Private to
 * doctor/. */
#pragma once

#include "config/config.h"
#include "doctor/finding.h"
#include "doctor/kata_settings.h"
#include "doctor/program.h"

/* Finds the configurations in use, below root: those that the container engine's configuration
 * names, else those that Kata's runtimes look for by themselves. */
void kata_examine(int root, const struct config *config, struct findings *findings);

/* The findings about one configuration; pure. `runtimes`: the runtimes that use it, as people call
 * them. */
void kata_judge(const struct kata_settings *settings, const struct program *program,
                const char *file, const char *runtimes, const struct config *config,
                struct findings *findings);
