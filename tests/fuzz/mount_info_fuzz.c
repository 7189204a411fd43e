/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info_fuzz.c - mountInfo.json: what is accepted has a device, a path or something with a
 * scheme. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/observe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mount_info info;
    struct error error;

    if (mount_info_parse((const char *)data, size, &info, &error) != FILE_READ)
        return 0;
    if (!info.device || strlen(info.device) >= 4096 ||
        (info.device[0] != '/' && info.device[strcspn(info.device, "/:")] != ':'))
        abort();
    mount_info_done(&info);
    return 0;
}
