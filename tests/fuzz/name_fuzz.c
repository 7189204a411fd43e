/* SPDX-License-Identifier: Apache-2.0 */
/* name_fuzz.c - directory names: what decodes must be the only name of its path. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/observe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[ENTRY_PATH_BYTES], shown[SHOWN_NAME_BYTES];
    char again[BASE64URL_ENCODED_LENGTH(BASE64URL_PATH_BYTES) + 1];
    char *name = strndup((const char *)data, size);
    struct error error;

    if (!name)
        return 0;
    if (entry_name_decode(name, path, &error) == ENTRY_NAME_PATH) {
        base64url_encode(path, strlen(path), again);
        if (strcmp(again, name) != 0 || path[0] != '/')
            abort();
    }
    entry_name_show(name, shown);
    (void)observe_is_sandbox_id(name);
    free(name);
    return 0;
}
