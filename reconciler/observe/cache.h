/* cache.h - what reading one sandbox taught about the others. Private to reconciler/observe/. */
#pragma once

#include "reconciler/observe/bundles.h"
#include "reconciler/observe/process_index.h"

struct observe_cache {
    struct process_index *processes;
    struct bundles *bundles;
};
