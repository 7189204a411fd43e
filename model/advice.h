/* SPDX-License-Identifier: Apache-2.0 */
/* advice.h - what a volume's state means, what to do about it, and what is known of the volume: in
 * sentences, from the table of reasons and from the rows about the volume. */
#pragma once

#include <cjson/cJSON.h>

#include "lib/buffer.h"

/* Appends to a JSON object the members "state_meaning", "reason_meaning", "resizable_meaning",
 * "missing", "remedies" and "known". rows has the newest row of each view that is about the volume:
 * "volume", "mapping", "sandbox", "resize", "cleanup", and the arrays "layers" and "judged", which
 * is what reconciler_gc() answers about the volume. All but "volume" may be null. 0, or the
 * buffer's failure. */
int advice_append(const cJSON *rows, const char *resize_mode, struct buffer *json);
