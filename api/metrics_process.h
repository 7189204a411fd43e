/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_process.h - the process_ metrics that every Prometheus client library provides. Private
 * to api/. */
#pragma once

#include "api/metrics_text.h"

/* Omits what /proc does not provide. */
void metrics_write_process(struct metrics_text *text);
