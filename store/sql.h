/* SPDX-License-Identifier: Apache-2.0 */
/* sql.h - SQLite as the rest of store/ sees it: statements that are prepared once, values, rows.
 *
 * A statement is its text: a `static const char[]` beside the function that uses it. The first use
 * prepares it, later ones find it by the text's address; nothing is prepared on the hot path twice.
 * A statement runs once at a time: starting it again while its rows are walked is STORE_RUNNING.
 *
 * Every failure is an enum store_failure. Inside a transaction of the store the first one is
 * latched: every statement after it does nothing and returns it, until the transaction is rolled
 * back. So functions that run there need to look at the last result only.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/cleanup.h"
#include "lib/result.h"
#include "store/bounds.h"

enum { SQL_STATEMENTS = 256, SQL_TEXT_BYTES = 256 };

struct sql_connection {
    sqlite3 *db;
    int failure;                     /* of the last statement: an enum store_failure, or 0 */
    bool is_latched;                 /* a failure stays until this is taken back */
    char error_text[SQL_TEXT_BYTES]; /* SQLite's text for the failure */
    struct sql_statement {
        const char *text, *rest; /* rest: the statements that follow in the same text */
        sqlite3_stmt *statement;
    } cached[SQL_STATEMENTS];
};

/* `flags` are sqlite3_open_v2()'s; extended result codes and no mutexes come with them. The
 * connection is to be closed in either case. */
int sql_open(struct sql_connection *connection, const char *path, int flags);
/* The VFS that it opens by: SQLite's own, except for paths below /proc. */
const char *sql_path_vfs(void);
/* An enum store_failure; keeps it and the error's text. */
int sql_failed(struct sql_connection *connection, int code);
void sql_close(struct sql_connection *connection);

/* Statements without values or rows, run from their text and not kept: pragmas and DDL. */
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

static inline struct sql_value sql_itself(struct sql_value value)
{
    return value;
}

struct sql_rows {
    struct sql_connection *connection;
    sqlite3_stmt *statement; /* NULL without a row to take from: then each column is NULL */
    const char *rest;
    int column; /* the next to be taken */
};

/* clang-format off */
/* each(with, item) for each of up to 20 items. */
#define SQL_EACH(each, with, ...)                                                                  \
    SQL_PICK(0, ##__VA_ARGS__, SQL_20, SQL_19, SQL_18, SQL_17, SQL_16, SQL_15, SQL_14, SQL_13,     \
             SQL_12, SQL_11, SQL_10, SQL_9, SQL_8, SQL_7, SQL_6, SQL_5, SQL_4, SQL_3, SQL_2,       \
             SQL_1, SQL_0)(each, with, ##__VA_ARGS__)
#define SQL_PICK(_0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17,   \
                 _18, _19, _20, picked, ...) picked
#define SQL_0(each, with)
#define SQL_1(each, with, item)       each(with, item)
#define SQL_2(each, with, item, ...)     each(with, item) SQL_1(each, with, __VA_ARGS__)
#define SQL_3(each, with, item, ...)     each(with, item) SQL_2(each, with, __VA_ARGS__)
#define SQL_4(each, with, item, ...)     each(with, item) SQL_3(each, with, __VA_ARGS__)
#define SQL_5(each, with, item, ...)     each(with, item) SQL_4(each, with, __VA_ARGS__)
#define SQL_6(each, with, item, ...)     each(with, item) SQL_5(each, with, __VA_ARGS__)
#define SQL_7(each, with, item, ...)     each(with, item) SQL_6(each, with, __VA_ARGS__)
#define SQL_8(each, with, item, ...)     each(with, item) SQL_7(each, with, __VA_ARGS__)
#define SQL_9(each, with, item, ...)     each(with, item) SQL_8(each, with, __VA_ARGS__)
#define SQL_10(each, with, item, ...)    each(with, item) SQL_9(each, with, __VA_ARGS__)
#define SQL_11(each, with, item, ...)    each(with, item) SQL_10(each, with, __VA_ARGS__)
#define SQL_12(each, with, item, ...)    each(with, item) SQL_11(each, with, __VA_ARGS__)
#define SQL_13(each, with, item, ...)    each(with, item) SQL_12(each, with, __VA_ARGS__)
#define SQL_14(each, with, item, ...)    each(with, item) SQL_13(each, with, __VA_ARGS__)
#define SQL_15(each, with, item, ...)    each(with, item) SQL_14(each, with, __VA_ARGS__)
#define SQL_16(each, with, item, ...)    each(with, item) SQL_15(each, with, __VA_ARGS__)
#define SQL_17(each, with, item, ...)    each(with, item) SQL_16(each, with, __VA_ARGS__)
#define SQL_18(each, with, item, ...)    each(with, item) SQL_17(each, with, __VA_ARGS__)
#define SQL_19(each, with, item, ...)    each(with, item) SQL_18(each, with, __VA_ARGS__)
#define SQL_20(each, with, item, ...)    each(with, item) SQL_19(each, with, __VA_ARGS__)
/* clang-format on */

/* A list of numbers, texts and struct sql_value, as an array and its length. */
#define SQL_VALUES(...)                                                                            \
    (const struct sql_value[]){SQL_EACH(SQL_VALUE, , ##__VA_ARGS__)},                              \
        sizeof((const struct sql_value[]){SQL_EACH(SQL_VALUE, , ##__VA_ARGS__)}) /                 \
            sizeof(struct sql_value)
#define SQL_VALUE(unused, value)                                                                   \
    __builtin_choose_expr(                                                                         \
        SQL_IS(value, struct sql_value), sql_itself,                                               \
        __builtin_choose_expr(SQL_IS(value, char *) || SQL_IS(value, const char *), sql_text,      \
                              sql_number))(value),
/* Not _Generic, whose "default:" cppcheck takes for a label. The comma makes arrays pointers. */
#define SQL_IS(value, type) __builtin_types_compatible_p(typeof(((void)0, (value))), type)

/* Binds the values in order. rows must be ended, also when this fails; cleanup(sql_end) does. */
int sql_query_values(struct sql_connection *connection, const char *text, struct sql_rows *rows,
                     const struct sql_value *values, size_t count);

enum sql_step {
    SQL_END, /* there is no more */
    SQL_ROW, /* to take columns from */
};

/* An enum sql_step or an enum store_failure. */
int sql_next(struct sql_rows *rows);
void sql_end(struct sql_rows *rows);

/* The next columns, into variables by their type: text into an array of char, which cuts what does
 * not fit, or borrowed into a const char * until the next step; truth into a bool; else a number.
 * NULL is "" and 0. */
#define TAKE(rows, ...)                                                                            \
    do {                                                                                           \
        SQL_EACH(TAKE_COLUMN, rows, __VA_ARGS__)                                                   \
    } while (0)
#define TAKE_COLUMN(rows, column)                                                                  \
    __builtin_choose_expr(                                                                         \
        SQL_IS(column, char *), sql_take_text,                                                     \
        __builtin_choose_expr(SQL_IS(column, const char *), sql_take_borrowed,                     \
                              __builtin_choose_expr(SQL_IS(column, bool), sql_take_bool,           \
                                                    sql_take_integer)))(rows, &(column),           \
                                                                        sizeof(column));
/* Names and addresses: what does not fit is empty, because half of it means something else. */
#define TAKE_NAME(rows, ...)                                                                       \
    do {                                                                                           \
        SQL_EACH(TAKE_NAME_COLUMN, rows, __VA_ARGS__)                                              \
    } while (0)
#define TAKE_NAME_COLUMN(rows, column) sql_take_name(rows, column, sizeof(column));
void sql_take_text(struct sql_rows *rows, void *ret_text, size_t size);
void sql_take_name(struct sql_rows *rows, char *ret_text, size_t size);
void sql_take_borrowed(struct sql_rows *rows, void *ret_text, size_t size);
void sql_take_bool(struct sql_rows *rows, void *ret_truth, size_t size);
void sql_take_integer(struct sql_rows *rows, void *ret_number, size_t size); /* 4 or 8 bytes */
int64_t sql_take_number(struct sql_rows *rows);
const char *sql_borrow_text(struct sql_rows *rows); /* never NULL */

/* Query and first row in one: what sql_next() returns. */
int sql_first_values(struct sql_connection *connection, const char *text, struct sql_rows *rows,
                     const struct sql_value *values, size_t count);

/* The first column of the first row; 0 if there is none, or on a failure. */
int64_t sql_number_values(struct sql_connection *connection, const char *text,
                          const struct sql_value *values, size_t count);
/* The same as text, cut; "" if there is no row. What sql_next() returns. */
int sql_find_text(struct sql_connection *connection, const char *text, char *ret_text, size_t size,
                  const struct sql_value *values, size_t count);

/* The first column of each row to the callback, until that returns non-zero: what it returned, or
 * SQL_END. */
int sql_each_number(struct sql_connection *connection, const char *text,
                    int (*callback)(void *userdata, int64_t number), void *userdata,
                    const struct sql_value *values, size_t count);
int sql_each_text(struct sql_connection *connection, const char *text,
                  int (*callback)(void *userdata, const char *text), void *userdata,
                  const struct sql_value *values, size_t count);

/* Runs the statements of the text, one after another, each with as many of the values as it has
 * parameters. How many rows they wrote, or a failure. */
int sql_change_values(struct sql_connection *connection, const char *text,
                      const struct sql_value *values, size_t count);
