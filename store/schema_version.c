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
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buffer.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/text.h"
#include "store/schema.h"
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
    TAKE(&rows, ret_recorded->digest);
    return ret_recorded->minor < 1 ? STORE_DAMAGED : 0;
}

int schema_read_minor(struct sql_connection *connection, int64_t *ret_minor)
{
    struct recorded recorded;
    int r = read_recorded(connection, &recorded);

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

/* Adds what the minor versions after `minor` have, and makes the views anew. */
static int add_minors(struct sql_connection *connection, int64_t minor)
{
    static const char record[] = "INSERT OR REPLACE INTO schema_minor (one, version, schema_sha256)"
                                 " VALUES (1, ?1, ?2)";
    char digest[SHA256_HEX_BYTES];
    int r;

    schema_drop_views(connection);
    (void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    for (int64_t next = minor; next < SCHEMA_MINOR_VERSION; next++) {
        /* Databases of development builds of 0.2.0 are of minor version 1 and may have it. */
        if (next == 1 &&
            sqlite3_table_column_metadata(connection->db, NULL, "drive_mounts", "containers", NULL,
                                          NULL, NULL, NULL, NULL) != SQLITE_OK)
            sql_execute(connection, schema_drive_containers);
        sql_execute(connection, schema_minors[next]);
    }
    (void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sql_execute(connection, schema_views);
    r = schema_digest(connection, digest);
    if (r == 0)
        r = sql_change_values(connection, record, SQL_VALUES(SCHEMA_MINOR_VERSION, digest));
    return r < 0 ? r : 0;
}

static void begin(struct sql_connection *connection)
{
    connection->failure = 0;
    connection->is_latched = true;
    sql_execute(connection, "BEGIN IMMEDIATE");
}

static int finish(struct sql_connection *connection, int r)
{
    if (r == 0)
        r = sql_execute(connection, "COMMIT");
    connection->is_latched = false;
    if (r < 0 && !sqlite3_get_autocommit(connection->db))
        (void)sqlite3_exec(connection->db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

int schema_create(struct sql_connection *connection)
{
    char text[64];
    int r;

    (void)snprintf(text, sizeof(text), "PRAGMA user_version = %d", STORE_SCHEMA_VERSION);
    begin(connection);
    sql_execute(connection, schema_tables);
    r = add_minors(connection, 0);
    return finish(connection, r < 0 ? r : sql_execute(connection, text));
}

/* ---- secrets -------------------------------------------------------------------------------- */

/* Release 0.1.0 redacted metadata, but no mount options. Its rows are redacted by the same function
 * as today's observations, so that a row equals the next observation of its file. */

enum kind { KIND_OPTIONS, KIND_METADATA, KIND_MOUNT_INFO };

static int replace(cJSON *string, const char *text)
{
    return cJSON_SetValuestring(string, text) ? 1 : -ENOMEM;
}

/* 1: it held a secret. */
static int redact_text(cJSON *string)
{
    cleanup(buffer_done) struct buffer shown = BUFFER_INIT(0);
    size_t length;

    if (!cJSON_IsString(string))
        return 0;
    length = secret_shown_length(string->valuestring);
    if (!string->valuestring[length] || strcmp(string->valuestring + length, SECRET_REDACTED) == 0)
        return 0;
    buffer_append(&shown, string->valuestring, length);
    buffer_append_text(&shown, SECRET_REDACTED);
    return buffer_error(&shown) < 0 ? buffer_error(&shown) : replace(string, buffer_text(&shown));
}

static int redact_member(cJSON *member)
{
    if (!cJSON_IsString(member) || !secret_is_name(member->string, strlen(member->string)))
        return redact_text(member);
    return strcmp(member->valuestring, SECRET_REDACTED) == 0 ? 0 : replace(member, SECRET_REDACTED);
}

static int redact_each(const cJSON *list, int (*redact)(cJSON *item))
{
    int redacted = 0, r = 0;
    cJSON *item;

    cJSON_ArrayForEach(item, list)
    {
        if (r >= 0)
            r = redact(item);
        redacted |= r > 0;
    }
    return r < 0 ? r : redacted;
}

static int redact_value(const cJSON *value, enum kind kind)
{
    int options, metadata;

    if (kind != KIND_MOUNT_INFO)
        return redact_each(value, kind == KIND_OPTIONS ? redact_text : redact_member);
    options = redact_each(json_member(value, "options"), redact_text);
    metadata = redact_each(json_member(value, "metadata"), redact_member);
    if (options < 0 || metadata < 0)
        return options < 0 ? options : metadata;
    return options | metadata;
}

/* The text itself if it holds no secret; NULL for what is no JSON. */
static void redact_in_sql(sqlite3_context *context, int count, sqlite3_value **values)
{
    const enum kind *kind = sqlite3_user_data(context);
    const char *text = (const char *)sqlite3_value_text(values[0]);
    cleanup(json_deletep) cJSON *value = NULL;
    int r;

    (void)count;
    if (!text)
        return;
    r = json_parse(text, strlen(text), JSON_LIMITS_PERSIST, &value, NULL);
    if (r == 0)
        r = redact_value(value, *kind);
    if (r == 0) {
        sqlite3_result_value(context, values[0]);
        return;
    }
    text = r > 0 ? cJSON_PrintUnformatted(value) : NULL;
    if (r == JSON_NO_MEMORY || (r > 0 && !text))
        sqlite3_result_error_nomem(context);
    else
        sqlite3_result_text(context, text, -1, free);
}

/* In a transaction: redacts mount options and metadata in every row that has them, and counts the
 * rows that held a secret. */
static int redact_secrets(struct sql_connection *connection, uint64_t *ret_redacted)
{
    static const char redact[] =
        "UPDATE entries SET options = redact_options(options), metadata = redact_metadata(metadata)"
        " WHERE options IS NOT redact_options(options)"
        " OR metadata IS NOT redact_metadata(metadata);"
        "UPDATE cleanups SET mount_info = redact_mount_info(mount_info)"
        " WHERE mount_info IS NOT redact_mount_info(mount_info)";
    static const struct {
        const char *name;
        enum kind kind;
    } functions[] = {{"redact_options", KIND_OPTIONS},
                     {"redact_metadata", KIND_METADATA},
                     {"redact_mount_info", KIND_MOUNT_INFO}};
    int code = SQLITE_OK, redacted;

    for (size_t i = 0; code == SQLITE_OK && i < array_length(functions); i++)
        code = sqlite3_create_function_v2(connection->db, functions[i].name, 1,
                                          SQLITE_UTF8 | SQLITE_DIRECTONLY | SQLITE_DETERMINISTIC,
                                          (void *)(uintptr_t)&functions[i].kind, redact_in_sql,
                                          NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return sql_failed(connection, code);
    redacted = sql_change_values(connection, redact, NULL, 0);
    if (redacted < 0)
        return redacted;
    *ret_redacted = (uint64_t)redacted;
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------- */

int schema_upgrade(struct sql_connection *connection, struct schema_upgrade *ret_upgrade)
{
    struct recorded recorded;
    char digest[SHA256_HEX_BYTES];
    int r = read_recorded(connection, &recorded);

    *ret_upgrade = (struct schema_upgrade){0};
    if (r == 0)
        r = schema_digest(connection, digest);
    if (r == 0 && strcmp(digest, recorded.digest) != 0)
        r = STORE_DAMAGED;
    if (r < 0 || recorded.minor >= SCHEMA_MINOR_VERSION)
        return r;
    begin(connection);
    r = add_minors(connection, recorded.minor);
    if (r == 0 && recorded.minor < FIRST_REDACTED) /* it has mount options as they were */
        r = redact_secrets(connection, &ret_upgrade->redacted);
    r = finish(connection, r);
    ret_upgrade->upgraded = r == 0;
    ret_upgrade->from_minor = recorded.minor;
    return r;
}
