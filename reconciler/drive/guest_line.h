/* SPDX-License-Identifier: Apache-2.0 */
/* guest_line.h - what `crust-guest-agent --drive` prints in a guest (docs/guest-helper.md).
 *
 * It comes out of a guest: everything is bounded and checked, and texts are fit to be shown. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/drive_call.h"
#include "lib/result.h"
#include "lib/status.h"

struct drive_guest_line {
    enum status_code status;         /* INTERNAL: one that no helper of ours gives */
    struct error error;              /* when it is not OK */
    char device[DRIVE_DEVICE_BYTES]; /* a name and no path; "": no disk */
    bool is_mounted;
    struct drive_walk_count walk; /* what of it is not said is 0 */
};

/* 0; -EBADMSG: it is no such line, and the error says why. */
int drive_guest_line_parse(const char *text, size_t length, struct drive_guest_line *ret_line,
                           struct error *error);
