/* SPDX-License-Identifier: Apache-2.0 */
/* http_routes.c - what each path answers.
 *
 * The audit views are sent exactly as the store formats them. A request that is not understood (an
 * unknown argument, an invalid number) is refused rather than answered in part, because a misspelt
 * filter would otherwise return everything.
 *
 * All of this runs on the daemon's loop, so one answer must not take long. Of the histories, which
 * can have a million rows, it has the newest HISTORY_ROWS at most. A client that needs all of them
 * can read the database, which costs the daemon nothing.
 */
#include "api/http_routes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "api/http_asked.h"
#include "api/http_call.h"
#include "api/metrics.h"
#include "api/metrics_text.h"
#include "api/status_page.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "store/read.h"

enum { HISTORY_ROWS = 10000 };

int http_routes_refuse(struct http_reply *reply, unsigned status, const char *code,
                       const char *reason, const char *message)
{
    buffer_clear(&reply->body);
    reply->status = status;
    reply->content_type = "application/json";
    buffer_append_text(&reply->body, "{");
    json_append_member(&reply->body, "code", code);
    json_append_member(&reply->body, "reason", reason);
    json_append_member(&reply->body, "message", message);
    return buffer_append_text(&reply->body, "}\n");
}

int http_routes_refuse_code(struct http_reply *reply, enum status_code code, const char *message)
{
    const char *reason = code == STATUS_INVALID_ARGUMENT     ? "bad_argument"
                         : code == STATUS_NOT_FOUND          ? "not_found"
                         : code == STATUS_ALREADY_EXISTS     ? "taken"
                         : code == STATUS_UNAVAILABLE        ? "not_now"
                         : code == STATUS_DEADLINE_EXCEEDED  ? "not_in_time"
                         : code == STATUS_RESOURCE_EXHAUSTED ? "too_many"
                                                             : "refused";

    return http_routes_refuse(reply, status_of_http(code), status_name(code), reason, message);
}

/* The argument is not known at the path, or its value is not valid. */
static int refuse_argument(struct http_reply *reply, const char *name)
{
    struct error error;

    (void)error_set(&error, -EINVAL, "argument \"%s\" is not known here, or its value is not valid",
                    name);
    return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument", error.text);
}

/* The limit in the text is that of the listener, because no other answer has a part of it. */
static int refuse_size(const struct http_request *request, struct http_reply *reply)
{
    struct error error;

    if (request->is_crowded)
        return http_routes_refuse_code(reply, STATUS_UNAVAILABLE,
                                       "answers that their clients have not read yet take the "
                                       "memory for this one: try again later");
    (void)error_set(&error, -EMSGSIZE,
                    "the answer has more than %zu MiB: ask for fewer rows (?last=, ?after=, "
                    "?live=1)",
                    reply->body.limit >> 20);
    return http_routes_refuse(reply, 429, "RESOURCE_EXHAUSTED", "too_many_rows", error.text);
}

/* Completes what the store wrote, or turns its failure into an error. */
static int finish(const struct http_request *request, struct http_reply *reply, int result,
                  const char *end, const struct error *error)
{
    if (result == 0)
        result = buffer_append_text(&reply->body, end);
    if (result == 0 || result == BUFFER_NO_MEMORY)
        return result;
    if (result == BUFFER_FULL)
        return refuse_size(request, reply);
    if (result == STORE_FAULT)
        return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument", error->text);
    return http_routes_refuse(reply, 500, "INTERNAL", "store_failed", error->text);
}

static int answer_healthz(struct reconciler *reconciler, const struct http_request *request,
                          struct http_reply *reply)
{
    (void)reconciler;
    (void)request;
    reply->content_type = "text/plain; charset=utf-8";
    return buffer_append_text(&reply->body, "ok\n");
}

static int answer_readyz(struct reconciler *reconciler, const struct http_request *request,
                         struct http_reply *reply)
{
    struct reconciler_health health = {0};

    reconciler_get_health(reconciler, &health);
    if (!health.synced)
        return http_routes_refuse(reply, 503, "UNAVAILABLE", "not_synced",
                                  "the first scan is not done yet");
    if (health.degraded)
        return http_routes_refuse(reply, 503, "UNAVAILABLE", "degraded", health.problem);
    return answer_healthz(reconciler, request, reply);
}

static void append_source(struct buffer *body, const struct reconciler_source *source)
{
    buffer_append_text(body, "{");
    json_append_member(body, "name", source->name);
    buffer_append_format(body, ",\"up\":%s,\"events\":%" PRIu64 ",\"overflows\":%" PRIu64 "}",
                         source->up ? "true" : "false", source->events, source->overflows);
}

static void append_findings(struct buffer *body, const struct reconciler_findings *findings)
{
    buffer_append_format(body, ",\"doctor\":{\"errors\":%u,\"warnings\":%u", findings->errors,
                         findings->warnings);
    json_append_member(body, "worst", *findings->worst ? findings->worst : NULL);
    buffer_append_text(body, "}");
}

static int append_health(struct buffer *body, const struct reconciler_health *health,
                         const struct reconciler_findings *findings)
{
    char host[256] = "";

    (void)gethostname(host, sizeof(host) - 1);
    buffer_append_format(body, "{\"version\":\"%s\",\"synced\":%s,\"degraded\":%s", CRUST_VERSION,
                         health->synced ? "true" : "false", health->degraded ? "true" : "false");
    json_append_member(body, "problem", *health->problem ? health->problem : NULL);
    json_append_member(body, "host", host);
    json_append_member(body, "cleanup_problem",
                       *health->cleanup_problem ? health->cleanup_problem : NULL);
    append_findings(body, findings);
    buffer_append_format(body,
                         ",\"database\":\"%s\",\"acts_in_flight\":%u,\"longest_pass_ms\":%" PRIu64
                         ",\"sources\":[",
                         health->in_memory ? "memory" : "file", health->acts_in_flight,
                         health->longest_pass_ns / NSEC_PER_MSEC);
    for (unsigned i = 0; i < health->sources; i++) {
        buffer_append_text(body, i ? "," : "");
        append_source(body, &health->source[i]);
    }
    return buffer_append_text(body, "],\"summary\":");
}

static int answer_status(struct reconciler *reconciler, const struct http_request *request,
                         struct http_reply *reply)
{
    struct reconciler_health health = {0};
    struct error error = {0};
    int result;

    (void)request;
    reconciler_get_health(reconciler, &health);
    result = append_health(&reply->body, &health, reconciler_get_findings(reconciler));
    if (result == 0)
        result = store_read_summary(reconciler_reader(reconciler), &reply->body, &error);
    return finish(request, reply, result, "}\n", &error);
}

static int answer_resync(struct reconciler *reconciler, const struct http_request *request,
                         struct http_reply *reply)
{
    (void)request;
    reconciler_resync(reconciler);
    reply->status = 202;
    return buffer_append_text(&reply->body, "{}\n");
}

static int read_number(const char *text, int64_t *ret_number)
{
    char *end = NULL;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0)
        return -EINVAL;
    *ret_number = number;
    return 0;
}

static int read_flag(const char *text, bool *ret_flag)
{
    bool yes = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;

    if (!yes && strcmp(text, "0") != 0 && strcmp(text, "false") != 0)
        return -EINVAL;
    *ret_flag = yes;
    return 0;
}

static int read_row_argument(const struct http_argument *argument, struct store_query *query)
{
    if (strcmp(argument->name, "id") == 0)
        return read_number(argument->value, &query->id);
    if (strcmp(argument->name, "after") == 0)
        return read_number(argument->value, &query->after);
    if (strcmp(argument->name, "last") == 0)
        return read_number(argument->value, &query->last);
    if (strcmp(argument->name, "live") == 0)
        return read_flag(argument->value, &query->live);
    if (strcmp(argument->name, "not_resizable") == 0)
        return read_flag(argument->value, &query->not_resizable);
    if (strcmp(argument->name, "volume") == 0) {
        query->volume = argument->value;
        return 0;
    }
    return -EINVAL;
}

static bool is_history(enum store_view view)
{
    return view == STORE_VIEW_RESIZES || view == STORE_VIEW_CLEANUPS ||
           view == STORE_VIEW_JOURNAL || view == STORE_VIEW_DRIVES;
}

static int answer_rows(struct reconciler *reconciler, const struct http_request *request,
                       struct http_reply *reply)
{
    struct store_query query = {.view = STORE_VIEWS};
    struct error error = {0};
    int result = store_view_from_name(request->path + strlen("/v1/"), &query.view);

    if (result < 0)
        return http_routes_refuse(reply, 500, "INTERNAL", "store_failed", "no such view");
    for (unsigned i = 0; i < request->arguments; i++)
        if (read_row_argument(&request->argument[i], &query) < 0)
            return refuse_argument(reply, request->argument[i].name);
    if (is_history(query.view) && (query.last == 0 || query.last > HISTORY_ROWS))
        query.last = HISTORY_ROWS;
    result = store_read_json(reconciler_reader(reconciler), &query, &reply->body, &error);
    return finish(request, reply, result, "\n", &error);
}

/* The body is {"dry_run":true} or empty. Anything else is refused, so that a request that was not
 * understood removes nothing. */
static int read_gc_body(const struct http_request *request, bool *dry_run)
{
    cleanup(json_deletep) cJSON *object = NULL;
    const cJSON *member;
    struct error error;

    if (request->body_length == 0)
        return 0;
    if (json_parse(request->body, request->body_length, JSON_LIMITS_HTTP, &object, &error) < 0 ||
        !cJSON_IsObject(object))
        return -EINVAL;
    cJSON_ArrayForEach(member, object)
    {
        if (member != json_member(object, "dry_run") || !cJSON_IsBool(member))
            return -EINVAL;
        *dry_run = cJSON_IsTrue(member);
    }
    return 0;
}

static int read_gc_argument(const struct http_argument *argument, bool *dry_run, int64_t *volume_id)
{
    if (strcmp(argument->name, "dry_run") == 0)
        return read_flag(argument->value, dry_run);
    return strcmp(argument->name, "volume") == 0 ? read_number(argument->value, volume_id)
                                                 : -EINVAL;
}

static int answer_gc(struct reconciler *reconciler, const struct http_request *request,
                     struct http_reply *reply)
{
    struct error error = {0};
    bool dry_run = false;
    int64_t volume_id = 0;
    enum status_code code;

    for (unsigned i = 0; i < request->arguments; i++)
        if (read_gc_argument(&request->argument[i], &dry_run, &volume_id) < 0)
            return refuse_argument(reply, request->argument[i].name);
    if (read_gc_body(request, &dry_run) < 0)
        return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument",
                                  "the body: only {\"dry_run\":true} is understood here");
    code = reconciler_gc(reconciler, dry_run, volume_id, &reply->body, &error);
    return code == STATUS_OK ? buffer_append_text(&reply->body, "\n")
                             : http_routes_refuse_code(reply, code, error.text);
}

/* /v1/cleanups/ID/restore */
static int answer_restore(struct reconciler *reconciler, const struct http_request *request,
                          struct http_reply *reply)
{
    const char *text = request->path + strlen("/v1/cleanups/");
    struct error error = {0};
    char number[24] = "";
    int64_t cleanup_id;
    enum status_code code;

    if (strcspn(text, "/") < sizeof(number))
        memcpy(number, text, strcspn(text, "/"));
    if (read_number(number, &cleanup_id) < 0)
        return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument",
                                  "a cleanup is named by its number");
    code = reconciler_restore(reconciler, cleanup_id, &error);
    return code == STATUS_OK ? buffer_append_text(&reply->body, "{}\n")
                             : http_routes_refuse_code(reply, code, error.text);
}

/* "/v1/volumes/ID" and "/v1/volumes/ID/explain" */
static int answer_of_volume(struct reconciler *reconciler, const struct http_request *request,
                            struct http_reply *reply, bool explain)
{
    const char *text = request->path + strlen("/v1/volumes/");
    struct error error = {0};
    char number[24] = "";
    int64_t volume_id;
    int result;

    if (strcspn(text, "/") < sizeof(number))
        memcpy(number, text, strcspn(text, "/"));
    if (read_number(number, &volume_id) < 0 || volume_id == 0)
        return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument",
                                  "a volume is named by its volume_id here; "
                                  "/v1/volumes?volume= takes other names");
    result =
        explain
            ? http_volume_explain(reconciler, volume_id, request->listener == HTTP_LISTENER_SOCKET,
                                  &reply->body, &error)
            : http_volume_write(reconciler_reader(reconciler), volume_id, &reply->body, &error);
    if (result == HTTP_VOLUME_UNKNOWN)
        return http_routes_refuse_code(reply, STATUS_NOT_FOUND, "there is no such volume here");
    return finish(request, reply, result, "\n", &error);
}

static int answer_volume(struct reconciler *reconciler, const struct http_request *request,
                         struct http_reply *reply)
{
    return answer_of_volume(reconciler, request, reply, false);
}

static int answer_explain(struct reconciler *reconciler, const struct http_request *request,
                          struct http_reply *reply)
{
    return answer_of_volume(reconciler, request, reply, true);
}

/* The examination takes tens of milliseconds of the loop, so clients over TCP get one that is up to
 * half a minute old. On the unix socket it is always made anew, for a person who has just fixed
 * something. */
static int answer_doctor(struct reconciler *reconciler, const struct http_request *request,
                         struct http_reply *reply)
{
    struct http_examination *last = request->examination;
    const uint64_t now_ns = clock_boottime();
    struct error error = {0};
    int result;

    if (request->listener != HTTP_LISTENER_SOCKET && last->findings.length > 0 &&
        now_ns - last->made_ns < HTTP_EXAMINATION_SECONDS * NSEC_PER_SEC) {
        reply->age_seconds = (now_ns - last->made_ns) / NSEC_PER_SEC;
        result = buffer_append(&reply->body, last->findings.data, last->findings.length);
        return finish(request, reply, result, "\n", &error);
    }
    result = reconciler_examine(reconciler, &reply->body, &error);
    buffer_clear(&last->findings);
    last->made_ns = now_ns;
    if (result == 0 && buffer_append(&last->findings, reply->body.data, reply->body.length) < 0)
        buffer_clear(&last->findings);
    return finish(request, reply, result, "\n", &error);
}

static int answer_metrics(struct reconciler *reconciler, const struct http_request *request,
                          struct http_reply *reply)
{
    struct error error = {0};
    int result = metrics_write(reconciler, request->operations, &reply->body, &error);

    reply->content_type = METRICS_CONTENT_TYPE;
    return finish(request, reply, result, "", &error);
}

static int answer_file(struct http_reply *reply, const char *content_type, const char *text)
{
    reply->content_type = content_type;
    reply->policy = STATUS_PAGE_POLICY;
    return buffer_append_text(&reply->body, text);
}

static int answer_page(struct reconciler *reconciler, const struct http_request *request,
                       struct http_reply *reply)
{
    (void)reconciler;
    if (strcmp(request->path, "/status.css") == 0)
        return answer_file(reply, "text/css; charset=utf-8", status_css);
    if (strcmp(request->path, "/status.js") == 0)
        return answer_file(reply, "text/javascript; charset=utf-8", status_js);
    return answer_file(reply, "text/html; charset=utf-8", status_html);
}

struct route {
    const char *path;   /* one component may be "*" */
    const char *method; /* GET includes HEAD */
    bool socket_only;
    bool takes_arguments;
    int (*answer)(struct reconciler *reconciler, const struct http_request *request,
                  struct http_reply *reply);
    http_asked_read *read; /* used instead of `answer`: the reconciler answers later */
};

static const struct route routes[] = {
    {"/", "GET", false, false, answer_page, NULL},
    {"/status.css", "GET", false, false, answer_page, NULL},
    {"/status.js", "GET", false, false, answer_page, NULL},
    {"/healthz", "GET", false, false, answer_healthz, NULL},
    {"/readyz", "GET", false, false, answer_readyz, NULL},
    {"/metrics", "GET", false, false, answer_metrics, NULL},
    {"/v1/status", "GET", false, false, answer_status, NULL},
    {"/v1/volumes", "GET", false, true, answer_rows, NULL},
    {"/v1/volumes/*", "GET", false, false, answer_volume, NULL},
    {"/v1/volumes/*/explain", "GET", false, false, answer_explain, NULL},
    {"/v1/sandboxes", "GET", false, true, answer_rows, NULL},
    {"/v1/devices", "GET", false, true, answer_rows, NULL},
    {"/v1/layers", "GET", false, true, answer_rows, NULL},
    {"/v1/mappings", "GET", false, true, answer_rows, NULL},
    {"/v1/resizes", "GET", false, true, answer_rows, NULL},
    {"/v1/cleanups", "GET", false, true, answer_rows, NULL},
    {"/v1/journal", "GET", false, true, answer_rows, NULL},
    {"/v1/drives", "GET", false, true, answer_rows, NULL},
    {"/v1/doctor", "GET", false, false, answer_doctor, NULL},
    {"/v1/resync", "POST", true, false, answer_resync, NULL},
    {"/v1/gc", "POST", true, true, answer_gc, NULL},
    {"/v1/cleanups/*/restore", "POST", true, false, answer_restore, NULL},
    {"/v1/volumes/*/resize", "POST", true, false, NULL, http_asked_volume_resize},
    {"/v1/volumes/*/stats", "GET", true, false, NULL, http_asked_volume_stats},
    {"/v1/drives", "POST", true, false, NULL, http_asked_drive_attach},
    {"/v1/drives/*/detach", "POST", true, false, NULL, http_asked_drive_detach},
    {"/v1/drives/*/limits", "POST", true, false, NULL, http_asked_drive_limits},
    {"/direct-volume/stats", "GET", true, true, NULL, http_asked_shim_stats},
    {"/direct-volume/stats/*", "GET", true, false, NULL, http_asked_shim_stats},
    {"/direct-volume/resize", "POST", true, false, NULL, http_asked_shim_resize},
    {"/fs-stats", "PUT", true, false, NULL, http_asked_fs_stats},
    {"/fs-resize", "PUT", true, false, NULL, http_asked_fs_resize},
};

static bool is_path_of(const char *pattern, const char *path)
{
    const char *star = strchr(pattern, '*');
    size_t before = star ? (size_t)(star - pattern) : 0, component;

    if (!star || strncmp(pattern, path, before) != 0)
        return strcmp(pattern, path) == 0;
    component = strcspn(path + before, "/");
    return component && strcmp(star + 1, path + before + component) == 0;
}

/* Whether metrics.listen serves it, too. */
static bool is_for_monitoring(const struct route *route)
{
    return route->answer == answer_metrics || route->answer == answer_healthz ||
           route->answer == answer_readyz;
}

static bool is_served_on(const struct route *route, enum http_listener listener)
{
    return listener == HTTP_LISTENER_SOCKET ||
           (listener == HTTP_LISTENER_PAGES && !route->socket_only) ||
           (listener == HTTP_LISTENER_METRICS && is_for_monitoring(route));
}

static bool method_fits(const char *method, const char *route_method)
{
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    return strcmp(method, route_method) == 0;
}

static bool is_served_at(const struct route *route, const struct http_request *request)
{
    return is_path_of(route->path, request->path) && is_served_on(route, request->listener);
}

/* The one that has the request's method, or else any at its path. */
static const struct route *find_route(const struct http_request *request)
{
    const struct route *other = NULL;

    for (size_t i = 0; i < array_length(routes); i++) {
        if (!is_served_at(&routes[i], request))
            continue;
        if (method_fits(request->method, routes[i].method))
            return &routes[i];
        other = &routes[i];
    }
    return other;
}

/* Where a path has two methods, they are GET and POST. */
static const char *methods_at(const struct http_request *request)
{
    const char *methods = NULL;

    for (size_t i = 0; i < array_length(routes); i++)
        if (is_served_at(&routes[i], request))
            methods = methods                                ? "GET, HEAD, POST"
                      : strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD"
                                                             : routes[i].method;
    return methods;
}

static int read_question(const struct route *route, const struct http_request *request,
                         struct http_reply *reply, struct http_asked *ret_asked)
{
    struct http_question question = {
        .path = request->path, .body = request->body, .body_length = request->body_length};
    struct error error = {0};
    enum status_code code;

    for (unsigned i = 0; i < request->arguments; i++) {
        if (strcmp(request->argument[i].name, "path") != 0 || i > 0)
            return refuse_argument(reply, request->argument[i].name);
        question.argument = request->argument[i].value;
    }
    memset(ret_asked, 0, sizeof(*ret_asked));
    code = route->read(&question, ret_asked, &error);
    if (code == STATUS_OK)
        return HTTP_ROUTES_ASKED;
    http_asked_done(ret_asked);
    return http_routes_refuse_code(reply, code, error.text);
}

bool http_routes_is_costly(const struct http_request *request)
{
    const struct route *route = find_route(request);

    return route && route->answer && method_fits(request->method, route->method) &&
           route->answer != answer_healthz && route->answer != answer_readyz &&
           route->answer != answer_page && route->answer != answer_resync &&
           route->answer != answer_restore;
}

int http_routes_answer(struct reconciler *reconciler, const struct http_request *request,
                       struct http_reply *reply, struct http_asked *ret_asked)
{
    const struct route *route = find_route(request);

    reply->status = 200;
    reply->content_type = "application/json";
    reply->allow = NULL;
    reply->policy = NULL;
    reply->age_seconds = 0;
    if (!route)
        return http_routes_refuse(reply, 404, "NOT_FOUND", "unknown_path",
                                  "there is nothing at this path");
    if (!method_fits(request->method, route->method)) {
        reply->allow = methods_at(request);
        return http_routes_refuse(reply, 405, "UNIMPLEMENTED", "wrong_method",
                                  "this path has another method");
    }
    if (request->arguments > 0 && !route->takes_arguments)
        return refuse_argument(reply, request->argument[0].name);
    return route->answer ? route->answer(reconciler, request, reply)
                         : read_question(route, request, reply, ret_asked);
}
