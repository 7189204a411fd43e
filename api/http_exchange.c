/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange.c - one HTTP request, from its head to the last byte of its answer.
 *
 * An answer is complete before its first byte is sent: it shows one state of the database, and its
 * status is true. A client that reads slowly keeps memory, of which its listener has a share.
 *
 * An answer that reads the database or examines the node takes milliseconds of the only loop. One
 * of them is built in a pass, so a resize waits for no more than that. The others wait, the unix
 * socket's before those of TCP. Each TCP listener rests for seven times as long as an answer took:
 * both together take at most a quarter of the loop's time.
 *
 * A call that the reconciler answers later suspends its connection, too. At most WAITING may be
 * suspended for one, which leaves the other connections to clients that only read. microhttpd
 * requires that none is suspended when it stops.
 */
#include "api/http_exchange.h"

#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/list.h"

enum {
    WAITING = 16, /* of a listener's connections, for answers of the reconciler */
    BODY_BYTES = 64 * 1024,
    LARGE_ANSWER_BYTES = 1024 * 1024,
    REFUSAL_BYTES = 4 * 1024, /* always reserved for an error */
    REST_FACTOR = 7,
};

/* The limits of answers in memory: 64 MiB in total. */
static const size_t answer_bytes[HTTP_LISTENERS] = {
    [HTTP_LISTENER_SOCKET] = 40 * 1024 * 1024,
    [HTTP_LISTENER_PAGES] = 16 * 1024 * 1024,
    [HTTP_LISTENER_METRICS] = 8 * 1024 * 1024,
};

/* ---- answers ---- */

/* Marks a request that is refused because its path contains a NUL. */
static struct exchange path_with_nul;

/* The bytes of one answer, until microhttpd has sent them. */
struct answer {
    struct listener *listener;
    struct buffer body;
};

/* glibc would keep the memory of a large answer for the next one; this returns it to the kernel. */
static void free_answer(void *data)
{
    struct answer *answer = data;
    const bool large = answer->body.length >= LARGE_ANSWER_BYTES;

    answer->listener->answer_bytes -= answer->body.length;
    buffer_done(&answer->body);
    free(answer);
    if (large)
        (void)malloc_trim(0);
}

/* Takes over the body. NULL if there is no memory. */
static struct MHD_Response *make_response(struct listener *listener, struct buffer *body)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    struct MHD_Response *response;

    if (!answer)
        return NULL;
    *answer = (struct answer){.listener = listener, .body = *body};
    *body = (struct buffer){0};
    listener->answer_bytes += answer->body.length;
    response = MHD_create_response_from_buffer_with_free_callback_cls(
        answer->body.length, answer->body.data, free_answer, answer);
    if (!response)
        free_answer(answer);
    return response;
}

static bool add_age(struct MHD_Response *response, uint64_t seconds)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, seconds);
    return !seconds || MHD_add_response_header(response, "Age", text) == MHD_YES;
}

/* Takes over the reply's body. result: below 0 if there was no memory to write it. */
static void set_answer(struct exchange *exchange, struct http_reply *reply, int result)
{
    struct MHD_Response *response =
        result < 0 ? NULL : make_response(exchange->listener, &reply->body);

    buffer_done(&reply->body);
    exchange->is_answered = true;
    exchange->status = reply->status;
    if (!response)
        return;
    if (MHD_add_response_header(response, "Content-Type", reply->content_type) == MHD_YES &&
        MHD_add_response_header(response, "Cache-Control", "no-store") == MHD_YES &&
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES &&
        (!reply->policy ||
         MHD_add_response_header(response, "Content-Security-Policy", reply->policy) == MHD_YES) &&
        (!reply->allow || MHD_add_response_header(response, "Allow", reply->allow) == MHD_YES) &&
        add_age(response, reply->age_seconds))
        exchange->response = response;
    else
        MHD_destroy_response(response);
}

static enum MHD_Result send_answer(const struct exchange *exchange)
{
    return exchange->response
               ? MHD_queue_response(exchange->connection, exchange->status, exchange->response)
               : MHD_NO;
}

static void set_refusal(struct exchange *exchange, unsigned status, const char *code,
                        const char *reason, const char *message)
{
    struct http_reply reply = {.body = BUFFER_INIT(REFUSAL_BYTES)};

    set_answer(exchange, &reply, http_routes_refuse(&reply, status, code, reason, message));
}

/* Before there is an exchange. */
static enum MHD_Result refuse(struct listener *listener, struct MHD_Connection *connection,
                              unsigned status, const char *code, const char *reason,
                              const char *message)
{
    struct exchange exchange = {.listener = listener, .connection = connection};
    enum MHD_Result result;

    set_refusal(&exchange, status, code, reason, message);
    result = send_answer(&exchange);
    MHD_destroy_response(exchange.response);
    return result;
}

struct argument_collector {
    struct http_request *request;
    bool refused;
};

static bool is_given(const struct http_request *request, const char *name)
{
    for (unsigned i = 0; i < request->arguments; i++)
        if (strcmp(request->argument[i].name, name) == 0)
            return true;
    return false;
}

/* A value that contains a NUL would end early, and of two values for one name only one would count.
 * Such a request does not mean what it seems to, so it is refused. */
static enum MHD_Result collect_argument(void *data, enum MHD_ValueKind kind, const char *name,
                                        size_t name_length, const char *value, size_t value_length)
{
    struct argument_collector *collector = data;
    struct http_request *request = collector->request;

    (void)kind;
    collector->refused = request->arguments == HTTP_ARGUMENTS || !value ||
                         strlen(name) != name_length || strlen(value) != value_length ||
                         is_given(request, name);
    if (collector->refused)
        return MHD_NO;
    request->argument[request->arguments++] = (struct http_argument){name, value};
    return MHD_YES;
}

static size_t answer_limit(const struct listener *listener)
{
    const size_t limit = answer_bytes[listener->kind];

    if (listener->answer_bytes + REFUSAL_BYTES > limit)
        return REFUSAL_BYTES;
    return limit - listener->answer_bytes;
}

/* ---- calls that are answered later ---- */

static void stop_waiting(struct exchange *exchange)
{
    LL_DELETE(exchange->listener->waiting, exchange);
    exchange->listener->waiting_count--;
    exchange->call = NULL;
}

static void resume(struct exchange *exchange)
{
    MHD_resume_connection(exchange->connection);
    http_listener_wake(exchange->listener);
}

static void refuse_later(struct exchange *exchange, const char *message)
{
    set_refusal(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "UNAVAILABLE", "not_now", message);
    resume(exchange);
}

static void on_called(void *userdata, struct http_reply *reply)
{
    struct exchange *exchange = userdata;

    stop_waiting(exchange);
    set_answer(exchange, reply, 0);
    resume(exchange);
}

/* microhttpd does not watch a suspended connection, so clients that have hung up are found here. */
static void end_abandoned(struct listener *listener)
{
    struct exchange *next;

    for (struct exchange *one = listener->waiting; one; one = next) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(one->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct pollfd poll_fd = {.fd = info ? info->connect_fd : -1};

        next = one->next;
        if (poll(&poll_fd, 1, 0) <= 0)
            continue;
        (void)http_call_cancel(one->call);
        stop_waiting(one);
        refuse_later(one, "the client has gone");
    }
}

/* The exchange is answered, or waits for the reconciler. */
static void call_reconciler(struct exchange *exchange, const struct http_asked *asked,
                            struct http_reply *reply)
{
    struct listener *listener = exchange->listener;
    const struct http_call_options options = {listener->server->loop, listener->server->reconciler,
                                              listener->server->operations};
    int result;

    if (listener->waiting_count >= WAITING)
        end_abandoned(listener);
    result = listener->waiting_count >= WAITING
                 ? http_routes_refuse_code(reply, STATUS_RESOURCE_EXHAUSTED,
                                           "too many calls wait for an answer: try again later")
                 : http_call_begin(&options, asked, on_called, exchange, reply, &exchange->call);
    if (result != HTTP_CALL_LATER) {
        set_answer(exchange, reply, result);
        return;
    }
    buffer_done(&reply->body);
    LL_PREPEND(listener->waiting, exchange);
    listener->waiting_count++;
    MHD_suspend_connection(exchange->connection);
}

/* ---- answers that are built at once, one costly one in a pass ---- */

static void on_next_pass(struct loop_timer *timer);

static void build_answer(struct exchange *exchange)
{
    struct listener *listener = exchange->listener;
    struct http_reply reply = {.body = BUFFER_INIT(answer_limit(listener))};
    struct http_asked asked;
    int result;

    exchange->request.is_crowded = listener->answer_bytes > 0;
    result = http_routes_answer(listener->server->reconciler, &exchange->request, &reply, &asked);
    if (result != HTTP_ROUTES_ASKED) {
        set_answer(exchange, &reply, result);
        return;
    }
    call_reconciler(exchange, &asked, &reply);
    http_asked_done(&asked);
}

static void build_costly_answer(struct exchange *exchange)
{
    struct listener *listener = exchange->listener;
    struct http_server *server = listener->server;
    const uint64_t began_ns = clock_boottime();
    uint64_t now_ns;

    server->has_built = true;
    build_answer(exchange);
    now_ns = clock_boottime();
    if (listener->kind != HTTP_LISTENER_SOCKET)
        listener->rests_until_ns = now_ns + REST_FACTOR * (now_ns - began_ns);
    loop_timer_start(server->loop, &server->next_pass, 0, on_next_pass);
}

static void leave_queue(struct exchange *exchange)
{
    LL_DELETE(exchange->listener->queue, exchange);
    exchange->is_queued = false;
}

/* Builds the answer of the first listener in the order of enum http_listener that does not rest. */
static void on_next_pass(struct loop_timer *timer)
{
    struct http_server *server = container_of(timer, struct http_server, next_pass);
    const uint64_t now_ns = clock_boottime();
    uint64_t soonest_ns = UINT64_MAX;

    server->has_built = false;
    for (size_t i = 0; i < HTTP_LISTENERS; i++) {
        const struct listener *listener = &server->listener[i];
        struct exchange *first = listener->queue;

        if (first && listener->rests_until_ns <= now_ns) {
            leave_queue(first);
            build_costly_answer(first);
            resume(first);
            return;
        }
        if (first && listener->rests_until_ns < soonest_ns)
            soonest_ns = listener->rests_until_ns;
    }
    if (soonest_ns != UINT64_MAX)
        loop_timer_start(server->loop, timer, soonest_ns - now_ns, on_next_pass);
}

static void wait_for_pass(struct exchange *exchange)
{
    struct listener *listener = exchange->listener;

    LL_APPEND(listener->queue, exchange);
    exchange->is_queued = true;
    MHD_suspend_connection(exchange->connection);
    loop_timer_start(listener->server->loop, &listener->server->next_pass, 0, on_next_pass);
}

static void answer_request(struct exchange *exchange, const char *path, const char *method)
{
    struct listener *listener = exchange->listener;
    struct argument_collector collector = {.request = &exchange->request};

    exchange->request = (struct http_request){.method = method,
                                              .path = path,
                                              .listener = listener->kind,
                                              .body = buffer_text(&exchange->body),
                                              .body_length = exchange->body.length,
                                              .operations = listener->server->operations,
                                              .examination = &listener->server->examination};
    (void)MHD_get_connection_values_n(exchange->connection, MHD_GET_ARGUMENT_KIND, collect_argument,
                                      &collector);
    if (collector.refused)
        set_refusal(exchange, MHD_HTTP_BAD_REQUEST, "INVALID_ARGUMENT", "bad_argument",
                    "too many arguments, one twice, or one that is no text");
    else if (listener->stops)
        set_refusal(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "UNAVAILABLE", "not_now",
                    "crustd stops");
    else if (!http_routes_is_costly(&exchange->request))
        build_answer(exchange);
    else if (listener->server->has_built || listener->queue ||
             clock_boottime() < listener->rests_until_ns)
        wait_for_pass(exchange);
    else
        build_costly_answer(exchange);
}

static bool announces_large_body(struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");

    return length && strtoull(length, NULL, 10) > BODY_BYTES;
}

/* microhttpd decodes the path into a C string, which would hide everything after a NUL. */
void *http_exchange_check_uri(void *data, const char *uri, struct MHD_Connection *connection)
{
    const char *nul = strstr(uri, "%00");

    (void)data;
    (void)connection;
    return nul && nul < uri + strcspn(uri, "?") ? &path_with_nul : NULL;
}

/* The socket's mode keeps others from connecting. But a descriptor can be passed on, and a mount of
 * the directory elsewhere comes with other users. Requests of such a client are not read. */
static bool is_admitted(const struct listener *listener, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info;

    if (listener->kind != HTTP_LISTENER_SOCKET)
        return true;
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info && unix_socket_admits(&listener->server->unix_socket, info->connect_fd);
}

/* Only the pages are checked: metrics.listen is scraped by names of services, and shows names of
 * volumes only with metrics.per_volume. */
static bool is_asked_by_a_known_name(const struct listener *listener,
                                     struct MHD_Connection *connection)
{
    return listener->kind != HTTP_LISTENER_PAGES ||
           http_hosts_allow(&listener->server->hosts,
                            MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host"));
}

void http_exchange_check_client(void *data, struct MHD_Connection *connection, void **context,
                                enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    (void)context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED && info && !is_admitted(data, connection))
        (void)shutdown(info->connect_fd, SHUT_RDWR);
}

static enum MHD_Result begin_exchange(struct listener *listener, struct MHD_Connection *connection,
                                      void **exchange_pointer)
{
    struct exchange *exchange = *exchange_pointer;

    *exchange_pointer = NULL;
    if (!is_admitted(listener, connection)) /* data may have been read before the shutdown */
        return MHD_NO;
    if (exchange == &path_with_nul)
        return refuse(listener, connection, MHD_HTTP_BAD_REQUEST, "INVALID_ARGUMENT", "bad_path",
                      "the path has a NUL");
    if (!is_asked_by_a_known_name(listener, connection))
        return refuse(listener, connection, MHD_HTTP_FORBIDDEN, "PERMISSION_DENIED", "foreign_host",
                      "Host is neither an address nor localhost, this node's name or one of "
                      "http.hosts");
    if (announces_large_body(connection))
        return refuse(listener, connection, MHD_HTTP_CONTENT_TOO_LARGE, "INVALID_ARGUMENT",
                      "body_too_large", "a request body has at most 64 KiB");
    exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return MHD_NO;
    exchange->listener = listener;
    exchange->connection = connection;
    buffer_init(&exchange->body, BODY_BYTES);
    *exchange_pointer = exchange;
    return MHD_YES;
}

/* microhttpd calls this once when the head is complete, then for each piece of the body, then once
 * at its end, and once more when a suspended connection is resumed. */
enum MHD_Result http_exchange_serve(void *data, struct MHD_Connection *connection, const char *path,
                                    const char *method, const char *version, const char *body,
                                    size_t *body_length, void **exchange_pointer)
{
    struct listener *listener = data;
    struct exchange *exchange = *exchange_pointer;
    int result;

    (void)version;
    if (!exchange || exchange == &path_with_nul)
        return begin_exchange(listener, connection, exchange_pointer);
    if (*body_length > 0) {
        result = buffer_append(&exchange->body, body, *body_length);
        *body_length = 0;
        return result < 0 ? MHD_NO : MHD_YES;
    }
    if (!exchange->is_answered)
        answer_request(exchange, path, method);
    return exchange->is_answered ? send_answer(exchange) : MHD_YES;
}

void http_exchange_forget(void *data, struct MHD_Connection *connection, void **exchange_pointer,
                          enum MHD_RequestTerminationCode how)
{
    struct exchange *exchange = *exchange_pointer;

    (void)data;
    (void)connection;
    (void)how;
    *exchange_pointer = NULL;
    if (!exchange || exchange == &path_with_nul)
        return;
    if (exchange->call) {
        (void)http_call_cancel(exchange->call);
        stop_waiting(exchange);
    }
    if (exchange->is_queued)
        leave_queue(exchange);
    MHD_destroy_response(exchange->response);
    buffer_done(&exchange->body);
    free(exchange);
}

void http_exchange_refuse_all(struct listener *listener)
{
    while (listener->waiting) {
        struct exchange *one = listener->waiting;

        (void)http_call_cancel(one->call);
        stop_waiting(one);
        refuse_later(one, "crustd stops");
    }
    while (listener->queue) {
        struct exchange *one = listener->queue;

        leave_queue(one);
        refuse_later(one, "crustd stops");
    }
}
