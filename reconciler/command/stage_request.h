/* SPDX-License-Identifier: Apache-2.0 */
/* stage_request.h - a CSI driver's request, checked, and as mountInfo.json. */
#pragma once

#include "config/config.h"
#include "lib/buffer.h"
#include "reconciler/command/command.h"

/* Whether it can be put in place at all, in that layout. STATUS_OK or _INVALID_ARGUMENT. */
enum status_code stage_request_check(int root, enum config_stage_layout layout,
                                     const struct reconciler_stage *stage, struct error *error);

/* Whether an option gives the file system an SELinux label: context= and its like. */
bool stage_option_is_label(const char *option);
bool stage_request_has_label(const struct reconciler_stage *stage);

bool stage_request_is_read_only(const struct reconciler_stage *stage);

/* Appends mountInfo.json; the group only if the volume is writable, such options only with
 * with_labels. 0, -EMSGSIZE, -ENOMEM. */
int stage_request_write(const struct reconciler_stage *stage, bool with_labels,
                        struct buffer *text);
