/* SPDX-License-Identifier: Apache-2.0 */
/* row_cursor.h - the rows of a query as JSON, read all at once or a few at a time. Private to
 * store/.
 *
 * The rows of one cursor are of one state only if its connection is in a read transaction for as
 * long as the cursor lives.
 */
#pragma once

#include "store/read.h"
#include "store/sql.h"

struct row_cursor {
    const struct store_query *query;
    struct sql_connection *connection;
    bool opened;
    sqlite3_stmt *statement; /* NULL: not opened yet, or at its end */
    unsigned rows;
};

/* Whether the view can be asked so; -EINVAL. The query is borrowed. */
int row_cursor_init(struct row_cursor *cursor, struct sql_connection *connection,
                    const struct store_query *query, struct error *error);
void row_cursor_done(struct row_cursor *cursor);

enum row_cursor_outcome {
    ROW_CURSOR_END,
    ROW_CURSOR_MORE, /* it is until_ns */
};

/* Appends rows, with commas between them, until until_ns of clock_boottime(), at least one. An enum
 * row_cursor_outcome; an enum store_failure, or that of the buffer. */
int row_cursor_read(struct row_cursor *cursor, uint64_t until_ns, struct buffer *json);

/* One row as an object. */
int row_append(struct buffer *json, sqlite3_stmt *statement, bool first);

/* Whether text from the file may be embedded as JSON. */
bool is_json_text(const char *text);
