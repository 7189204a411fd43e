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
#include "crustctl/crustctl.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "doctor/doctor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/json.h"
#include "lib/path.h"

enum {
    REQUEST_SECONDS = 30,
    TARGET_BYTES = 16 * 1024, /* the longest path, each byte of it escaped, and more */
    ANSWER_DEPTH = 12,
    LOCKED_MSEC = 5000, /* a daemon that starts keeps its database locked for a moment */
};

int source_open(struct source *source, const char *root, const char *config_file,
                struct error *error)
{
    struct error fault = {0};
    int result;

    *source = (struct source){.root = -1, .root_name = root};
    result = path_open_root(root, &source->root);
    if (result < 0)
        return error_set_errno(error, result, "cannot open --root %s", root);
    if (config_file && access(config_file, F_OK) < 0)
        return error_set_errno(error, -errno, "%s", config_file);
    if (config_load(source->root, root, config_file, &source->config, &fault) < 0)
        source->config_fault = fault;
    return 0;
}

void source_close(struct source *source)
{
    store_reader_free(source->reader);
    fd_close(source->root);
}

/* ---- asking the daemon --------------------------------------------------------------------- */

/* What is shown while the daemon's answer is waited for. It asks the daemon as well. */
struct progress {
    struct source *source;
    const struct source_request *request;
    struct buffer said; /* last; owned */
};

static void show_progress(void *userdata)
{
    struct progress *progress = userdata;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

    progress->request->describe(progress->source, progress->request->subject, &text);
    if (!text.length || strcmp(buffer_text(&text), buffer_text(&progress->said)) == 0)
        return;
    (void)fprintf(stderr, "waiting: %s\n", buffer_text(&text));
    buffer_clear(&progress->said);
    buffer_append_text(&progress->said, buffer_text(&text));
}

int source_ask(struct source *source, struct source_request *request, struct buffer *ret_body,
               struct error *error)
{
    const unsigned seconds = request->seconds ? request->seconds : REQUEST_SECONDS;
    const char *socket = source->config.paths.http_socket;
    cleanup(json_deletep) cJSON *refusal = NULL;
    struct progress progress = {.source = source, .request = request};
    const struct http_exchange_request exchange = {
        .directory = source->root,
        .socket_path = socket,
        .method = request->method,
        .target = request->target,
        .body = request->body,
        .body_limit = SOURCE_ANSWER_BYTES,
        .on_waiting = request->describe ? show_progress : NULL,
        .userdata = &progress,
    };
    struct error why;
    enum http_exchange_end end = http_exchange_perform(
        &exchange, clock_boottime() + seconds * NSEC_PER_SEC, &request->status, ret_body, &why);

    buffer_done(&progress.said);
    if (end == HTTP_EXCHANGE_FORBIDDEN)
        return error_set(error, -EACCES,
                         "no permission to ask the daemon on %s: be root, or in the group that "
                         "paths.socket_group names",
                         socket);
    if (end == HTTP_EXCHANGE_NO_SOCKET || end == HTTP_EXCHANGE_REFUSED)
        return error_set(error, SOURCE_UNREACHABLE, "no daemon answers on %s", socket);
    if (end != HTTP_EXCHANGE_ANSWERED)
        return error_set(error, -EPROTO, "%s: %s", socket, why.text);
    if (request->status / 100 == 2)
        return 0;
    if (json_parse(buffer_text(ret_body), ret_body->length, JSON_LIMITS_HTTP, &refusal, NULL) ==
            0 &&
        json_string(refusal, "message"))
        return error_set(error, SOURCE_REFUSED, "%s", json_string(refusal, "message"));
    return error_set(error, SOURCE_REFUSED, "the daemon refused without a word (HTTP status %u)",
                     request->status);
}

static int get(struct source *source, const char *target, struct buffer *ret_body,
               struct error *error)
{
    return source_ask(source, &(struct source_request){.method = "GET", .target = target}, ret_body,
                      error);
}

/* ---- rows ---------------------------------------------------------------------------------- */

int source_parse(const struct buffer *json, cJSON **ret_value, struct error *error)
{
    return json_parse(buffer_text(json), json->length,
                      (struct json_limits){SOURCE_ANSWER_BYTES, ANSWER_DEPTH, 0}, ret_value, error);
}

static int open_reader(const struct source *source, struct store_reader **ret_reader,
                       struct error *error)
{
    char path[PATH_MAX];
    const char *name = source->config.paths.database;
    int result = store_failure_of(path_resolve(source->root, source->root_name, name, path));

    return result < 0 ? error_set_errno(error, result, "%s", name)
                      : store_reader_open(path, LOCKED_MSEC, ret_reader, error);
}

static int open_database(struct source *source, struct error *error)
{
    const char *socket = source->config.paths.http_socket;
    struct error why = {0};
    int result = open_reader(source, &source->reader, &why);

    if (result == 0)
        (void)fprintf(stderr, "crustctl: no daemon answers on %s; read from the database\n",
                      socket);
    if (result == 0)
        return 0;
    if (result == STORE_MISSING)
        return error_set(error, SOURCE_UNREACHABLE, "no daemon answers on %s, and there is no %s",
                         socket, source->config.paths.database);
    if (result == STORE_LOCKED) /* the daemon is about to answer */
        result = SOURCE_UNREACHABLE;
    return error_set(error, result, "no daemon answers on %s, and its database cannot be read: %s",
                     socket, why.text);
}

/* While its database fails, the daemon does not know the past, and the file not the present. */
static void tell_memory(struct source *source)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    cleanup(json_deletep) cJSON *status = NULL;

    if (source->checked_memory)
        return;
    source->checked_memory = true;
    if (get(source, "/v1/status", &body, NULL) == 0 && source_parse(&body, &status, NULL) == 0 &&
        strcmp(json_text(status, "database"), "memory") == 0)
        (void)fprintf(stderr,
                      "crustctl: the daemon works in memory, and shows what it has found since its "
                      "database failed; %s is old\n",
                      source->config.paths.database);
}

static int append_target(const struct store_query *query, struct buffer *ret_target)
{
    buffer_append_format(ret_target, "/v1/%s?live=%d", store_view_name(query->view), query->live);
    if (query->id > 0)
        buffer_append_format(ret_target, "&id=%" PRId64, query->id);
    if (query->after > 0)
        buffer_append_format(ret_target, "&after=%" PRId64, query->after);
    if (query->last > 0)
        buffer_append_format(ret_target, "&last=%" PRId64, query->last);
    if (query->volume)
        buffer_append_text(ret_target, "&volume=");
    for (const char *text = query->volume; text && *text; text++) {
        static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789-_.~/";

        buffer_append_format(ret_target, strchr(plain, *text) ? "%c" : "%%%02X",
                             (unsigned char)*text);
    }
    return buffer_error(ret_target);
}

int source_read(struct source *source, const struct store_query *query, struct buffer *ret_json,
                struct error *error)
{
    cleanup(buffer_done) struct buffer target = BUFFER_INIT(TARGET_BYTES);
    int result;

    if (!source->reader) {
        if (append_target(query, &target) < 0)
            return error_set(error, -EINVAL, "the name is too long");
        result = get(source, buffer_text(&target), ret_json, error);
        if (result == 0)
            tell_memory(source);
        if (result != SOURCE_UNREACHABLE || source->needs_daemon)
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
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    cleanup(json_deletep) cJSON *rows = NULL;
    int result = source_read(source, query, &json, error);

    if (result == 0)
        result = source_parse(&json, &rows, error);
    if (result != 0)
        return result;
    if (!cJSON_IsArray(rows))
        return error_set(error, -EBADMSG, "the daemon's answer is not an array");
    *ret_rows = take_pointer(&rows);
    return 0;
}

/* ---- what is no view ----------------------------------------------------------------------- */

int source_status(struct source *source, cJSON **ret_status, struct error *error)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    int result = get(source, "/v1/status", &json, error);

    if (result == SOURCE_UNREACHABLE) {
        result = open_database(source, error);
        if (result != 0)
            return result;
        buffer_append_text(&json, "{\"daemon\":false,\"summary\":");
        result = store_read_summary(source->reader, &json, error);
        buffer_append_text(&json, "}");
    }
    return result == 0 ? source_parse(&json, ret_status, error) : result;
}

int source_findings(struct source *source, bool *ret_by_daemon, cJSON **ret_findings,
                    struct error *error)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(SOURCE_ANSWER_BYTES);
    cleanup(buffer_done) struct buffer known = BUFFER_INIT(DOCTOR_BYTES);
    cleanup(json_deletep) cJSON *sandboxes = NULL;
    struct store_reader *reader = NULL;
    int result = get(source, "/v1/doctor", &json, error);

    *ret_by_daemon = result != SOURCE_UNREACHABLE;
    if (!*ret_by_daemon) {
        if (open_reader(source, &reader, NULL) == 0 &&
            store_read_abilities(reader, &known, NULL) == 0)
            (void)source_parse(&known, &sandboxes, NULL);
        store_reader_free(reader);
        result = doctor_examine(&(struct doctor_request){.root = source->root,
                                                         .config = &source->config,
                                                         .sandboxes = sandboxes},
                                &json);
        if (result < 0)
            return error_set_errno(error, result, "the findings can't be written");
    }
    return result == 0 ? source_parse(&json, ret_findings, error) : result;
}
