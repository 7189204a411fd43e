/* SPDX-License-Identifier: Apache-2.0 */
/* value.h - the text of one value, read and written. Private to config/. */
#pragma once

#include "config/keys.h"
#include "lib/buffer.h"
#include "lib/result.h"

/* Checks the text and stores the value in its place. 0, or -EINVAL with what is wrong; the value
 * may then be half written, so callers work on a copy. */
int config_value_parse(const struct config_key *key, const char *text, struct config *config,
                       struct error *error);

/* Appends the value as config_value_parse() reads it. */
int config_value_format(const struct config_key *key, const struct config *config,
                        struct buffer *text);
