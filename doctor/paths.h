/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h - the node's directories as crustd's configuration names them. Private to doctor/. */
#pragma once

#include "config/config.h"
#include "doctor/finding.h"

void paths_examine(int root, const struct config *config, struct findings *findings);
