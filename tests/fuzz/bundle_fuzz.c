/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_fuzz.c - config.json of an OCI bundle. */
#include <stdint.h>
#include <stdlib.h>

#include "observe/bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bundle bundle;
    struct error error;

    if (bundle_parse((const char *)data, size, &bundle, &error) != FILE_READ)
        return 0;
    for (unsigned i = 0; i < bundle.mounts; i++)
        if (bundle.mount[i].source[0] != '/' || bundle.mount[i].destination[0] != '/')
            abort();
    bundle_done(&bundle);
    return 0;
}
