/* SPDX-License-Identifier: Apache-2.0 */
/* kata_in_use.h - which of Kata's configurations this node uses. Private to doctor/. */
#pragma once

#include <limits.h>

#include "doctor/finding.h"

enum { KATA_IN_USE = 32, KATA_RUNTIMES_BYTES = 256 };

struct kata_configuration {
    char path[PATH_MAX]; /* links followed, for config.d stands beside the file itself */
    char runtimes[KATA_RUNTIMES_BYTES]; /* who uses it, as people call them */
};

struct kata_in_use {
    unsigned count;
    struct kata_configuration configuration[KATA_IN_USE];
};

/* Those that the container engine's configuration names, else those that Kata's runtimes look for
 * by themselves. A file that could not be read becomes a finding. */
void kata_in_use_find(int root, struct kata_in_use *ret_in_use, struct findings *findings);
