/* SPDX-License-Identifier: Apache-2.0 */
/* uevent_fuzz.c - datagrams of any content; every string must end inside what was received. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "watch/watch_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1);
    struct uevent event;

    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    copy[size] = '\0';
    if (uevent_parse(copy, size, &event) == 0 &&
        (event.devpath[0] != '/' || strlen(event.devpath) > size || strlen(event.subsystem) > size))
        abort();
    free(copy);
    return 0;
}
