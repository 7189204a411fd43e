/* SPDX-License-Identifier: Apache-2.0 */
/* kata_version.h - which release of Kata kata-deploy has put on the node. Private to doctor/. */
#pragma once

#include <stdbool.h>

#include "doctor/finding.h"

struct kata_version {
    unsigned major, minor;
};

/* "4.1.0" and "3.26.0-rc0", a line's end behind it or not. */
bool kata_version_parse(const char *text, struct kata_version *ret_version);

/* Kata reads the metadata of direct-assigned volumes since 2.4.0 (Go), 3.2.0 (runtime-rs). */
bool kata_version_has_direct_volumes(const struct kata_version *version);

/* The finding about /opt/kata/VERSION, below root; none if the file is absent. */
void kata_version_examine(int root, struct findings *findings);
