/* SPDX-License-Identifier: Apache-2.0 */
/* row.h - the objects that a row of a view is about, named as people do. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"

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
