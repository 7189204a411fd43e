/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - the indexes of processes and bundles, shared by the observations of all sandboxes.
 * Private to observe/. */
#pragma once

#include "observe/bundles.h"
#include "observe/process_index.h"

struct observe_cache {
    struct process_index *processes;
    struct absences *absences;
    struct bundles *bundles;
};
