/* SPDX-License-Identifier: Apache-2.0 */
/* stage_request.h - a CSI driver's request, checked, and as mountInfo.json. */
#pragma once

#include "config/config.h"
#include "lib/buffer.h"
#include "reconciler/command/command.h"

/* Whether it can be put in place at all, in that layout. STATUS_OK or _INVALID_ARGUMENT. */
enum status_code stage_request_check(int root, enum config_stage_layout layout,
                                     const struct reconciler_stage *stage, struct error *error);

/* Appends mountInfo.json. 0, -EMSGSIZE, -ENOMEM. */
int stage_request_write(const struct reconciler_stage *stage, struct buffer *text);
