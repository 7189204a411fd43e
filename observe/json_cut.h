/* SPDX-License-Identifier: Apache-2.0 */
/* json_cut.h - tests whether a text looks like the beginning of a JSON value; no I/O.
 *
 * The watched files are written in place: opened, truncated, written. A reader in between gets a
 * prefix, whose brackets or last string are still open.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/json.h"

bool json_is_cut(const char *text, size_t length);

enum file_text {
    FILE_READ,
    FILE_WRONG, /* the error says what and where */
    FILE_CUT,   /* empty or a prefix: probably a write in progress */
};

/* json_parse() for the text of such a file. An enum file_text or JSON_NO_MEMORY. */
int json_read_text(const char *text, size_t length, struct json_limits limits, cJSON **ret_value,
                   struct error *error);
