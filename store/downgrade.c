/* SPDX-License-Identifier: Apache-2.0 */
/* downgrade.c - a database of this release made one of release 0.1.0.
 *
 * A comparison with an empty database of that release shows what to drop, so that no migration has
 * to describe how it is undone. The result is verified: unless the digest of its statements is that
 * of release 0.1.0, nothing is changed.
 */
#include "store/downgrade.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/buffer.h"
#include "store/place.h"
#include "store/schema.h"

enum { DROPS_BYTES = 64 * 1024 };

/* ---- what to drop -------------------------------------------------------------------------- */

static int open_reference(struct sql_connection *reference)
{
    int r = sql_open(reference, ":memory:", SQLITE_OPEN_READWRITE);

    if (r == 0)
        r = sql_execute(reference, schema_tables);
    return r < 0 ? r : sql_execute(reference, schema_views_0_1_0);
}

static int is_in(struct sql_connection *reference, const char *type, const char *name)
{
    static const char find[] = "SELECT 1 FROM sqlite_schema WHERE type = ?1 AND name = ?2";

    return sql_find(reference, find, NULL, sql_text(type), sql_text(name));
}

static int has_column(struct sql_connection *reference, const char *table, const char *column)
{
    static const char find[] = "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2";

    return sql_find(reference, find, NULL, sql_text(table), sql_text(column));
}

/* Indices first: a column in one cannot be dropped. */
static int list_objects(struct sql_connection *connection, struct sql_connection *reference,
                        struct buffer *drops)
{
    static const char objects[] = "SELECT type, name FROM sqlite_schema WHERE type IN ('index',"
                                  " 'table') AND sql IS NOT NULL ORDER BY type, name";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(connection, objects, &rows, NULL, 0);

    while (r >= 0 && (r = sql_next(&rows)) > 0) {
        char type[8], name[STORE_NAME_BYTES];

        TAKE_TEXT(&rows, type);
        TAKE_TEXT(&rows, name);
        r = is_in(reference, type, name);
        if (r == 0)
            r = buffer_append_format(drops, "DROP %s \"%s\";", type, name);
    }
    return r;
}

static int list_columns(struct sql_connection *connection, struct sql_connection *reference,
                        struct buffer *drops)
{
    static const char columns[] = "SELECT t.name, c.name FROM sqlite_schema t"
                                  " JOIN pragma_table_info(t.name) c WHERE t.type = 'table'";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(connection, columns, &rows, NULL, 0);

    while (r >= 0 && (r = sql_next(&rows)) > 0) {
        char table[STORE_NAME_BYTES], column[STORE_NAME_BYTES];

        TAKE_TEXT(&rows, table);
        TAKE_TEXT(&rows, column);
        r = is_in(reference, "table", table);
        if (r > 0 && (r = has_column(reference, table, column)) == 0)
            r = buffer_append_format(drops, "ALTER TABLE \"%s\" DROP COLUMN \"%s\";", table,
                                     column);
    }
    return r;
}

/* ---- dropping ------------------------------------------------------------------------------ */

static int drop_and_check(struct sql_connection *connection, struct sql_connection *reference)
{
    cleanup(buffer_done) struct buffer drops = BUFFER_INIT(DROPS_BYTES);
    char wanted[SHA256_HEX_BYTES], made[SHA256_HEX_BYTES];
    int r = list_objects(connection, reference, &drops);

    if (r == 0)
        r = list_columns(connection, reference, &drops);
    if (r == 0)
        r = schema_drop_views(connection);
    if (r == 0)
        r = sql_execute(connection, buffer_text(&drops));
    if (r == 0)
        r = sql_execute(connection, schema_views_0_1_0);
    if (r == 0)
        r = schema_digest(reference, wanted);
    if (r == 0)
        r = schema_digest(connection, made);
    if (r == 0 && strcmp(wanted, made) != 0)
        r = -ENOTRECOVERABLE;
    return r;
}

static int downgrade(struct sql_connection *connection)
{
    struct sql_connection reference = {0};
    int r = open_reference(&reference);

    if (r == 0)
        r = sql_execute(connection, "PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE");
    if (r == 0)
        r = schema_finish(connection, drop_and_check(connection, &reference));
    sql_close(&reference);
    return r;
}

/* 0, STORE_NEWER, -errno. */
static int check_and_downgrade(struct sql_connection *connection)
{
    int64_t version = 0, minor = 0;
    int r = sql_pragma_number(connection, "PRAGMA user_version", &version);

    if (r < 0)
        return r;
    if (version != STORE_SCHEMA_VERSION)
        return version > STORE_SCHEMA_VERSION ? STORE_NEWER : STORE_DAMAGED;
    r = schema_check(connection, &minor);
    if (r < 0 || minor == 0)
        return r;
    return minor > SCHEMA_MINOR_VERSION ? STORE_NEWER : downgrade(connection);
}

int store_downgrade(const char *path, struct error *error)
{
    struct sql_connection connection = {0};
    enum place_kind kind = PLACE_NONE;
    int r = place_judge(path, &kind, error);

    if (r < 0)
        return r;
    if (kind == PLACE_FOREIGN)
        return error_set(error, STORE_FOREIGN, "%s belongs to another application", path);
    if (kind == PLACE_NONE)
        return error_set(error, -ENOENT, "there is no database at %s", path);
    r = kind == PLACE_NEWER ? STORE_NEWER : sql_open(&connection, path, SQLITE_OPEN_READWRITE);
    if (r == 0)
        r = check_and_downgrade(&connection);
    if (r == STORE_NEWER)
        (void)error_set(error, r, "%s was written by a newer version of crustd than this", path);
    else if (r < 0)
        (void)error_set(error, r, "%s was not changed: %s", path, connection.error_text);
    sql_close(&connection);
    return r;
}
