/* SPDX-License-Identifier: Apache-2.0 */
/* json_cut.h - whether a text looks like the beginning of a JSON value; no I/O.
 *
 * The watched files are written in place: opened, cut to nothing, written. What a reader meets in
 * between is a prefix, whose brackets or last string are still open.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/json.h"

bool json_is_cut(const char *text, size_t length);

enum file_text {
    FILE_READ,
    FILE_WRONG, /* the error says what and where */
    FILE_CUT,   /* empty, or the beginning of something: a write in progress? */
};

/* json_parse() of such a file's text. An enum file_text or JSON_NO_MEMORY. */
int json_read_text(const char *text, size_t length, struct json_limits limits, cJSON **ret_value,
                   struct error *error);
