/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - the content of /metrics. Private to api/.
 *
 * Unless metrics.per_volume is on, no volume, sandbox or device is a label: the number of lines is
 * bounded by the names of states, reasons, runtimes, methods and codes.
 */
#pragma once

#include "api/operations.h"
#include "lib/buffer.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

/* 0 or -errno with a text. */
int metrics_write(struct reconciler *reconciler, const struct operations *operations,
                  struct buffer *ret_text, struct error *error);
