/* SPDX-License-Identifier: Apache-2.0 */
/* secrets.c - redacts rows in place.
 *
 * Release 0.1.0 redacted metadata, but no mount options. Its rows are redacted by the same function
 * as today's observations, so that a row equals the next observation of its file.
 */
#include "store/secrets.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "lib/secret.h"

/* ---- one text ------------------------------------------------------------------------------ */

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

/* ---- in SQL -------------------------------------------------------------------------------- */

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

static int add_functions(struct sql_connection *connection)
{
    static const struct {
        const char *name;
        enum kind kind;
    } functions[] = {{"redact_options", KIND_OPTIONS},
                     {"redact_metadata", KIND_METADATA},
                     {"redact_mount_info", KIND_MOUNT_INFO}};
    int code = SQLITE_OK;

    for (size_t i = 0; code == SQLITE_OK && i < array_length(functions); i++)
        code = sqlite3_create_function_v2(connection->db, functions[i].name, 1,
                                          SQLITE_UTF8 | SQLITE_DIRECTONLY | SQLITE_DETERMINISTIC,
                                          (void *)(uintptr_t)&functions[i].kind, redact_in_sql,
                                          NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : sql_failed(connection, code);
}

int secrets_redact(struct sql_connection *connection, uint64_t *ret_redacted)
{
    static const char entries[] =
        "UPDATE entries SET options = redact_options(options), metadata = redact_metadata(metadata)"
        " WHERE options IS NOT redact_options(options)"
        " OR metadata IS NOT redact_metadata(metadata)";
    static const char cleanups[] = "UPDATE cleanups SET mount_info = redact_mount_info(mount_info)"
                                   " WHERE mount_info IS NOT redact_mount_info(mount_info)";
    int in_entries = 0, in_cleanups = 0;
    int r = add_functions(connection);

    if (r == 0)
        r = sql_run_values(connection, entries, &in_entries, NULL, 0);
    if (r == 0)
        r = sql_run_values(connection, cleanups, &in_cleanups, NULL, 0);
    if (r == 0)
        *ret_redacted = (uint64_t)in_entries + (uint64_t)in_cleanups;
    return r;
}
