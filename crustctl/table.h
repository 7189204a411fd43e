/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - rows of a view as text: many as a table, one as a sheet.
 *
 * A column is data: its title, the row's member, how that is shown, and what happens to it when the
 * terminal is narrow. Columns shrink to their minimum first, those with the longest values most;
 * then expendable columns are dropped, the highest number first.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "lib/buffer.h"

enum column_kind { COLUMN_TEXT, COLUMN_NUMBER, COLUMN_SIZE, COLUMN_TIME, COLUMN_JSON };

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

/* "title  value" lines of those columns that the row has a value for. */
int table_print_sheet(const struct column *columns, unsigned count, const cJSON *row,
                      struct buffer *out);

/* One member as it is shown to people; empty if there is none. */
int table_format(const struct column *column, const cJSON *row, struct buffer *ret_text);
