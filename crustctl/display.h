/* SPDX-License-Identifier: Apache-2.0 */
/* display.h - text for a terminal: escaped, measured in columns, shortened, wrapped.
 *
 * Widths are columns of a UTF-8 terminal; display_init() must have run. Names come from outside, so
 * characters that a terminal would obey (controls, changes of direction) are shown as escapes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

enum { DISPLAY_DEFAULT_WIDTH = 80 };

/* Makes character widths known. Once, before anything else here. */
void display_init(void);

/* The terminal's width if stdout is one, else $COLUMNS, else 80. */
unsigned display_columns(void);

/* The terminal's width if stdout is one; else unlimited, because a program reads it. */
unsigned display_table_columns(void);

unsigned display_width(const char *text);

/* Functions that append return 0 or the buffer's failure, which is latched: lib/buffer.h. */
int display_append(struct buffer *out, const char *text);

/* The escaped text in exactly `width` columns: padded with blanks, or shortened in its middle. */
int display_append_padded(struct buffer *out, const char *text, unsigned width);
int display_append_padded_left(struct buffer *out, const char *text, unsigned width);

/* The escaped text, shortened in its middle to `width` columns if it is longer. */
int display_append_short(struct buffer *out, const char *text, unsigned width);

/* Words filled into lines of `width`; every line but the first starts with `indent` blanks, and so
 * does the first unless `lead` stands there (its width must be `indent`). Ends with a newline. */
int display_append_wrapped(struct buffer *out, const char *text, const char *lead, unsigned indent,
                           unsigned width);
