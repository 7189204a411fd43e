/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - rows of a view as text: many as a table, one as a sheet, the journal as lines.
 *
 * A column is data: its title, the row's member, how that is shown, and what happens to it when the
 * terminal is narrow. Columns shrink to their minimum first, those with the longest values most;
 * then expendable columns are dropped, the highest number first.
 *
 * Functions that append return 0 or the buffer's failure, which is latched: lib/buffer.h.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"

enum column_kind { COLUMN_TEXT, COLUMN_NUMBER, COLUMN_SIZE, COLUMN_TIME };

struct column {
    const char *title;
    const char *key; /* member of the row */
    enum column_kind kind;
    unsigned minimum;    /* 0: never shortened */
    unsigned expendable; /* 0: always shown */
    /* What is shown instead of the member; NULL: the member. */
    int (*format)(const cJSON *row, struct buffer *ret_text);
};

enum { TABLE_COLUMNS = 12 };

/* Header and rows. `nothing` is printed if there are none. */
int table_print(const struct column *columns, unsigned count, const cJSON *rows, unsigned width,
                const char *nothing, struct buffer *out);

/* "column  value" lines of what the row has a value for. */
int table_print_sheet(const cJSON *row, struct buffer *out);

/* ---- row ------------------------------------------------------------------------------------ */

/* The objects that a row of a view is about, named as people do. */

uint64_t row_number(const cJSON *row, const char *key); /* 0 if the row has no such number */
const char *row_reason(const cJSON *row);               /* "none" where the row has no reason */

/* Formats of columns: PV name, else path, else key; "state/reason"; "namespace/name"; "yes",
 * "no/monitor_missing". */
int row_volume_name(const cJSON *row, struct buffer *ret_text);
int row_state(const cJSON *row, struct buffer *ret_text);
int row_pod(const cJSON *row, struct buffer *ret_text);
int row_resizable(const cJSON *row, struct buffer *ret_text);

/* One line of the journal: when, what, about what, details; these in lines of their own, indented,
 * where all of it does not fit into `width`. */
int row_print_journal(const cJSON *row, unsigned width, struct buffer *out);

/* JSON: within a line; with a newline, the elements of an array each on a line of its own. */
int row_print_value(const cJSON *value, struct buffer *out);
int row_print_json(const cJSON *value, struct buffer *out);

/* ---- display -------------------------------------------------------------------------------- */

/* Text for a terminal: escaped, measured in columns, shortened, wrapped.
 *
 * Widths are columns of a UTF-8 terminal; display_init() must have run. Names come from outside, so
 * characters that a terminal would obey (controls, changes of direction) are shown as escapes.
 */

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

/* The escaped text, shortened in its middle if it has more than `width` columns, else padded with
 * blanks unless it is SHORT. */
enum display_align { DISPLAY_LEFT, DISPLAY_RIGHT, DISPLAY_SHORT };
int display_append_cell(struct buffer *out, const char *text, unsigned width,
                        enum display_align align);

/* Words filled into lines of `width`; every line but the first starts with `indent` blanks, and so
 * does the first unless `lead` stands there (its width must be `indent`). Ends with a newline. */
int display_append_wrapped(struct buffer *out, const char *text, const char *lead, unsigned indent,
                           unsigned width);
