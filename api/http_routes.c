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
#include "api/message.h"
#include "api/metrics.h"
#include "api/proto/crust_drive_v1.pb-c.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/proto.h"
#include "lib/workers.h"
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

/* A command that failed, with gRPC's code. */
static int http_routes_refuse_code(struct http_reply *reply, enum status_code code,
                                   const char *message)
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

static int answer_healthz(const struct http_request *request, struct http_reply *reply)
{
    (void)request;
    reply->content_type = "text/plain; charset=utf-8";
    return buffer_append_text(&reply->body, "ok\n");
}

static int answer_readyz(const struct http_request *request, struct http_reply *reply)
{
    struct reconciler_health health = {0};

    reconciler_get_health(request->reconciler, &health);
    if (!health.synced)
        return http_routes_refuse(reply, 503, "UNAVAILABLE", "not_synced",
                                  "the first scan is not done yet");
    if (health.degraded)
        return http_routes_refuse(reply, 503, "UNAVAILABLE", "degraded", health.problem);
    return answer_healthz(request, reply);
}

static void append_flag(struct buffer *body, const char *name, bool flag)
{
    json_append_name(body, name);
    buffer_append_text(body, flag ? "true" : "false");
}

static void append_health(struct buffer *body, const struct reconciler_health *health,
                          const struct reconciler_findings *findings)
{
    struct workers_status workers;
    char host[256] = "";

    (void)gethostname(host, sizeof(host) - 1);
    buffer_append_text(body, "{");
    json_append_member(body, "version", CRUST_VERSION);
    append_flag(body, "synced", health->synced);
    append_flag(body, "degraded", health->degraded);
    json_append_member(body, "problem", *health->problem ? health->problem : NULL);
    json_append_member(body, "host", host);
    json_append_member(body, "cleanup_problem",
                       *health->cleanup_problem ? health->cleanup_problem : NULL);
    buffer_append_format(body, ",\"doctor\":{\"errors\":%u,\"warnings\":%u", findings->errors,
                         findings->warnings);
    json_append_member(body, "worst", *findings->worst ? findings->worst : NULL);
    buffer_append_format(body,
                         "},\"database\":\"%s\",\"acts_in_flight\":%u,\"longest_pass_ms\":%" PRIu64,
                         health->in_memory ? "memory" : "file", health->acts_in_flight,
                         health->longest_pass_ns / NSEC_PER_MSEC);
    workers_get_status(&workers);
    buffer_append_format(body,
                         ",\"workers\":{\"ready\":%u,\"busy\":%u,\"hung\":%u,\"waiting\":%u,"
                         "\"answered\":%" PRIu64 ",\"late\":%" PRIu64 ",\"died\":%" PRIu64
                         "},\"sources\":[",
                         workers.ready, workers.busy, workers.dying, workers.waiting,
                         workers.answered, workers.late, workers.died);
    for (unsigned i = 0; i < health->sources; i++) {
        const struct reconciler_source *source = &health->source[i];

        buffer_append_text(body, i ? ",{" : "{");
        json_append_member(body, "name", source->name);
        append_flag(body, "up", source->up);
        buffer_append_format(body, ",\"events\":%" PRIu64 ",\"overflows\":%" PRIu64 "}",
                             source->events, source->overflows);
    }
    buffer_append_text(body, "],\"summary\":");
}

static int answer_status(const struct http_request *request, struct http_reply *reply)
{
    struct reconciler_health health = {0};
    struct error error = {0};
    int result;

    reconciler_get_health(request->reconciler, &health);
    append_health(&reply->body, &health, reconciler_get_findings(request->reconciler));
    result = store_read_summary(reconciler_reader(request->reconciler), &reply->body, &error);
    return finish(request, reply, result, "}\n", &error);
}

static int answer_resync(const struct http_request *request, struct http_reply *reply)
{
    reconciler_resync(request->reconciler);
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

/* The number of whatever follows the prefix in the path. */
static int read_path_id(const struct http_request *request, const char *prefix, int64_t *ret_id)
{
    const char *text = request->path + strlen(prefix);
    char number[24] = "";

    if (strcspn(text, "/") < sizeof(number))
        memcpy(number, text, strcspn(text, "/"));
    return read_number(number, ret_id);
}

/* An argument that a path takes, and where to: one of them. */
struct place {
    const char *name;
    int64_t *number;
    bool *flag;
    const char **text;
};

static bool take_argument(const struct http_argument *argument, const struct place *places)
{
    while (places->name && strcmp(places->name, argument->name) != 0)
        places++;
    if (places->text)
        *places->text = argument->value;
    return places->text || (places->number && read_number(argument->value, places->number) == 0) ||
           (places->flag && read_flag(argument->value, places->flag) == 0);
}

/* The places end with a name that is NULL. NULL, or the first argument that is refused. */
static const char *take_arguments(const struct http_request *request, const struct place *places)
{
    for (unsigned i = 0; i < request->arguments; i++)
        if (!take_argument(&request->argument[i], places))
            return request->argument[i].name;
    return NULL;
}

static bool is_history(enum store_view view)
{
    return view == STORE_VIEW_RESIZES || view == STORE_VIEW_CLEANUPS ||
           view == STORE_VIEW_JOURNAL || view == STORE_VIEW_DRIVES;
}

static int answer_rows(const struct http_request *request, struct http_reply *reply)
{
    struct store_query query = {.view = STORE_VIEWS};
    const char *refused = take_arguments(
        request, (const struct place[]){{"id", .number = &query.id},
                                        {"after", .number = &query.after},
                                        {"last", .number = &query.last},
                                        {"live", .flag = &query.live},
                                        {"not_resizable", .flag = &query.not_resizable},
                                        {"volume", .text = &query.volume},
                                        {.name = NULL}});
    struct error error = {0};
    int result;

    query.view = store_view_from_name(request->path + strlen("/v1/"));
    if (query.view == STORE_VIEWS)
        return http_routes_refuse(reply, 500, "INTERNAL", "store_failed", "no such view");
    if (refused)
        return refuse_argument(reply, refused);
    if (is_history(query.view) && (query.last == 0 || query.last > HISTORY_ROWS))
        query.last = HISTORY_ROWS;
    result = store_read_json(reconciler_reader(request->reconciler), &query, &reply->body, &error);
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

static int answer_gc(const struct http_request *request, struct http_reply *reply)
{
    struct error error = {0};
    bool dry_run = false;
    int64_t volume_id = 0;
    const char *refused =
        take_arguments(request, (const struct place[]){{"dry_run", .flag = &dry_run},
                                                       {"volume", .number = &volume_id},
                                                       {.name = NULL}});
    enum status_code code;

    if (refused)
        return refuse_argument(reply, refused);
    if (read_gc_body(request, &dry_run) < 0)
        return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument",
                                  "the body: only {\"dry_run\":true} is understood here");
    code = reconciler_gc(request->reconciler, dry_run, volume_id, &reply->body, &error);
    return code == STATUS_OK ? buffer_append_text(&reply->body, "\n")
                             : http_routes_refuse_code(reply, code, error.text);
}

/* /v1/cleanups/ID/restore */
static int answer_restore(const struct http_request *request, struct http_reply *reply)
{
    struct error error = {0};
    int64_t cleanup_id;
    enum status_code code;

    if (read_path_id(request, "/v1/cleanups/", &cleanup_id) < 0)
        return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument",
                                  "a cleanup is named by its number");
    code = reconciler_restore(request->reconciler, cleanup_id, &error);
    return code == STATUS_OK ? buffer_append_text(&reply->body, "{}\n")
                             : http_routes_refuse_code(reply, code, error.text);
}

/* "/v1/volumes/ID" and "/v1/volumes/ID/explain" */
static int answer_volume(const struct http_request *request, struct http_reply *reply)
{
    struct error error = {0};
    int64_t volume_id;
    int result;

    if (read_path_id(request, "/v1/volumes/", &volume_id) < 0 || volume_id == 0)
        return http_routes_refuse(reply, 400, "INVALID_ARGUMENT", "bad_argument",
                                  "a volume is named by its volume_id here; "
                                  "/v1/volumes?volume= takes other names");
    if (strchr(request->path + strlen("/v1/volumes/"), '/'))
        result =
            http_volume_explain(request->reconciler, volume_id,
                                request->listener == HTTP_LISTENER_SOCKET, &reply->body, &error);
    else
        result = http_volume_write(reconciler_reader(request->reconciler), volume_id, &reply->body,
                                   &error);
    if (result == HTTP_VOLUME_UNKNOWN)
        return http_routes_refuse_code(reply, STATUS_NOT_FOUND, "there is no such volume here");
    return finish(request, reply, result, "\n", &error);
}

/* The examination takes tens of milliseconds of the loop, so clients over TCP get one that is up to
 * half a minute old. On the unix socket it is always made anew, for a person who has just fixed
 * something. */
static int answer_doctor(const struct http_request *request, struct http_reply *reply)
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
    result = reconciler_examine(request->reconciler, &reply->body, &error);
    buffer_clear(&last->findings);
    last->made_ns = now_ns;
    if (result == 0 && buffer_append(&last->findings, reply->body.data, reply->body.length) < 0)
        buffer_clear(&last->findings);
    return finish(request, reply, result, "\n", &error);
}

static int answer_metrics(const struct http_request *request, struct http_reply *reply)
{
    struct error error = {0};
    int result = metrics_write(request->reconciler, request->operations, &reply->body, &error);

    reply->content_type = METRICS_CONTENT_TYPE;
    return finish(request, reply, result, "", &error);
}

static int answer_page(const struct http_request *request, struct http_reply *reply)
{
    const bool is_style = strcmp(request->path, "/status.css") == 0;
    const bool is_script = strcmp(request->path, "/status.js") == 0;

    reply->content_type = is_style    ? "text/css; charset=utf-8"
                          : is_script ? "text/javascript; charset=utf-8"
                                      : "text/html; charset=utf-8";
    reply->policy = STATUS_PAGE_POLICY;
    return buffer_append_text(&reply->body, is_style    ? status_css
                                            : is_script ? status_js
                                                        : status_html);
}

/* How a path is answered. */
enum route_kind {
    PROBE, /* at once, and on metrics.listen, too */
    PAGE,  /* at once */
    READ,  /* reads the database or examines the node, and so costs the loop some time */
    WRITE, /* at once; on the unix socket only, as all that follow */
    COSTLY_WRITE,
    VOLUME_CALL, /* answered later: how http_asked.h has it */
    DRIVE_CALL,  /* the same: by the method of crust.drive.v1 that has this request */
};

struct route {
    const char *path;   /* one component may be "*" */
    const char *method; /* GET includes HEAD */
    enum route_kind kind;
    bool takes_arguments;
    int (*answer)(const struct http_request *request, struct http_reply *reply); /* NULL: a call */
    enum http_dialect dialect;
    const ProtobufCMessageDescriptor *request;
    const char *name; /* of a call, in metrics */
};

static const struct route routes[] = {
    {"/", "GET", PAGE, false, answer_page, 0, NULL, NULL},
    {"/status.css", "GET", PAGE, false, answer_page, 0, NULL, NULL},
    {"/status.js", "GET", PAGE, false, answer_page, 0, NULL, NULL},
    {"/healthz", "GET", PROBE, false, answer_healthz, 0, NULL, NULL},
    {"/readyz", "GET", PROBE, false, answer_readyz, 0, NULL, NULL},
    {"/metrics", "GET", READ, false, answer_metrics, 0, NULL, NULL},
    {"/v1/status", "GET", READ, false, answer_status, 0, NULL, NULL},
    {"/v1/volumes", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/volumes/*", "GET", READ, false, answer_volume, 0, NULL, NULL},
    {"/v1/volumes/*/explain", "GET", READ, false, answer_volume, 0, NULL, NULL},
    {"/v1/sandboxes", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/devices", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/layers", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/mappings", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/resizes", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/cleanups", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/journal", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/drives", "GET", READ, true, answer_rows, 0, NULL, NULL},
    {"/v1/doctor", "GET", READ, false, answer_doctor, 0, NULL, NULL},
    {"/v1/resync", "POST", WRITE, false, answer_resync, 0, NULL, NULL},
    {"/v1/gc", "POST", COSTLY_WRITE, true, answer_gc, 0, NULL, NULL},
    {"/v1/cleanups/*/restore", "POST", WRITE, false, answer_restore, 0, NULL, NULL},
    {"/v1/volumes/*/resize", "POST", VOLUME_CALL, false, NULL, HTTP_VOLUME_RESIZE, NULL,
     "POST /v1/volumes/ID/resize"},
    {"/v1/volumes/*/stats", "GET", VOLUME_CALL, false, NULL, HTTP_VOLUME_STATS, NULL,
     "GET /v1/volumes/ID/stats"},
    {"/v1/drives", "POST", DRIVE_CALL, false, NULL, 0,
     &crust__drive__v1__attach_drive_request__descriptor, "POST /v1/drives"},
    {"/v1/drives/*/detach", "POST", DRIVE_CALL, false, NULL, 0,
     &crust__drive__v1__detach_drive_request__descriptor, "POST /v1/drives/ID/detach"},
    {"/v1/drives/*/limits", "POST", DRIVE_CALL, false, NULL, 0,
     &crust__drive__v1__update_drive_limits_request__descriptor, "POST /v1/drives/ID/limits"},
    {"/direct-volume/stats", "GET", VOLUME_CALL, true, NULL, HTTP_SHIM_STATS, NULL,
     "GET /direct-volume/stats"},
    {"/direct-volume/stats/*", "GET", VOLUME_CALL, false, NULL, HTTP_SHIM_STATS, NULL,
     "GET /direct-volume/stats"},
    {"/direct-volume/resize", "POST", VOLUME_CALL, false, NULL, HTTP_SHIM_RESIZE, NULL,
     "POST /direct-volume/resize"},
    {"/fs-stats", "PUT", VOLUME_CALL, false, NULL, HTTP_FS_STATS, NULL, "PUT /fs-stats"},
    {"/fs-resize", "PUT", VOLUME_CALL, false, NULL, HTTP_FS_RESIZE, NULL, "PUT /fs-resize"},
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

static bool is_served_on(const struct route *route, enum http_listener listener)
{
    return listener == HTTP_LISTENER_SOCKET ||
           (listener == HTTP_LISTENER_PAGES && route->kind < WRITE) ||
           (listener == HTTP_LISTENER_METRICS &&
            (route->kind == PROBE || route->answer == answer_metrics));
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

static bool is_path_argument(const struct http_request *request)
{
    return strcmp(request->argument[0].name, "path") == 0;
}

bool http_routes_is_costly(const struct http_request *request)
{
    const struct route *route = find_route(request);

    return route && (route->kind == READ || route->kind == COSTLY_WRITE) &&
           method_fits(request->method, route->method);
}

int http_routes_answer(const struct http_request *request, struct http_reply *reply)
{
    const struct route *route = find_route(request);

    reply->status = 200;
    reply->content_type = "application/json";
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
    if (route->answer)
        return route->answer(request, reply);
    if (request->arguments > 0 && (request->arguments > 1 || !is_path_argument(request)))
        return refuse_argument(reply, request->argument[request->arguments - 1].name);
    return HTTP_ROUTES_CALL;
}

/* ---- calls ---- */

static void call_volume(const struct route *route, const struct http_request *request,
                        struct call *call)
{
    const struct http_question question = {request->path,
                                           request->arguments ? request->argument[0].value : NULL,
                                           request->body, request->body_length};
    struct http_asked asked = {0};
    struct error error = {0};
    const enum status_code code = http_asked_read(route->dialect, &question, &asked, &error);

    if (code != STATUS_OK)
        call_fail(call, code, "%s", error.text);
    else if (asked.resizes)
        call_expand(call, &asked.expand);
    else
        call_count(call, &asked.expand.target);
}

/* The same method as gRPC's. */
static void call_drive(const struct route *route, const struct http_request *request,
                       struct call *call)
{
    const char *star = strchr(route->path, '*');
    const char *id = star ? request->path + (star - route->path) : NULL;
    const struct message_source source = {
        .id = id,
        .id_length = id ? strcspn(id, "/") : 0,
        .is_optional = route->request == &crust__drive__v1__detach_drive_request__descriptor,
        .body = request->body,
        .body_length = request->body_length};
    const struct call_method *method = crust_drives_methods;
    ProtobufCMessage *message = NULL;
    struct error error = {0};
    const enum status_code code = message_read_json(route->request, &source, &message, &error);

    while (method->request != route->request)
        method++;
    if (code == STATUS_OK)
        method->answer(call, message);
    else
        call_fail(call, code, "%s", error.text);
    (void)proto_free(message);
}

void http_routes_call(const struct http_request *request, struct call *call)
{
    const struct route *route = find_route(request);

    call->method = route->name;
    if (route->kind == VOLUME_CALL)
        call_volume(route, request, call);
    else
        call_drive(route, request, call);
}

/* A drive is answered as it is, without the response around it. */
int http_routes_write(struct http_reply *reply, const struct call *call,
                      const struct call_answer *answer)
{
    const ProtobufCMessage *message = answer->reply;

    if (answer->code != STATUS_OK)
        return http_routes_refuse_code(reply, answer->code, answer->text);
    reply->status = 200;
    reply->content_type = "application/json";
    if (message->descriptor == &crust__drive__v1__attach_drive_response__descriptor)
        message =
            &((const Crust__Drive__V1__AttachDriveResponse *)(const void *)message)->drive->base;
    (void)message_append_json(&reply->body, message);
    if (call->is_owed && buffer_error(&reply->body) == 0) {
        reply->body.length--;
        buffer_append_text(&reply->body, ",\"owed\":true}");
    }
    return buffer_append_text(&reply->body, "\n");
}
