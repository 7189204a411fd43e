/* SPDX-License-Identifier: Apache-2.0 */
/* sql.h - SQLite as the rest of store/ sees it: statements that are prepared once, values, rows.
 *
 * A statement is its text: a `static const char[]` beside the function that uses it. The first use
 * prepares it, later ones find it by the text's address; nothing is prepared on the hot path twice.
 * A statement runs once at a time: starting it again while its rows are walked is STORE_RUNNING.
 * Every failure is an enum store_failure.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cleanup.h"
#include "lib/result.h"
#include "store/failure.h"

enum { SQL_STATEMENTS = 256, SQL_TEXT_BYTES = 256 };

struct sql_connection {
    sqlite3 *db;
    char error_text[SQL_TEXT_BYTES]; /* SQLite's text for the last failure */
    struct {
        const char *text;
        sqlite3_stmt *statement;
    } cached[SQL_STATEMENTS];
};

/* `flags` are sqlite3_open_v2()'s; extended result codes and no mutexes come with them. The
 * connection is to be closed in either case. */
int sql_open(struct sql_connection *connection, const char *path, int flags);
/* An enum store_failure; keeps the error's text. */
int sql_failed(struct sql_connection *connection, int code);
void sql_close(struct sql_connection *connection);

/* Statements without values or rows, run from their text: pragmas and DDL. */
int sql_execute(struct sql_connection *connection, const char *text);
/* A pragma of one number, and one of one text, which is cut to `size`. */
int sql_pragma_number(struct sql_connection *connection, const char *text, int64_t *ret_number);
int sql_pragma_text(struct sql_connection *connection, const char *text, char *ret_text,
                    size_t size);

/* Prepares a statement ahead, for use when memory is short. */
int sql_prepare(struct sql_connection *connection, const char *text);

struct sql_value {
    enum { SQL_NULL, SQL_NUMBER, SQL_TEXT } type;
    int64_t number;
    const char *text; /* borrowed until the row set ends */
};

static inline struct sql_value sql_number(int64_t number)
{
    return (struct sql_value){.type = SQL_NUMBER, .number = number};
}

/* Unknown is NULL: a zero number, and a text that is NULL or empty. */
static inline struct sql_value sql_known(uint64_t number)
{
    return (struct sql_value){.type = number ? SQL_NUMBER : SQL_NULL, .number = (int64_t)number};
}

static inline struct sql_value sql_text(const char *text)
{
    return (struct sql_value){.type = text && *text ? SQL_TEXT : SQL_NULL, .text = text};
}

struct sql_rows {
    struct sql_connection *connection;
    sqlite3_stmt *statement;
    int column; /* the next to be taken */
};

#define SQL_VALUES(...)                                                                            \
    (const struct sql_value[]){__VA_ARGS__},                                                       \
        sizeof((const struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value)

/* Binds the values in order. rows must be ended, also when this fails; cleanup(sql_end) does. */
#define sql_query(connection, text, rows, ...)                                                     \
    sql_query_values(connection, text, rows, SQL_VALUES(__VA_ARGS__))
int sql_query_values(struct sql_connection *connection, const char *text, struct sql_rows *rows,
                     const struct sql_value *values, size_t count);

enum sql_step {
    SQL_END, /* there is no more */
    SQL_ROW, /* to take columns from */
};

/* An enum sql_step or an enum store_failure. */
int sql_next(struct sql_rows *rows);
void sql_end(struct sql_rows *rows);

/* Columns from left to right. NULL is 0, or the empty text; text that does not fit is cut. */
int64_t sql_take_number(struct sql_rows *rows);
void sql_take_text(struct sql_rows *rows, char *ret_text, size_t size);
#define TAKE_TEXT(rows, array) sql_take_text(rows, array, sizeof(array))
/* A name or an address: what does not fit is empty, because half of it means something else. */
void sql_take_name(struct sql_rows *rows, char *ret_text, size_t size);
#define TAKE_NAME(rows, array) sql_take_name(rows, array, sizeof(array))
const char *sql_borrow_text(struct sql_rows *rows); /* until the next step; never NULL */

/* Query and first row in one: what sql_next() returns. */
#define sql_first(connection, text, rows, ...)                                                     \
    sql_first_values(connection, text, rows, SQL_VALUES(__VA_ARGS__))
int sql_first_values(struct sql_connection *connection, const char *text, struct sql_rows *rows,
                     const struct sql_value *values, size_t count);

/* The first column of the first row; 0 if there is no row. ret_number may be NULL. Returns what
 * sql_next() returns. */
#define sql_find(connection, text, ret_number, ...)                                                \
    sql_find_values(connection, text, ret_number, SQL_VALUES(__VA_ARGS__))
int sql_find_values(struct sql_connection *connection, const char *text, int64_t *ret_number,
                    const struct sql_value *values, size_t count);

/* Runs a statement that writes; ret_changes (may be NULL) is the number of rows it touched. */
#define sql_run(connection, text, ret_changes, ...)                                                \
    sql_run_values(connection, text, ret_changes, SQL_VALUES(__VA_ARGS__))
int sql_run_values(struct sql_connection *connection, const char *text, int *ret_changes,
                   const struct sql_value *values, size_t count);

/* ---- sql path ------------------------------------------------------------------------------- */

/* Paths as SQLite is to take them. */

/* The VFS for sqlite3_open_v2(): SQLite's own, except for paths below /proc. */
const char *sql_path_vfs(void);
