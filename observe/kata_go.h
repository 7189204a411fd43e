/* SPDX-License-Identifier: Apache-2.0 */
/* kata_go.h - a sandbox of Kata's Go runtime, from its state directories and its VMM process. */
#pragma once

#include "observe/observe.h"

/* Fills in what it finds. OBSERVED, OBSERVED_ABSENT (no directory of this sandbox) or -errno; in
 * each case the caller frees it with observed_sandbox_done(). */
int kata_go_observe(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *sandbox);
