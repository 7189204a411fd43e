/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - the daemon first, the database where no daemon answers.
 *
 * The daemon's socket and the database are named by the same configuration file the daemon reads,
 * below the same --root.
 *
 * Both give the views' rows in the same words. "No daemon" means that nothing listens. An error
 * answer of the daemon, or a socket without permission, is an error and no reason to read the
 * database instead.
 */
#include "crustctl/source.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/path.h"

enum {
    REQUEST_SECONDS = 30,
    TARGET_BYTES = 16 * 1024, /* the longest path, each byte of it escaped, and more */
    ANSWER_BYTES = 64 * 1024 * 1024,
    ANSWER_DEPTH = 12,
    STATUS_BYTES = 1024 * 1024,
    LOCKED_MSEC = 5000, /* a daemon that starts keeps its database locked for a moment */
};

struct source {
    struct loop loop;
    int root;
    const char *root_name; /* borrowed: an argument */
    struct config config;
    struct error config_fault; /* "" where the configuration was read */
    bool want_daemon;
    bool told_memory;            /* the check whether the daemon works in memory was made */
    struct store_reader *reader; /* set once no daemon answered */
};

int source_open(const char *root, const char *config_file, struct source **ret_source,
                struct error *error)
{
    struct source *source = calloc(1, sizeof(*source));
    int result;

    if (!source)
        return error_set(error, -ENOMEM, "out of memory");
    source->root = -1;
    source->root_name = root;
    result = loop_init(&source->loop);
    if (result < 0) {
        free(source);
        return error_set_errno(error, result, "cannot make an event loop");
    }
    result = path_open_root(root, &source->root);
    if (result < 0) {
        source_close(source);
        return error_set_errno(error, result, "cannot open --root %s", root);
    }
    if (config_file && access(config_file, F_OK) < 0) {
        result = error_set_errno(error, -errno, "%s", config_file);
        source_close(source);
        return result;
    }
    if (config_load_host(source->root, root, config_file, &source->config, error) < 0)
        source->config_fault = *error;
    *ret_source = source;
    return 0;
}

void source_close(struct source *source)
{
    if (!source)
        return;
    store_reader_free(source->reader);
    fd_close(source->root);
    loop_done(&source->loop);
    free(source);
}

void source_want_daemon(struct source *source)
{
    source->want_daemon = true;
}

const char *source_config_fault(const struct source *source)
{
    return *source->config_fault.text ? source->config_fault.text : NULL;
}

const struct config *source_config(const struct source *source)
{
    return &source->config;
}

int source_ask_daemon(struct source *source, const char *method, const char *path,
                      struct buffer *ret_body, struct error *error)
{
    const struct call_request request = {
        .method = method,
        .target = path,
        .body = strcmp(method, "POST") == 0 ? "" : NULL,
        .deadline_seconds = REQUEST_SECONDS,
    };
    unsigned status;

    return call_daemon(source, &request, &status, ret_body, error);
}

int source_root(const struct source *source)
{
    return source->root;
}

struct loop *source_loop(struct source *source)
{
    return &source->loop;
}

static int open_database(struct source *source, struct error *error)
{
    struct error why = {0};
    char path[PATH_MAX];
    const char *name = source->config.paths.database;
    int result = store_failure_of(path_resolve(source->root, source->root_name, name, path));

    if (result < 0)
        (void)error_set_errno(&why, result, "%s", name);
    else
        result = store_reader_open(path, LOCKED_MSEC, &source->reader, &why);
    if (result == 0) {
        (void)fprintf(stderr, "crustctl: no daemon answers on %s; read from the database\n",
                      source->config.paths.http_socket);
        return 0;
    }
    if (result == STORE_MISSING)
        return error_set(error, SOURCE_UNREACHABLE, "no daemon answers on %s, and there is no %s",
                         source->config.paths.http_socket, source->config.paths.database);
    if (result == STORE_LOCKED) /* the daemon is about to answer */
        result = SOURCE_UNREACHABLE;
    return error_set(error, result, "no daemon answers on %s, and its database cannot be read: %s",
                     source->config.paths.http_socket, why.text);
}

static void append_encoded(struct buffer *path, const char *text)
{
    for (; *text; text++) {
        const unsigned char byte = (unsigned char)*text;
        const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                           (byte >= '0' && byte <= '9') || strchr("-_.~/", byte);

        if (plain)
            buffer_append(path, text, 1);
        else
            buffer_append_format(path, "%%%02X", byte);
    }
}

static int append_query(struct buffer *path, const struct store_query *query)
{
    buffer_append_format(path, "/v1/%s?live=%d", store_view_name(query->view), query->live ? 1 : 0);
    if (query->id > 0)
        buffer_append_format(path, "&id=%" PRId64, query->id);
    if (query->after > 0)
        buffer_append_format(path, "&after=%" PRId64, query->after);
    if (query->last > 0)
        buffer_append_format(path, "&last=%" PRId64, query->last);
    if (query->volume) {
        buffer_append_text(path, "&volume=");
        append_encoded(path, query->volume);
    }
    return buffer_error(path);
}

static int read_from_daemon(struct source *source, const struct store_query *query,
                            struct buffer *ret_json, struct error *error)
{
    cleanup(buffer_done) struct buffer path = BUFFER_INIT(TARGET_BYTES);

    if (append_query(&path, query) < 0)
        return error_set(error, -EINVAL, "the name is too long");
    return source_ask_daemon(source, "GET", buffer_text(&path), ret_json, error);
}

/* While its database fails, the daemon does not know the past, and the file not the present. */
static void tell_memory(struct source *source)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(STATUS_BYTES);
    cleanup(json_deletep) cJSON *status = NULL;
    const char *database = NULL;

    if (source->told_memory)
        return;
    source->told_memory = true;
    if (source_ask_daemon(source, "GET", "/v1/status", &body, NULL) == 0 &&
        json_parse(buffer_text(&body), body.length, JSON_LIMITS_HTTP, &status, NULL) == 0)
        database = json_string(status, "database");
    if (database && strcmp(database, "memory") == 0)
        (void)fprintf(stderr,
                      "crustctl: the daemon works in memory, and shows what it has found since its "
                      "database failed; %s is old\n",
                      source->config.paths.database);
}

int source_read(struct source *source, const struct store_query *query, struct buffer *ret_json,
                struct error *error)
{
    int result;

    if (!source->reader) {
        result = read_from_daemon(source, query, ret_json, error);
        if (result == 0)
            tell_memory(source);
        if (result != SOURCE_UNREACHABLE || source->want_daemon)
            return result;
        result = open_database(source, error);
        if (result != 0)
            return result;
    }
    return store_read_json(source->reader, query, ret_json, error);
}

int source_rows(struct source *source, const struct store_query *query, cJSON **ret_rows,
                struct error *error)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(ANSWER_BYTES);
    cleanup(json_deletep) cJSON *rows = NULL;
    int result = source_read(source, query, &json, error);

    if (result != 0)
        return result;
    result = json_parse(buffer_text(&json), json.length,
                        (struct json_limits){ANSWER_BYTES, ANSWER_DEPTH, 0}, &rows, error);
    if (result < 0)
        return result;
    if (!cJSON_IsArray(rows))
        return error_set(error, -EBADMSG, "the daemon's answer is not an array");
    *ret_rows = take_pointer(&rows);
    return 0;
}

int source_status(struct source *source, struct buffer *ret_json, struct error *error)
{
    int result = source_ask_daemon(source, "GET", "/v1/status", ret_json, error);

    if (result != SOURCE_UNREACHABLE)
        return result;
    result = open_database(source, error);
    if (result != 0)
        return result;
    result = buffer_append_text(ret_json, "{\"daemon\":false,\"summary\":");
    if (result == 0)
        result = store_read_summary(source->reader, ret_json, error);
    return result == 0 ? buffer_append_text(ret_json, "}\n") : result;
}

/* What the database says of live sandboxes; NULL if there is none that can be read. */
static cJSON *recorded_sandboxes(const struct source *source)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(DOCTOR_BYTES);
    struct store_reader *reader = NULL;
    cJSON *sandboxes = NULL;
    char path[PATH_MAX];

    if (path_resolve(source->root, source->root_name, source->config.paths.database, path) < 0 ||
        store_reader_open(path, LOCKED_MSEC, &reader, NULL) < 0)
        return NULL;
    if (store_read_abilities(reader, &json, NULL) == 0)
        (void)json_parse(buffer_text(&json), json.length,
                         (struct json_limits){DOCTOR_BYTES, ANSWER_DEPTH, 0}, &sandboxes, NULL);
    store_reader_free(reader);
    return sandboxes;
}

int source_findings(struct source *source, bool *ret_by_daemon, struct buffer *ret_json,
                    struct error *error)
{
    cleanup(json_deletep) cJSON *sandboxes = NULL;
    struct doctor_request request = {.root = source->root, .config = &source->config};
    int result = source_ask_daemon(source, "GET", "/v1/doctor", ret_json, error);

    if (result != SOURCE_UNREACHABLE) {
        *ret_by_daemon = true;
        return result;
    }
    sandboxes = recorded_sandboxes(source);
    request.sandboxes = sandboxes;
    *ret_by_daemon = false;
    result = doctor_examine(&request, ret_json);
    return result < 0 ? error_set_errno(error, result, "the findings can't be written") : 0;
}

int source_crust_users(struct source *source, struct buffer *ret_json, struct error *error)
{
    int result = doctor_find_crust_users(source->root, ret_json);

    return result < 0 ? error_set_errno(error, result, "the findings can't be written") : 0;
}
