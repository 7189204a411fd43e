/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_find.h - finds the bundle of a sandbox. Private to observe/. */
#pragma once

#include <limits.h>

#include "observe/observe.h"

/* The sandbox's own bundle: its shim's working directory, or its VMM's (vmm_pid 0: not asked), or
 * below one of paths.bundles. "" if there is none; if a bundle is not trusted, the sandbox's
 * problem has the reason. 0, OBSERVED_UNFINISHED or -errno. */
int bundle_find(const struct observe_sandbox_paths *paths, const char *sandbox_id, pid_t vmm_pid,
                struct observed_sandbox *sandbox, char ret_bundle[static PATH_MAX]);
