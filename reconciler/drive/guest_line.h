/* SPDX-License-Identifier: Apache-2.0 */
/* guest_line.h - what `crust-guest-agent --drive` prints in a guest (docs/guest-helper.md).
 *
 * The guest is not trusted: everything is bounded and checked, and texts are safe to print. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/drive_call.h"
#include "lib/result.h"

struct drive_guest_line {
    enum status_code status;         /* INTERNAL: unknown to crustd's helper */
    struct error error;              /* unless OK */
    char device[DRIVE_DEVICE_BYTES]; /* a name without a path; "": no disk */
    bool is_mounted;
    struct drive_walk_count walk; /* missing members are 0 */
};

/* 0; -EBADMSG: not such a line, with the reason. */
int drive_guest_line_parse(const char *text, size_t length, struct drive_guest_line *ret_line,
                           struct error *error);
