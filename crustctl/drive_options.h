/* SPDX-License-Identifier: Apache-2.0 */
/* drive_options.h - the options of `crustctl drive`. */
#pragma once

#include <stdbool.h>

#include "lib/buffer.h"
#include "lib/result.h"
#include "model/drive.h"

enum { DRIVE_CONTAINERS_MOST = 16 }; /* of crust.drive.v1 */

/* As they were given; NULL: not given. Borrowed from argv. */
struct drive_options {
    const char *sandbox, *host_path, *vm_path, *fs_type;
    const char *fs_group, *fs_group_policy;
    const char *bandwidth, *operations;
    bool writable, fsck;
    unsigned options, containers;
    const char *option[DRIVE_OPTIONS];
    const char *container[DRIVE_CONTAINERS_MOST];
};

/* Appends the body of POST /v1/drives, or of POST /v1/drives/ID/limits. -EINVAL with a text: an
 * option is missing or malformed. Otherwise 0, or as buffer_append(). */
int drive_options_append_attach(const struct drive_options *options, const char *drive_id,
                                struct buffer *json, struct error *error);
int drive_options_append_limits(const struct drive_options *options, struct buffer *json,
                                struct error *error);
