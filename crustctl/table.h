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
#include <stdint.h>

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

/* ---- row ------------------------------------------------------------------------------------ */

/* The objects that a row of a view is about, named as people do. */

/* Never NULL: "" if the row has no such text. */
const char *row_text(const cJSON *row, const char *key);
/* 0 if the row has no such number; *ret_known (may be NULL) tells the difference. */
uint64_t row_number(const cJSON *row, const char *key, bool *ret_known);
/* "none" where the row has no reason. */
const char *row_reason(const cJSON *row);

/* Functions that append return 0 or the buffer's failure, which is latched: lib/buffer.h. */

/* Formats of table columns: PV name, else path, else key; "state/reason"; "namespace/name"; … */
int row_volume_name(const cJSON *row, struct buffer *ret_text);
int row_state(const cJSON *row, struct buffer *ret_text);
int row_pod(const cJSON *row, struct buffer *ret_text);
int row_resizable(const cJSON *row, struct buffer *ret_text);  /* "yes", "no/monitor_missing" */
int row_access(const cJSON *row, struct buffer *ret_text);     /* "rw", "ro" */
int row_containers(const cJSON *row, struct buffer *ret_text); /* as --container has them */
int row_device_number(const cJSON *row, struct buffer *ret_text);

/* One line of the journal: when, what, about what, details; these in lines of their own, indented,
 * where all of it does not fit into `width`. */
int row_print_journal(const cJSON *row, unsigned width, struct buffer *out);

/* JSON on no line of its own. */
int row_print_value(const cJSON *value, struct buffer *out);

/* One object per line between brackets, or one object. */
int row_print_json(const cJSON *value, struct buffer *out);
