/* SPDX-License-Identifier: Apache-2.0 */
/* schema_version.c - the minor version of a database: made, checked, brought up to date.
 *
 * Rule: a program opens a database of its own major version, whatever the minor one is. An older
 * minor version is upgraded in one transaction; a newer one is used as it is: the program uses the
 * tables and columns that it knows and leaves the others alone. That holds because a minor version
 * only adds (schema.c).
 *
 * Integrity. A flipped bit in a stored CREATE statement passes SQLite's own checks. A migration
 * therefore stores the SHA-256 of all statements in the database, and every program that opens it
 * compares; so a program can also check a newer version whose statements it does not know. Release
 * 0.1.0 stored none, but its databases have one known digest.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/buffer.h"
#include "lib/sha256.h"
#include "store/schema.h"
#include "store/secrets.h"
#include "store/store.h"

enum {
    STATEMENTS_BYTES = 256 * 1024,
    FIRST_REDACTED = 1, /* the minor version since which mount options are redacted */
};

/* Of what release 0.1.0 makes: schema_tables and the views that it had. */
static const char digest_of_minor_0[SHA256_HEX_BYTES] =
    "c84dedf51e9b6d083b5d15beeeccf4bc0a7844711a0140ec3fd66bf1027ec398";

/* ---- digest -------------------------------------------------------------------------------- */

static int append_rows(struct sql_connection *connection, struct buffer *statements)
{
    static const char kept[] = "SELECT type, name, tbl_name, coalesce(sql, '')"
                               " FROM sqlite_schema ORDER BY type, name";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(connection, kept, &rows, NULL, 0);

    while (r >= 0 && (r = sql_next(&rows)) > 0)
        for (int column = 0; r >= 0 && column < 4; column++) {
            const char *text = sql_borrow_text(&rows);

            r = buffer_append(statements, text, strlen(text) + 1);
        }
    return r;
}

int schema_digest(struct sql_connection *connection, char ret_hex[static SHA256_HEX_BYTES])
{
    struct buffer statements = BUFFER_INIT(STATEMENTS_BYTES);
    int r = append_rows(connection, &statements);

    if (r >= 0)
        sha256_hex(buffer_text(&statements), statements.length, ret_hex);
    buffer_done(&statements);
    return r == BUFFER_FULL ? STORE_DAMAGED : r;
}

/* ---- what the file says -------------------------------------------------------------------- */

struct recorded {
    int64_t minor;
    char digest[SHA256_HEX_BYTES];
};

static int read_recorded(struct sql_connection *connection, struct recorded *ret_recorded)
{
    static const char is_there[] = "SELECT 1 FROM sqlite_schema WHERE name = 'schema_minor'";
    static const char recorded[] = "SELECT version, schema_sha256 FROM schema_minor"
                                   " WHERE one = 1";
    cleanup(sql_end) struct sql_rows found = {0}, rows = {0};
    int r = sql_first_values(connection, is_there, &found, NULL, 0);

    *ret_recorded = (struct recorded){0};
    if (r < 0)
        return r;
    if (r == 0) {
        memcpy(ret_recorded->digest, digest_of_minor_0, sizeof(digest_of_minor_0));
        return 0;
    }
    r = sql_first_values(connection, recorded, &rows, NULL, 0);
    /* If the table is there and its columns are not, the file is damaged, and SQLite reports an
     * error. */
    if (r == STORE_UNREADABLE && (sqlite3_errcode(connection->db) & 0xff) == SQLITE_ERROR)
        return STORE_DAMAGED;
    if (r <= 0)
        return r < 0 ? r : STORE_DAMAGED;
    ret_recorded->minor = sql_take_number(&rows);
    TAKE_TEXT(&rows, ret_recorded->digest);
    return ret_recorded->minor < 1 ? STORE_DAMAGED : 0;
}

int schema_read_minor(struct sql_connection *connection, int64_t *ret_minor)
{
    struct recorded recorded;
    int r = read_recorded(connection, &recorded);

    *ret_minor = recorded.minor;
    return r;
}

static int read_and_check(struct sql_connection *connection, struct recorded *ret_recorded)
{
    char digest[SHA256_HEX_BYTES];
    int r = read_recorded(connection, ret_recorded);

    if (r == 0)
        r = schema_digest(connection, digest);
    if (r == 0 && strcmp(digest, ret_recorded->digest) != 0)
        r = STORE_DAMAGED;
    return r;
}

int schema_check(struct sql_connection *connection, int64_t *ret_minor)
{
    struct recorded recorded;
    int r = read_and_check(connection, &recorded);

    *ret_minor = recorded.minor;
    return r;
}

/* ---- migrating ----------------------------------------------------------------------------- */

int schema_drop_views(struct sql_connection *connection)
{
    static const char first_view[] = "SELECT name FROM sqlite_schema WHERE type = 'view' LIMIT 1";
    char text[256];
    int r;

    for (;;) {
        cleanup(sql_end) struct sql_rows rows = {0};

        r = sql_first_values(connection, first_view, &rows, NULL, 0);
        if (r <= 0)
            return r;
        (void)snprintf(text, sizeof(text), "DROP VIEW \"%s\"", sql_borrow_text(&rows));
        sql_end(&rows);
        r = sql_execute(connection, text);
        if (r < 0)
            return r;
    }
}

static int record_minor(struct sql_connection *connection)
{
    static const char record[] = "INSERT OR REPLACE INTO schema_minor (one, version, schema_sha256)"
                                 " VALUES (1, ?1, ?2)";
    char digest[SHA256_HEX_BYTES];
    int r = schema_digest(connection, digest);

    return r < 0 ? r
                 : sql_run(connection, record, NULL, sql_number(SCHEMA_MINOR_VERSION),
                           sql_text(digest));
}

/* Databases of development builds of 0.2.0 are of minor version 1 and may have its column. */
static int add_second(struct sql_connection *connection)
{
    bool is_there =
        sqlite3_table_column_metadata(connection->db, NULL, "drive_mounts", "containers", NULL,
                                      NULL, NULL, NULL, NULL) == SQLITE_OK;
    int r = is_there ? 0 : sql_execute(connection, schema_drive_containers);

    return r < 0 ? r : sql_execute(connection, schema_minors[1]);
}

/* Adds what the minor versions after `minor` have, and makes the views anew. */
static int add_minors(struct sql_connection *connection, int64_t minor)
{
    int r = schema_drop_views(connection);

    for (int64_t next = minor; r == 0 && next < SCHEMA_MINOR_VERSION; next++)
        r = next == 1 ? add_second(connection) : sql_execute(connection, schema_minors[next]);
    if (r == 0)
        r = sql_execute(connection, schema_views);
    return r < 0 ? r : record_minor(connection);
}

int schema_finish(struct sql_connection *connection, int r)
{
    if (r == 0)
        r = sql_execute(connection, "COMMIT");
    if (r < 0 && !sqlite3_get_autocommit(connection->db))
        (void)sqlite3_exec(connection->db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

int schema_create(struct sql_connection *connection)
{
    char text[64];
    int r = sql_execute(connection, "BEGIN IMMEDIATE");

    (void)snprintf(text, sizeof(text), "PRAGMA user_version = %d", STORE_SCHEMA_VERSION);
    if (r == 0)
        r = sql_execute(connection, schema_tables);
    if (r == 0)
        r = add_minors(connection, 0);
    if (r == 0)
        r = sql_execute(connection, text);
    return schema_finish(connection, r);
}

/* ---- opening ------------------------------------------------------------------------------- */

static int upgrade_from(struct sql_connection *connection, int64_t minor,
                        struct schema_upgrade *ret_upgrade)
{
    int r = sql_execute(connection, "BEGIN IMMEDIATE");

    if (r == 0)
        r = add_minors(connection, minor);
    if (r == 0 && minor < FIRST_REDACTED) /* release 0.1.0 stored mount options as they were */
        r = secrets_redact(connection, &ret_upgrade->redacted);
    return schema_finish(connection, r);
}

int schema_upgrade(struct sql_connection *connection, struct schema_upgrade *ret_upgrade)
{
    struct recorded recorded;
    int r = read_and_check(connection, &recorded);

    *ret_upgrade = (struct schema_upgrade){0};
    if (r == 0 && recorded.minor < SCHEMA_MINOR_VERSION) {
        r = upgrade_from(connection, recorded.minor, ret_upgrade);
        ret_upgrade->upgraded = r == 0;
        ret_upgrade->from_minor = recorded.minor;
    }
    return r;
}
