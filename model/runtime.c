/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.c - the names of runtimes. */
#include "model/runtime.h"

#include "model/name_table.h"

static const char *const names[RUNTIMES] = {
    [RUNTIME_UNKNOWN] = "unknown",
    [RUNTIME_KATA_GO] = "kata-go",
    [RUNTIME_KATA_RS] = "kata-rs",
};

const char *runtime_name(enum kata_runtime runtime)
{
    return names[runtime];
}

enum kata_runtime runtime_from_name(const char *name)
{
    return name_table_find(names, sizeof(names[0]), RUNTIMES, name, RUNTIME_UNKNOWN);
}
