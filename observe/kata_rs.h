/* SPDX-License-Identifier: Apache-2.0 */
/* kata_rs.h - a sandbox of Kata's Rust runtime, from its state directory and its processes. */
#pragma once

#include "observe/observe.h"

/* Fills in what it finds. OBSERVED, OBSERVED_ABSENT (no directory of this sandbox),
 * OBSERVED_UNFINISHED or -errno; in each case the caller frees it with observed_sandbox_done(). */
int kata_rs_observe(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *sandbox);
