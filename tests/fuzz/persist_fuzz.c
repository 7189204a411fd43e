/* SPDX-License-Identifier: Apache-2.0 */
/* persist_fuzz.c - both persist.json files of Kata's Go runtime. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/kata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct persist_sandbox sandbox;
    struct persist_container container;
    struct error error;

    if (persist_parse_sandbox((const char *)data, size, &sandbox, &error) == FILE_READ) {
        for (unsigned i = 0; i < sandbox.devices; i++)
            if (!sandbox.device[i].id || sandbox.device[i].major < -1)
                abort();
        persist_sandbox_done(&sandbox);
    }
    if (persist_parse_container((const char *)data, size, &container, &error) == FILE_READ) {
        for (unsigned i = 0; i < container.mounts; i++)
            if (!container.mount[i].source)
                abort();
        persist_container_done(&container);
    }
    return 0;
}
