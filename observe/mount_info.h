/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info.h - mountInfo.json, text in, facts out; no I/O.
 *
 * Fields as Kata reads them (src/runtime/pkg/direct-volume/utils.go): volume-type, device, fstype,
 * metadata {string: string}, options [string], keys in any letter case. crustd requires only
 * `device`. A null is an absent field, as in Go. Unknown fields are ignored.
 */
#pragma once

#include <stddef.h>

#include "lib/json.h"
#include "lib/result.h"
#include "observe/observe.h"

struct mount_info {
    char *volume_type, *device, *fs_type; /* as written; NULL absent */
    char *options, *metadata; /* JSON text, secrets redacted (lib/secret.h); NULL absent */
    bool read_only;           /* according to the options */
    enum resize_policy policy;
};

/* An enum file_text or -ENOMEM. */
int mount_info_parse(const char *text, size_t length, struct mount_info *ret_info,
                     struct error *error);
void mount_info_done(struct mount_info *info);
