/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - what reading one sandbox taught about the others. Private to observe/. */
#pragma once

#include "observe/bundles.h"
#include "observe/process_index.h"

struct observe_cache {
    struct process_index *processes;
    struct bundles *bundles;
};
