/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_find.h - finds the bundle of a sandbox. Private to observe/. */
#pragma once

#include "observe/bundles.h"
#include "observe/observe.h"

/* Where the bundles of the sandbox's containers are, by its shim's working directory, or its VMM's
 * (vmm_pid 0: not asked), or by a directory of its own below one of paths.bundles or beside it.
 * `own` is "" if there is none; then the sandbox's problem has the reason. 0, OBSERVED_UNFINISHED
 * or -errno. */
int bundle_find(const struct observe_sandbox_paths *paths, const char *sandbox_id, pid_t vmm_pid,
                struct observed_sandbox *sandbox, struct bundles_place *ret_place);
