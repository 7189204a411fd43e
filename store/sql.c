/* SPDX-License-Identifier: Apache-2.0 */
/* sql.c - the only caller of SQLite's statements.
 *
 * The cache is a small open-addressing table keyed by the address of the statement's text, so that
 * finding a prepared statement costs a few instructions and needs no list of all statements to be
 * kept beside the functions that own them. Texts live as long as the program, statements as long as
 * the connection.
 *
 * Values are bound without copying: sql_end() resets the statement and forgets them, before the
 * caller's strings can go. Every way out therefore passes through sql_end(), which is why rows are
 * declared with cleanup(sql_end).
 */
#include "store/sql.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static int error_from_code(int code, int system_errno)
{
    switch (code & 0xff) {
    case SQLITE_FULL:
        return STORE_NO_SPACE;
    case SQLITE_IOERR:
        if (code == SQLITE_IOERR_NOMEM)
            return STORE_NO_MEMORY;
        return system_errno == ENOSPC || system_errno == EROFS ? store_failure_of(-system_errno)
                                                               : STORE_UNREADABLE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return STORE_DAMAGED;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return STORE_LOCKED;
    case SQLITE_NOMEM:
        return STORE_NO_MEMORY;
    case SQLITE_READONLY:
        return STORE_READ_ONLY;
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return STORE_FORBIDDEN;
    case SQLITE_TOOBIG:
        return STORE_TOO_BIG;
    case SQLITE_CANTOPEN:
        return system_errno ? store_failure_of(-system_errno) : STORE_UNREADABLE;
    case SQLITE_CONSTRAINT:
    case SQLITE_RANGE:
    case SQLITE_MISUSE:
        return STORE_FAULT;
    default:
        return STORE_UNREADABLE;
    }
}

int store_failure_of(int r)
{
    switch (r < 0 ? -r : 0) {
    case 0:
        return r;
    case ENOSPC:
    case EDQUOT:
        return STORE_NO_SPACE;
    case EACCES:
    case EPERM:
        return STORE_FORBIDDEN;
    case ENOENT:
    case ENOTDIR:
        return STORE_MISSING;
    case EROFS:
    case EBUSY:
    case EUCLEAN:
    case ESTALE:
    case EISDIR:
    case ENOMEM:
    case EINVAL:
    case E2BIG:
    case EDEADLK:
        return r; /* has its own name */
    default:
        return STORE_UNREADABLE;
    }
}

int sql_failed(struct sql_connection *connection, int code)
{
    const char *text = connection->db ? sqlite3_errmsg(connection->db) : sqlite3_errstr(code);

    (void)snprintf(connection->error_text, sizeof(connection->error_text), "%s", text);
    connection->failure =
        error_from_code(code, connection->db ? sqlite3_system_errno(connection->db) : 0);
    return connection->failure;
}

/* ---- the connection -------------------------------------------------------------------------- */

/* Has SQLite leave the links of /proc to the kernel.
 *
 * SQLite takes a path apart and follows the text of each link in it. The links of /proc are magic:
 * the text of /proc/1/root is "/", but it leads to the root of another mount namespace, and a
 * database at /proc/1/root/var/lib/crustd would be looked for in the daemon's own /var/lib. Such a
 * path is taken as it stands. Every other path stays SQLite's, so that a link to a database and the
 * database itself have the same WAL.
 */

static sqlite3_vfs *own;

static int full_path(sqlite3_vfs *vfs, const char *path, int size, char *ret_path)
{
    static const char proc[] = "/proc/";
    size_t length = strlen(path);

    (void)vfs;
    if (strncmp(path, proc, sizeof(proc) - 1) != 0)
        return own->xFullPathname(own, path, size, ret_path);
    if (length >= (size_t)size)
        return SQLITE_CANTOPEN;
    memcpy(ret_path, path, length + 1);
    return SQLITE_OK;
}

const char *sql_path_vfs(void)
{
    static sqlite3_vfs vfs;

    if (own)
        return vfs.zName;
    own = sqlite3_vfs_find(NULL);
    if (!own)
        return NULL;
    vfs = *own;
    vfs.pNext = NULL;
    vfs.zName = "crust";
    vfs.xFullPathname = full_path;
    (void)sqlite3_vfs_register(&vfs, 0); /* fails without memory, which the opening finds */
    return vfs.zName;
}

int sql_open(struct sql_connection *connection, const char *path, int flags)
{
    int code;

    /* Nothing here has threads, and nobody asks SQLite how much memory it has: without this, each
     * allocation takes a mutex and is counted, and Debian's SQLite allocates for every cursor and
     * text. Only the first call has an effect, and correctness does not depend on it. */
    (void)sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    code = sqlite3_open_v2(path, &connection->db,
                           flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, sql_path_vfs());
    return code == SQLITE_OK ? 0 : sql_failed(connection, code);
}

void sql_close(struct sql_connection *connection)
{
    for (size_t i = 0; i < SQL_STATEMENTS; i++)
        (void)sqlite3_finalize(connection->cached[i].statement);
    memset(connection->cached, 0, sizeof(connection->cached));
    (void)sqlite3_close(connection->db);
    connection->db = NULL;
}

int sql_execute(struct sql_connection *connection, const char *text)
{
    int code;

    if (connection->failure && connection->is_latched)
        return connection->failure;
    code = sqlite3_exec(connection->db, text, NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : sql_failed(connection, code);
}

/* One row, of a statement that is not kept. */
static int pragma_row(struct sql_connection *connection, const char *text,
                      sqlite3_stmt **ret_statement)
{
    int code = sqlite3_prepare_v2(connection->db, text, -1, ret_statement, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_step(*ret_statement);
    return code == SQLITE_ROW ? 0 : sql_failed(connection, code);
}

int sql_pragma_number(struct sql_connection *connection, const char *text, int64_t *ret_number)
{
    sqlite3_stmt *statement = NULL;
    int r = pragma_row(connection, text, &statement);

    if (r == 0)
        *ret_number = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return r;
}

int sql_pragma_text(struct sql_connection *connection, const char *text, char *ret_text,
                    size_t size)
{
    sqlite3_stmt *statement = NULL;
    int r = pragma_row(connection, text, &statement);

    if (r == 0) {
        const unsigned char *value = sqlite3_column_text(statement, 0);

        (void)snprintf(ret_text, size, "%s", value ? (const char *)value : "");
    }
    (void)sqlite3_finalize(statement);
    return r;
}

static int find_statement(struct sql_connection *connection, const char *text,
                          struct sql_rows *ret_rows)
{
    struct sql_statement *cached = NULL;
    size_t slot = ((uintptr_t)text >> 4) % SQL_STATEMENTS;
    int code;

    for (size_t i = 0; i < SQL_STATEMENTS && (!cached || cached->text != text); i++) {
        cached = &connection->cached[(slot + i) % SQL_STATEMENTS];
        if (!cached->text)
            cached->text = text;
    }
    if (cached->text != text)
        return connection->failure = STORE_FAULT; /* the table is full */
    if (!cached->statement) {
        code = sqlite3_prepare_v3(connection->db, text, -1, SQLITE_PREPARE_PERSISTENT,
                                  &cached->statement, &cached->rest);
        if (code != SQLITE_OK)
            return sql_failed(connection, code);
    }
    if (sqlite3_stmt_busy(cached->statement))
        return connection->failure = STORE_RUNNING;
    ret_rows->statement = cached->statement;
    ret_rows->rest = cached->rest;
    return 0;
}

int sql_prepare(struct sql_connection *connection, const char *text)
{
    struct sql_rows rows;

    return find_statement(connection, text, &rows);
}

static int bind_value(sqlite3_stmt *statement, int position, const struct sql_value *value)
{
    switch (value->type) {
    case SQL_NUMBER:
        return sqlite3_bind_int64(statement, position, value->number);
    case SQL_TEXT:
        return sqlite3_bind_text(statement, position, value->text, -1, SQLITE_STATIC);
    case SQL_NULL:
    default:
        return sqlite3_bind_null(statement, position);
    }
}

int sql_query_values(struct sql_connection *connection, const char *text, struct sql_rows *rows,
                     const struct sql_value *values, size_t count)
{
    size_t parameters;
    int r;

    *rows = (struct sql_rows){.connection = connection};
    if (connection->failure && connection->is_latched)
        return connection->failure;
    connection->failure = 0;
    r = find_statement(connection, text, rows);
    if (r < 0)
        return r;
    parameters = (size_t)sqlite3_bind_parameter_count(rows->statement);
    for (size_t i = 0; i < count && i < parameters; i++) {
        int code = bind_value(rows->statement, (int)i + 1, &values[i]);

        if (code != SQLITE_OK)
            return sql_failed(connection, code);
    }
    return 0;
}

int sql_next(struct sql_rows *rows)
{
    int code, r;

    if (!rows->statement)
        return rows->connection->failure;
    code = sqlite3_step(rows->statement);
    rows->column = 0;
    if (code == SQLITE_ROW)
        return SQL_ROW;
    r = code == SQLITE_DONE ? SQL_END : sql_failed(rows->connection, code);
    sql_end(rows);
    return r;
}

void sql_end(struct sql_rows *rows)
{
    if (!rows->statement)
        return;
    (void)sqlite3_reset(rows->statement);
    (void)sqlite3_clear_bindings(rows->statement);
    rows->statement = NULL;
}

int64_t sql_take_number(struct sql_rows *rows)
{
    return rows->statement ? sqlite3_column_int64(rows->statement, rows->column++) : 0;
}

const char *sql_borrow_text(struct sql_rows *rows)
{
    const unsigned char *text = NULL;

    if (rows->statement)
        text = sqlite3_column_text(rows->statement, rows->column++);
    return text ? (const char *)text : "";
}

void sql_take_text(struct sql_rows *rows, void *ret_text, size_t size)
{
    const char *text = sql_borrow_text(rows);
    size_t length = strnlen(text, size - 1);

    memcpy(ret_text, text, length);
    ((char *)ret_text)[length] = '\0';
}

void sql_take_borrowed(struct sql_rows *rows, void *ret_text, size_t size)
{
    const char *text = sql_borrow_text(rows);

    memcpy(ret_text, &text, size);
}

void sql_take_bool(struct sql_rows *rows, void *ret_truth, size_t size)
{
    bool truth = sql_take_number(rows) != 0;

    memcpy(ret_truth, &truth, size);
}

void sql_take_integer(struct sql_rows *rows, void *ret_number, size_t size)
{
    int64_t number = sql_take_number(rows);
    int32_t narrow = (int32_t)number;

    memcpy(ret_number, size == sizeof(narrow) ? (const void *)&narrow : &number, size);
}

void sql_take_name(struct sql_rows *rows, char *ret_text, size_t size)
{
    const char *text = sql_borrow_text(rows);
    const size_t length = strlen(text);

    memcpy(ret_text, length < size ? text : "", length < size ? length + 1 : 1);
}

int sql_first_values(struct sql_connection *connection, const char *text, struct sql_rows *rows,
                     const struct sql_value *values, size_t count)
{
    int r = sql_query_values(connection, text, rows, values, count);

    return r < 0 ? r : sql_next(rows);
}

int64_t sql_number_values(struct sql_connection *connection, const char *text,
                          const struct sql_value *values, size_t count)
{
    cleanup(sql_end) struct sql_rows rows = {0};

    return sql_first_values(connection, text, &rows, values, count) > 0 ? sql_take_number(&rows)
                                                                        : 0;
}

int sql_each_number(struct sql_connection *connection, const char *text,
                    int (*callback)(void *userdata, int64_t number), void *userdata,
                    const struct sql_value *values, size_t count)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(connection, text, &rows, values, count);

    while (r == 0 && (r = sql_next(&rows)) > 0)
        r = callback(userdata, sql_take_number(&rows));
    return r;
}

int sql_each_text(struct sql_connection *connection, const char *text,
                  int (*callback)(void *userdata, const char *text), void *userdata,
                  const struct sql_value *values, size_t count)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(connection, text, &rows, values, count);

    while (r == 0 && (r = sql_next(&rows)) > 0)
        r = callback(userdata, sql_borrow_text(&rows));
    return r;
}

int sql_find_text(struct sql_connection *connection, const char *text, char *ret_text, size_t size,
                  const struct sql_value *values, size_t count)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first_values(connection, text, &rows, values, count);

    sql_take_text(&rows, ret_text, size);
    return r;
}

int sql_change_values(struct sql_connection *connection, const char *text,
                      const struct sql_value *values, size_t count)
{
    int changes = 0;

    for (const char *rest = text; *rest;) {
        cleanup(sql_end) struct sql_rows rows = {0};
        int r = sql_first_values(connection, rest, &rows, values, count);

        if (r < 0)
            return r;
        changes += sqlite3_changes(connection->db);
        rest = rows.rest;
    }
    return changes;
}
