/* SPDX-License-Identifier: Apache-2.0 */
/* json_cut.h - whether a text looks like the beginning of a JSON value; no I/O.
 *
 * The watched files are written in place: opened, cut to nothing, written. What a reader meets in
 * between is a prefix, whose brackets or last string are still open.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool json_is_cut(const char *text, size_t length);
