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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/proto/crust_drive_v1.pb-c.h"
#include "api/server.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/proto.h"
#include "lib/workers.h"
#include "model/volume.h"
#include "store/read.h"

enum {
    HISTORY_ROWS = 10000,
    JOURNAL_LINES = 8,
    ROW_BYTES = 1024 * 1024,
    ROWS_BYTES = 8 * ROW_BYTES,
};

int http_routes_refuse(struct http_reply *reply, enum status_code code, const char *reason,
                       const char *message)
{
    const char *usual = code == STATUS_INVALID_ARGUMENT     ? "bad_argument"
                        : code == STATUS_NOT_FOUND          ? "not_found"
                        : code == STATUS_ALREADY_EXISTS     ? "taken"
                        : code == STATUS_UNAVAILABLE        ? "not_now"
                        : code == STATUS_DEADLINE_EXCEEDED  ? "not_in_time"
                        : code == STATUS_RESOURCE_EXHAUSTED ? "too_many"
                                                            : "refused";

    buffer_clear(&reply->body);
    reply->status = status_of_http(code);
    reply->content_type = "application/json";
    buffer_append_text(&reply->body, "{");
    json_append_member(&reply->body, "code", status_name(code));
    json_append_member(&reply->body, "reason", reason ? reason : usual);
    json_append_member(&reply->body, "message", message);
    return buffer_append_text(&reply->body, "}\n");
}

/* The argument is not known at the path, or its value is not valid. */
static int refuse_argument(struct http_reply *reply, const char *name)
{
    struct error error;

    (void)error_set(&error, -EINVAL, "argument \"%s\" is not known here, or its value is not valid",
                    name);
    return http_routes_refuse(reply, STATUS_INVALID_ARGUMENT, NULL, error.text);
}

/* The limit in the text is that of the listener, because no other answer has a part of it. */
static int refuse_size(const struct http_request *request, struct http_reply *reply)
{
    struct error error;

    if (request->is_crowded)
        return http_routes_refuse(reply, STATUS_UNAVAILABLE, NULL,
                                  "answers that their clients have not read yet take the "
                                  "memory for this one: try again later");
    (void)error_set(&error, -EMSGSIZE,
                    "the answer has more than %zu MiB: ask for fewer rows (?last=, ?after=, "
                    "?live=1)",
                    reply->body.limit >> 20);
    return http_routes_refuse(reply, STATUS_RESOURCE_EXHAUSTED, "too_many_rows", error.text);
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
        return http_routes_refuse(reply, STATUS_INVALID_ARGUMENT, NULL, error->text);
    return http_routes_refuse(reply, STATUS_INTERNAL, "store_failed", error->text);
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
        return http_routes_refuse(reply, STATUS_UNAVAILABLE, "not_synced",
                                  "the first scan is not done yet");
    if (health.degraded)
        return http_routes_refuse(reply, STATUS_UNAVAILABLE, "degraded", health.problem);
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

/* The places end with a name that is NULL. NULL, or the first argument that is refused. */
static const char *take_arguments(const struct http_request *request, const struct place *places)
{
    for (unsigned i = 0; i < request->arguments; i++) {
        const char *name = request->argument[i].name, *value = request->argument[i].value;
        const struct place *place = places;
        bool is_taken = false, is_true;

        while (place->name && strcmp(place->name, name) != 0)
            place++;
        if (place->text) {
            *place->text = value;
            is_taken = true;
        } else if (place->number) {
            is_taken = read_number(value, place->number) == 0;
        } else if (place->flag) {
            is_true = strcmp(value, "1") == 0 || strcmp(value, "true") == 0;
            is_taken = is_true || strcmp(value, "0") == 0 || strcmp(value, "false") == 0;
            *place->flag = is_true;
        }
        if (!is_taken)
            return name;
    }
    return NULL;
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
        return http_routes_refuse(reply, STATUS_INTERNAL, "store_failed", "no such view");
    if (refused)
        return refuse_argument(reply, refused);
    if ((query.view == STORE_VIEW_RESIZES || query.view == STORE_VIEW_CLEANUPS ||
         query.view == STORE_VIEW_JOURNAL || query.view == STORE_VIEW_DRIVES) &&
        (query.last == 0 || query.last > HISTORY_ROWS))
        query.last = HISTORY_ROWS;
    result = store_read_json(reconciler_reader(request->reconciler), &query, &reply->body, &error);
    return finish(request, reply, result, "\n", &error);
}

/* The body is {"dry_run":true} or empty. Anything else is refused, so that a request that was not
 * understood removes nothing. */
static int answer_gc(const struct http_request *request, struct http_reply *reply)
{
    cleanup(json_deletep) cJSON *object = NULL;
    struct error error = {0};
    bool dry_run = false, is_understood = true;
    int64_t volume_id = 0;
    const char *refused =
        take_arguments(request, (const struct place[]){{"dry_run", .flag = &dry_run},
                                                       {"volume", .number = &volume_id},
                                                       {.name = NULL}});
    const cJSON *member;
    enum status_code code;

    if (refused)
        return refuse_argument(reply, refused);
    if (request->body_length > 0)
        is_understood = json_parse(request->body, request->body_length, JSON_LIMITS_HTTP, &object,
                                   &error) == 0 &&
                        cJSON_IsObject(object);
    cJSON_ArrayForEach(member, object)
    {
        is_understood &= member == json_member(object, "dry_run") && cJSON_IsBool(member);
        dry_run = cJSON_IsTrue(member);
    }
    if (!is_understood)
        return http_routes_refuse(reply, STATUS_INVALID_ARGUMENT, NULL,
                                  "the body: only {\"dry_run\":true} is understood here");
    code = reconciler_gc(request->reconciler, dry_run, volume_id, &reply->body, &error);
    return code == STATUS_OK ? buffer_append_text(&reply->body, "\n")
                             : http_routes_refuse(reply, code, NULL, error.text);
}

/* /v1/cleanups/ID/restore */
static int answer_restore(const struct http_request *request, struct http_reply *reply)
{
    struct error error = {0};
    int64_t cleanup_id;
    enum status_code code;

    if (read_path_id(request, "/v1/cleanups/", &cleanup_id) < 0)
        return http_routes_refuse(reply, STATUS_INVALID_ARGUMENT, NULL,
                                  "a cleanup is named by its number");
    code = reconciler_restore(request->reconciler, cleanup_id, &error);
    return code == STATUS_OK ? buffer_append_text(&reply->body, "{}\n")
                             : http_routes_refuse(reply, code, NULL, error.text);
}

/* ---- one volume, and all that explains it ---- */

/* Appends the rows of a view: all of them as an array, else the only one, or null. 0 or -errno. */
static int append_rows(const struct http_request *request, const struct store_query *query,
                       bool is_list, struct buffer *json, struct error *error)
{
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(ROW_BYTES);
    const int r = store_read_json(reconciler_reader(request->reconciler), query, &rows, error);

    if (r < 0)
        return r;
    if (is_list)
        return buffer_append(json, rows.data, rows.length);
    return rows.length <= strlen("[]") ? buffer_append_text(json, "null")
                                       : buffer_append(json, rows.data + 1, rows.length - 2);
}

/* {"volume_id","target_path","state","reason","resizable","resizable_reason", the members of
 * advice_append(), "volume":{…},"mapping","sandbox","resize","cleanup":{…}|null,"layers":[…],
 * "journal":[…],"judged":[…]|null}. Whether its metadata is stale is judged now, on the unix socket
 * only, because that costs a look at the node; null where nothing is looked for, or not yet. All
 * rows are of the same moment, because they are read within one iteration of the loop. */
static int explain_volume(const struct http_request *request, int64_t volume_id,
                          const struct buffer *volume, struct buffer *json, struct error *error)
{
    static const struct {
        const char *name;
        enum store_view view;
        int64_t last;
        bool is_list;
    } parts[] = {
        {"mapping", STORE_VIEW_MAPPINGS, 1, false},
        {"sandbox", STORE_VIEW_SANDBOXES, 1, false},
        {"resize", STORE_VIEW_RESIZES, 1, false},
        {"cleanup", STORE_VIEW_CLEANUPS, 1, false},
        {"layers", STORE_VIEW_LAYERS, 0, true},
        {"journal", STORE_VIEW_JOURNAL, JOURNAL_LINES, true},
    };
    static const char *const names[] = {"target_path", "state", "reason", "resizable",
                                        "resizable_reason"};
    cleanup(buffer_done) struct buffer rows = BUFFER_INIT(ROWS_BYTES);
    cleanup(buffer_done) struct buffer judged = BUFFER_INIT(ROW_BYTES);
    cleanup(json_deletep) cJSON *parsed = NULL;
    struct reconciler_modes modes;
    char number[24];
    int r = 0;

    (void)snprintf(number, sizeof(number), "%" PRId64, volume_id);
    buffer_append_text(&rows, "{\"volume\":");
    buffer_append(&rows, volume->data, volume->length);
    for (size_t i = 0; r == 0 && i < array_length(parts); i++) {
        const struct store_query query = {
            .view = parts[i].view, .volume = number, .last = parts[i].last, .live = true};

        json_append_name(&rows, parts[i].name);
        r = append_rows(request, &query, parts[i].is_list, &rows, error);
    }
    if (r == 0 && request->listener == HTTP_LISTENER_SOCKET) {
        const enum status_code code =
            reconciler_gc(request->reconciler, true, volume_id, &judged, NULL);

        json_append_name(&rows, "judged");
        buffer_append_text(&rows, code == STATUS_OK ? buffer_text(&judged) : "null");
    }
    if (r == 0)
        r = buffer_append_text(&rows, "}");
    if (r == 0)
        r = json_parse(rows.data, rows.length, (struct json_limits){ROWS_BYTES, 12, 0}, &parsed,
                       error);
    if (r < 0)
        return r;
    reconciler_get_modes(request->reconciler, &modes);
    buffer_append_format(json, "{\"volume_id\":%" PRId64, volume_id);
    for (size_t i = 0; i < array_length(names); i++)
        json_append_member(json, names[i], json_string(json_member(parsed, "volume"), names[i]));
    (void)advice_append(parsed, modes.resize, json);
    buffer_append_text(json, ",");
    return buffer_append(json, rows.data + 1, rows.length - 1);
}

/* "/v1/volumes/ID" and "/v1/volumes/ID/explain" */
static int answer_volume(const struct http_request *request, struct http_reply *reply)
{
    cleanup(buffer_done) struct buffer volume = BUFFER_INIT(ROW_BYTES);
    struct store_query query = {.view = STORE_VIEW_VOLUMES};
    struct error error = {0};
    int result;

    if (read_path_id(request, "/v1/volumes/", &query.id) < 0 || query.id == 0)
        return http_routes_refuse(reply, STATUS_INVALID_ARGUMENT, NULL,
                                  "a volume is named by its volume_id here; "
                                  "/v1/volumes?volume= takes other names");
    result = append_rows(request, &query, false, &volume, &error);
    if (result == 0 && strcmp(buffer_text(&volume), "null") == 0)
        return http_routes_refuse(reply, STATUS_NOT_FOUND, NULL, "there is no such volume here");
    if (result == 0 && strchr(request->path + strlen("/v1/volumes/"), '/'))
        result = explain_volume(request, query.id, &volume, &reply->body, &error);
    else if (result == 0)
        result = buffer_append(&reply->body, volume.data, volume.length);
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
    VOLUME_CALL, /* answered later: http_asked_read() */
    DRIVE_CALL,  /* the same: by the method of crust.drive.v1 that has this request */
};

struct route {
    const char *path;   /* one component may be "*" */
    const char *method; /* GET includes HEAD */
    enum route_kind kind;
    int (*answer)(const struct http_request *request, struct http_reply *reply); /* NULL: a call */
    enum http_dialect dialect;
    const ProtobufCMessageDescriptor *request;
    const char *name; /* of a call, in metrics */
    bool takes_arguments;
};

static const struct route routes[] = {
    {"/", "GET", PAGE, .answer = answer_page},
    {"/status.css", "GET", PAGE, .answer = answer_page},
    {"/status.js", "GET", PAGE, .answer = answer_page},
    {"/healthz", "GET", PROBE, .answer = answer_healthz},
    {"/readyz", "GET", PROBE, .answer = answer_readyz},
    {"/metrics", "GET", READ, .answer = answer_metrics},
    {"/v1/status", "GET", READ, .answer = answer_status},
    {"/v1/volumes", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/volumes/*", "GET", READ, .answer = answer_volume},
    {"/v1/volumes/*/explain", "GET", READ, .answer = answer_volume},
    {"/v1/sandboxes", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/devices", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/layers", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/mappings", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/resizes", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/cleanups", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/journal", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/drives", "GET", READ, .answer = answer_rows, .takes_arguments = true},
    {"/v1/doctor", "GET", READ, .answer = answer_doctor},
    {"/v1/resync", "POST", WRITE, .answer = answer_resync},
    {"/v1/gc", "POST", COSTLY_WRITE, .answer = answer_gc, .takes_arguments = true},
    {"/v1/cleanups/*/restore", "POST", WRITE, .answer = answer_restore},
    {"/v1/volumes/*/resize", "POST", VOLUME_CALL, .dialect = HTTP_VOLUME_RESIZE,
     .name = "POST /v1/volumes/ID/resize"},
    {"/v1/volumes/*/stats", "GET", VOLUME_CALL, .dialect = HTTP_VOLUME_STATS,
     .name = "GET /v1/volumes/ID/stats"},
    {"/v1/drives", "POST", DRIVE_CALL,
     .request = &crust__drive__v1__attach_drive_request__descriptor, .name = "POST /v1/drives"},
    {"/v1/drives/*/detach", "POST", DRIVE_CALL,
     .request = &crust__drive__v1__detach_drive_request__descriptor,
     .name = "POST /v1/drives/ID/detach"},
    {"/v1/drives/*/limits", "POST", DRIVE_CALL,
     .request = &crust__drive__v1__update_drive_limits_request__descriptor,
     .name = "POST /v1/drives/ID/limits"},
    {"/direct-volume/stats", "GET", VOLUME_CALL, .dialect = HTTP_SHIM_STATS,
     .takes_arguments = true, .name = "GET /direct-volume/stats"},
    {"/direct-volume/stats/*", "GET", VOLUME_CALL, .dialect = HTTP_SHIM_STATS,
     .name = "GET /direct-volume/stats"},
    {"/direct-volume/resize", "POST", VOLUME_CALL, .dialect = HTTP_SHIM_RESIZE,
     .name = "POST /direct-volume/resize"},
    {"/fs-stats", "PUT", VOLUME_CALL, .dialect = HTTP_FS_STATS, .name = "PUT /fs-stats"},
    {"/fs-resize", "PUT", VOLUME_CALL, .dialect = HTTP_FS_RESIZE, .name = "PUT /fs-resize"},
};

static bool method_fits(const char *method, const char *route_method)
{
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    return strcmp(method, route_method) == 0;
}

static bool is_served_at(const struct route *route, const struct http_request *request)
{
    const char *star = strchr(route->path, '*');
    const size_t before = star ? (size_t)(star - route->path) : strlen(route->path);
    const size_t component = star && strncmp(route->path, request->path, before) == 0
                                 ? strcspn(request->path + before, "/")
                                 : 0;

    if (star ? !component || strcmp(star + 1, request->path + before + component) != 0
             : strcmp(route->path, request->path) != 0)
        return false;
    return request->listener == HTTP_LISTENER_SOCKET ||
           (request->listener == HTTP_LISTENER_PAGES && route->kind < WRITE) ||
           (request->listener == HTTP_LISTENER_METRICS &&
            (route->kind == PROBE || route->answer == answer_metrics));
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
        return http_routes_refuse(reply, STATUS_NOT_FOUND, "unknown_path",
                                  "there is nothing at this path");
    if (!method_fits(request->method, route->method)) {
        int result = http_routes_refuse(reply, STATUS_UNIMPLEMENTED, "wrong_method",
                                        "this path has another method");

        reply->allow = methods_at(request);
        reply->status = 405;
        return result;
    }
    if (request->arguments > 0 && !route->takes_arguments)
        return refuse_argument(reply, request->argument[0].name);
    if (route->answer)
        return route->answer(request, reply);
    if (request->arguments > 1 ||
        (request->arguments == 1 && strcmp(request->argument[0].name, "path") != 0))
        return refuse_argument(reply, request->argument[request->arguments - 1].name);
    return HTTP_ROUTES_CALL;
}

/* ---- calls ---- */

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
    struct http_asked asked = {0};
    struct error error = {0};
    enum status_code code;

    call->method = route->name;
    if (route->kind == DRIVE_CALL) {
        call_drive(route, request, call);
        return;
    }
    code = http_asked_read(route->dialect, request, &asked, &error);
    if (code != STATUS_OK)
        call_fail(call, code, "%s", error.text);
    else if (asked.resizes)
        call_expand(call, &asked.expand);
    else
        call_count(call, &asked.expand.target);
}

/* A drive is answered as it is, without the response around it. */
int http_routes_write(struct http_reply *reply, const struct call *call,
                      const struct call_answer *answer)
{
    const ProtobufCMessage *message = answer->reply;

    if (answer->code != STATUS_OK)
        return http_routes_refuse(reply, answer->code, NULL, answer->text);
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
