/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_process.h - the process_ metrics that every Prometheus client library has. Private to
 * api/. */
#pragma once

#include "api/metrics_text.h"

/* What /proc does not tell is left out. */
void metrics_write_process(struct metrics_text *text);
