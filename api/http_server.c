/* SPDX-License-Identifier: Apache-2.0 */
/* http_server.c - libmicrohttpd on the daemon's loop, and a request from its head to the last byte
 * of its answer.
 *
 * Each of the three listeners (the unix socket, http.listen, metrics.listen) is a microhttpd daemon
 * in epoll mode without a thread: the loop watches its epoll descriptor, calls MHD_run() and keeps
 * a timer for the time-outs that it requests. There are three daemons rather than one with three
 * sockets, so that a client that exhausts the connections of one does not affect the others. For
 * the same reason each has its own bounds: CONNECTIONS at a time, CONNECTION_BYTES of head and
 * BODY_BYTES of body for each, IDLE_SECONDS without a byte in either direction, and memory for
 * answers that wait to be sent.
 *
 * An answer is complete before its first byte is sent: it shows one state of the database, and its
 * status is true. One that reads the database or examines the node takes milliseconds of the only
 * loop. One of them is built in a pass, so a resize waits for no more than that. The others wait,
 * the unix socket's before those of TCP. Each TCP listener rests for seven times as long as an
 * answer took: both together take at most a quarter of the loop's time.
 *
 * A call that the reconciler answers later suspends its connection, too. At most CALLS may be
 * suspended for one, which leaves the other connections to clients that only read. microhttpd
 * requires that none is suspended when it stops.
 */
#include "api/server.h"

#include <inttypes.h>
#include <malloc.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/call.h"
#include "api/http_routes.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/log.h"

enum {
    RUNS = 4, /* of microhttpd, in one pass of the loop */
    CONNECTIONS = 32,
    CALLS = 16, /* of the connections, at a time */
    CONNECTION_BYTES = 8 * 1024,
    IDLE_SECONDS = 10,
    BODY_BYTES = 64 * 1024,
    EXAMINATION_BYTES = 1024 * 1024,
    LARGE_ANSWER_BYTES = 1024 * 1024,
    CALL_ANSWER_BYTES = 32 * 1024, /* more than the longest drive */
    REFUSAL_BYTES = 4 * 1024,      /* always reserved for an error */
    REST_FACTOR = 7,
};

/* The limits of answers in memory: 64 MiB in total. */
static const size_t answer_bytes[HTTP_LISTENERS] = {
    [HTTP_LISTENER_SOCKET] = 40 * 1024 * 1024,
    [HTTP_LISTENER_PAGES] = 16 * 1024 * 1024,
    [HTTP_LISTENER_METRICS] = 8 * 1024 * 1024,
};

/* One listening socket with its microhttpd. */
struct listener {
    struct http_server *server;
    struct MHD_Daemon *daemon;
    struct loop_io io;
    struct loop_timer timer;
    enum http_listener kind;
    struct exchange *suspended; /* in the order in which they came */
    unsigned calls;             /* of these */
    uint64_t rests_until_ns;    /* no costly answer of it is built before */
    size_t answer_bytes;        /* in memory, waiting to be sent */
    bool stops;                 /* no more connections may be suspended */
};

struct http_server {
    struct call_surroundings surroundings;
    struct unix_socket unix_socket;
    struct listener listener[HTTP_LISTENERS];
    struct loop_timer next_pass;
    bool has_built; /* a costly answer, in this pass */
    struct http_examination examination;
    struct http_hosts hosts;
};

/* One request in progress; freed when microhttpd is done with it, which keeps the texts of the
 * request for as long. */
struct exchange {
    struct exchange *next; /* of the suspended ones */
    struct listener *listener;
    struct MHD_Connection *connection;
    struct buffer body;
    struct http_request request;
    enum { RUNNING, QUEUED, CALLED } state; /* suspended until a later pass, or by a call */
    struct call call;
    bool is_answered;
    unsigned status;
    struct MHD_Response *response; /* with is_answered; NULL: there is no memory for it */
};

/* Marks a request that is refused because its path contains a NUL. */
static struct exchange path_with_nul;

static void on_timer(struct loop_timer *timer);
static void set_timer(struct listener *listener);

/* ---- answers ---- */

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

/* Takes over the reply's body. result: below 0 if there was no memory to write it. */
static void set_answer(struct exchange *exchange, struct http_reply *reply, int result)
{
    struct answer *answer = result < 0 ? NULL : calloc(1, sizeof(*answer));
    struct MHD_Response *response = NULL;
    char age[24] = "";
    const struct {
        const char *name, *value;
    } fields[] = {
        {"Content-Type", reply->content_type},
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy", reply->policy},
        {"Allow", reply->allow},
        {"Age", reply->age_seconds ? age : NULL},
    };

    if (answer) {
        *answer = (struct answer){.listener = exchange->listener, .body = reply->body};
        reply->body = (struct buffer){0};
        answer->listener->answer_bytes += answer->body.length;
        response = MHD_create_response_from_buffer_with_free_callback_cls(
            answer->body.length, answer->body.data, free_answer, answer);
        if (!response)
            free_answer(answer);
    }
    (void)snprintf(age, sizeof(age), "%" PRIu64, reply->age_seconds);
    for (size_t i = 0; response && i < array_length(fields); i++)
        if (fields[i].value &&
            MHD_add_response_header(response, fields[i].name, fields[i].value) != MHD_YES) {
            MHD_destroy_response(response);
            response = NULL;
        }
    buffer_done(&reply->body);
    exchange->is_answered = true;
    exchange->status = reply->status;
    exchange->response = response;
}

static void set_refusal(struct exchange *exchange, enum status_code code, const char *reason,
                        const char *message)
{
    struct http_reply reply = {.body = BUFFER_INIT(REFUSAL_BYTES)};

    set_answer(exchange, &reply, http_routes_refuse(&reply, code, reason, message));
}

static enum MHD_Result send_answer(const struct exchange *exchange)
{
    return exchange->response
               ? MHD_queue_response(exchange->connection, exchange->status, exchange->response)
               : MHD_NO;
}

/* ---- suspended connections ---- */

static void suspend(struct exchange *exchange, int state)
{
    struct listener *listener = exchange->listener;

    LL_APPEND(listener->suspended, exchange);
    exchange->state = state;
    listener->calls += state == CALLED;
    MHD_suspend_connection(exchange->connection);
}

static void leave(struct exchange *exchange)
{
    struct listener *listener = exchange->listener;

    LL_DELETE(listener->suspended, exchange);
    listener->calls -= exchange->state == CALLED;
    exchange->state = RUNNING;
}

/* microhttpd has no thread that a resumed connection would wake: the loop runs it. */
static void resume(struct exchange *exchange)
{
    leave(exchange);
    MHD_resume_connection(exchange->connection);
    loop_timer_start(exchange->listener->server->surroundings.loop, &exchange->listener->timer, 0,
                     on_timer);
}

static void refuse_suspended(struct exchange *exchange, const char *message)
{
    if (exchange->state == CALLED)
        call_cancel(&exchange->call);
    resume(exchange);
    set_refusal(exchange, STATUS_UNAVAILABLE, NULL, message);
}

/* ---- calls that are answered later ---- */

/* The answer of a call, which may come before the exchange waits for it. */
static enum status_code finish_call(struct call *call, const struct call_answer *answer)
{
    struct exchange *exchange = container_of(call, struct exchange, call);
    struct http_reply reply = {.body = BUFFER_INIT(CALL_ANSWER_BYTES)};

    set_answer(exchange, &reply, http_routes_write(&reply, call, answer));
    if (exchange->state == CALLED)
        resume(exchange);
    return answer->code;
}

/* microhttpd does not watch a suspended connection, so clients that have hung up are found here. */
static void end_abandoned(struct listener *listener)
{
    struct exchange *next;

    for (struct exchange *one = listener->suspended; one; one = next) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(one->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct pollfd poll_fd = {.fd = info ? info->connect_fd : -1};

        next = one->next;
        if (one->state == CALLED && poll(&poll_fd, 1, 0) > 0)
            refuse_suspended(one, "the client has gone");
    }
}

static void begin_call(struct exchange *exchange)
{
    struct listener *listener = exchange->listener;

    if (listener->calls >= CALLS)
        end_abandoned(listener);
    if (listener->calls >= CALLS) {
        set_refusal(exchange, STATUS_RESOURCE_EXHAUSTED, NULL,
                    "too many calls wait for an answer: try again later");
        return;
    }
    exchange->call = (struct call){.surroundings = &listener->server->surroundings,
                                   .finish = finish_call,
                                   .began_ns = clock_boottime(),
                                   .timeout_ns = CALL_TIMEOUT_NS};
    http_routes_call(&exchange->request, &exchange->call);
    if (!exchange->is_answered)
        suspend(exchange, CALLED);
}

/* ---- answers that are built at once, one costly one in a pass ---- */

static void on_next_pass(struct loop_timer *timer);

static void build_answer(struct exchange *exchange)
{
    const struct listener *listener = exchange->listener;
    const size_t limit = answer_bytes[listener->kind], used = listener->answer_bytes;
    struct http_reply reply = {
        .body = BUFFER_INIT(used + REFUSAL_BYTES > limit ? REFUSAL_BYTES : limit - used)};
    int result;

    exchange->request.is_crowded = used > 0;
    result = http_routes_answer(&exchange->request, &reply);
    if (result == HTTP_ROUTES_CALL)
        begin_call(exchange);
    else
        set_answer(exchange, &reply, result);
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
    loop_timer_start(server->surroundings.loop, &server->next_pass, 0, on_next_pass);
}

static struct exchange *find_queued(const struct listener *listener)
{
    struct exchange *first = listener->suspended;

    while (first && first->state != QUEUED)
        first = first->next;
    return first;
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
        struct exchange *first = find_queued(listener);

        if (first && listener->rests_until_ns <= now_ns) {
            build_costly_answer(first);
            resume(first);
            return;
        }
        if (first && listener->rests_until_ns < soonest_ns)
            soonest_ns = listener->rests_until_ns;
    }
    if (soonest_ns != UINT64_MAX)
        loop_timer_start(server->surroundings.loop, timer, soonest_ns - now_ns, on_next_pass);
}

static void answer_or_queue(struct exchange *exchange)
{
    struct listener *listener = exchange->listener;
    struct http_server *server = listener->server;

    if (!http_routes_is_costly(&exchange->request)) {
        build_answer(exchange);
    } else if (!server->has_built && !find_queued(listener) &&
               clock_boottime() >= listener->rests_until_ns) {
        build_costly_answer(exchange);
    } else {
        suspend(exchange, QUEUED);
        loop_timer_start(server->surroundings.loop, &server->next_pass, 0, on_next_pass);
    }
}

/* ---- requests ---- */

/* A value that contains a NUL would end early, and of two values for one name only one would count.
 * Such a request does not mean what it seems to, so it is refused: it has too many arguments. */
static enum MHD_Result collect_argument(void *data, enum MHD_ValueKind kind, const char *name,
                                        size_t name_length, const char *value, size_t value_length)
{
    struct http_request *request = data;
    bool is_refused = request->arguments >= HTTP_ARGUMENTS || !value ||
                      strlen(name) != name_length || strlen(value) != value_length;

    (void)kind;
    for (unsigned i = 0; !is_refused && i < request->arguments; i++)
        is_refused = strcmp(request->argument[i].name, name) == 0;
    if (is_refused) {
        request->arguments = HTTP_ARGUMENTS + 1;
        return MHD_NO;
    }
    request->argument[request->arguments++] = (struct http_argument){name, value};
    return MHD_YES;
}

static void answer_request(struct exchange *exchange, const char *path, const char *method)
{
    struct listener *listener = exchange->listener;
    struct http_server *server = listener->server;

    exchange->request = (struct http_request){.reconciler = server->surroundings.reconciler,
                                              .method = method,
                                              .path = path,
                                              .listener = listener->kind,
                                              .body = buffer_text(&exchange->body),
                                              .body_length = exchange->body.length,
                                              .operations = server->surroundings.operations,
                                              .examination = &server->examination};
    (void)MHD_get_connection_values_n(exchange->connection, MHD_GET_ARGUMENT_KIND, collect_argument,
                                      &exchange->request);
    if (exchange->request.arguments > HTTP_ARGUMENTS)
        set_refusal(exchange, STATUS_INVALID_ARGUMENT, NULL,
                    "too many arguments, one twice, or one that is no text");
    else if (listener->stops)
        set_refusal(exchange, STATUS_UNAVAILABLE, NULL, "crustd stops");
    else
        answer_or_queue(exchange);
}

/* microhttpd decodes the path into a C string, which would hide everything after a NUL. */
static void *check_uri(void *data, const char *uri, struct MHD_Connection *connection)
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

static void check_client(void *data, struct MHD_Connection *connection, void **context,
                         enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    (void)context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED && info && !is_admitted(data, connection))
        (void)shutdown(info->connect_fd, SHUT_RDWR);
}

/* What is refused before the body comes is answered at once. */
static enum MHD_Result begin_exchange(struct listener *listener, struct MHD_Connection *connection,
                                      void **exchange_pointer)
{
    const bool has_nul = *exchange_pointer == &path_with_nul;
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    struct exchange *exchange;

    *exchange_pointer = NULL;
    if (!is_admitted(listener, connection)) /* data may have been read before the shutdown */
        return MHD_NO;
    exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return MHD_NO;
    *exchange_pointer = exchange;
    exchange->listener = listener;
    exchange->connection = connection;
    buffer_init(&exchange->body, BODY_BYTES);
    if (has_nul)
        set_refusal(exchange, STATUS_INVALID_ARGUMENT, "bad_path", "the path has a NUL");
    /* Only the pages are checked: metrics.listen is scraped by names of services, and shows names
     * of volumes only with metrics.per_volume. */
    else if (listener->kind == HTTP_LISTENER_PAGES &&
             !http_hosts_allow(&listener->server->hosts,
                               MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        set_refusal(exchange, STATUS_PERMISSION_DENIED, "foreign_host",
                    "Host is neither an address nor localhost, this node's name or one of "
                    "http.hosts");
    else if (length && strtoull(length, NULL, 10) > BODY_BYTES) {
        set_refusal(exchange, STATUS_INVALID_ARGUMENT, "body_too_large",
                    "a request body has at most 64 KiB");
        exchange->status = MHD_HTTP_CONTENT_TOO_LARGE;
    }
    return exchange->is_answered ? send_answer(exchange) : MHD_YES;
}

/* microhttpd calls this once when the head is complete, then for each piece of the body, then once
 * at its end, and once more when a suspended connection is resumed. */
static enum MHD_Result serve(void *data, struct MHD_Connection *connection, const char *path,
                             const char *method, const char *version, const char *body,
                             size_t *body_length, void **exchange_pointer)
{
    struct exchange *exchange = *exchange_pointer;
    int result;

    (void)version;
    if (!exchange || exchange == &path_with_nul)
        return begin_exchange(data, connection, exchange_pointer);
    if (*body_length > 0) {
        result = buffer_append(&exchange->body, body, *body_length);
        *body_length = 0;
        return result < 0 ? MHD_NO : MHD_YES;
    }
    if (!exchange->is_answered)
        answer_request(exchange, path, method);
    return exchange->is_answered ? send_answer(exchange) : MHD_YES;
}

static void forget(void *data, struct MHD_Connection *connection, void **exchange_pointer,
                   enum MHD_RequestTerminationCode how)
{
    struct exchange *exchange = *exchange_pointer;

    (void)data;
    (void)connection;
    (void)how;
    *exchange_pointer = NULL;
    if (!exchange || exchange == &path_with_nul)
        return;
    if (exchange->state == CALLED)
        call_cancel(&exchange->call);
    if (exchange->state != RUNNING)
        leave(exchange);
    MHD_destroy_response(exchange->response);
    buffer_done(&exchange->body);
    free(exchange);
}

/* ---- listeners ---- */

__attribute__((format(printf, 2, 0))) static void write_log(void *data, const char *format,
                                                            va_list arguments)
{
    char text[256];

    (void)data;
    if (!log_enabled(LOG_DEBUG))
        return;
    (void)vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\n")] = '\0';
    log_debug(&(struct log_ids){.source = "http"}, "%s", text);
}

static bool is_full(const struct listener *listener)
{
    return MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
               ->num_connections >= CONNECTIONS;
}

/* Whether another run has something to do at once. */
static bool has_more(const struct listener *listener)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd waiting = {.fd = info->epoll_fd, .events = POLLIN};
    MHD_UNSIGNED_LONG_LONG milliseconds = 1;

    return poll(&waiting, 1, 0) > 0 ||
           (MHD_get_timeout(listener->daemon, &milliseconds) == MHD_YES && milliseconds == 0);
}

/* One run accepts a connection, the next one reads the request and answers it, another one finds
 * that the client has gone. Between passes of the loop other work has its turn, so a client would
 * wait for it several times.
 *
 * A full microhttpd stops listening, and resumes only at the start of a run after the one in which
 * a connection ended. Nothing else would cause that run. */
static void run_listener(struct listener *listener)
{
    const bool was_full = is_full(listener);

    for (unsigned run = 0; run < RUNS && (run == 0 || has_more(listener)); run++)
        (void)MHD_run(listener->daemon);
    if (was_full && !is_full(listener))
        (void)MHD_run(listener->daemon);
    set_timer(listener);
}

static void on_io(struct loop_io *io, int events)
{
    (void)events;
    run_listener(container_of(io, struct listener, io));
}

static void on_timer(struct loop_timer *timer)
{
    run_listener(container_of(timer, struct listener, timer));
}

static void set_timer(struct listener *listener)
{
    MHD_UNSIGNED_LONG_LONG milliseconds = 0;

    if (MHD_get_timeout(listener->daemon, &milliseconds) != MHD_YES)
        loop_timer_stop(&listener->timer);
    else
        loop_timer_start(listener->server->surroundings.loop, &listener->timer,
                         milliseconds * NSEC_PER_MSEC, on_timer);
}

static void close_listener(struct listener *listener)
{
    if (!listener->daemon)
        return;
    listener->stops = true;
    while (listener->suspended)
        refuse_suspended(listener->suspended, "crustd stops");
    (void)MHD_run(listener->daemon);
    loop_io_stop(&listener->io);
    loop_timer_stop(&listener->timer);
    MHD_stop_daemon(listener->daemon);
    listener->daemon = NULL;
}

/* microhttpd takes over the descriptor. */
static int open_listener(struct http_server *server, struct listener *listener, int fd,
                         struct error *error)
{
    const union MHD_DaemonInfo *info;

    listener->server = server;
    listener->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, serve,
        listener, MHD_OPTION_EXTERNAL_LOGGER, write_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
        MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_URI_LOG_CALLBACK, check_uri, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, check_client, listener, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_END);
    if (!listener->daemon)
        return error_set(error, -ENOMEM, "cannot start the HTTP server");
    info = MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    loop_io_start(server->surroundings.loop, &listener->io, info->epoll_fd, LOOP_READ, on_io);
    set_timer(listener);
    return 0;
}

static int open_listeners(struct http_server *server, const struct http_server_options *options,
                          struct error *error)
{
    const struct {
        enum http_listener kind;
        const char *key, *address; /* "" or NULL: the listener stays closed */
    } tcp[] = {{HTTP_LISTENER_PAGES, "http.listen", options->listen},
               {HTTP_LISTENER_METRICS, "metrics.listen", options->metrics_listen}};
    int result = unix_socket_listen(options->root, options->socket_path, options->socket_group,
                                    &server->unix_socket, error);

    if (result == 0)
        result = open_listener(server, &server->listener[HTTP_LISTENER_SOCKET],
                               take_fd(&server->unix_socket.fd), error);
    for (size_t i = 0; result == 0 && i < array_length(tcp); i++) {
        int fd = -1;

        if (!tcp[i].address || !*tcp[i].address)
            continue;
        result = http_listen_tcp(tcp[i].key, tcp[i].address, &fd, error);
        if (result == 0)
            result = open_listener(server, &server->listener[tcp[i].kind], fd, error);
    }
    return result;
}

int http_server_new(struct loop *loop, struct reconciler *reconciler,
                    const struct http_server_options *options, struct http_server **ret_server,
                    struct error *error)
{
    struct http_server *server = calloc(1, sizeof(*server));
    int result;

    if (!server)
        return error_set(error, -ENOMEM, "cannot start the HTTP server: out of memory");
    server->surroundings = (struct call_surroundings){loop, reconciler, options->operations};
    server->unix_socket = (struct unix_socket)UNIX_SOCKET_INIT;
    for (unsigned i = 0; i < HTTP_LISTENERS; i++)
        server->listener[i].kind = (enum http_listener)i;
    server->hosts = options->hosts;
    http_hosts_add_own(&server->hosts);
    buffer_init(&server->examination.findings, EXAMINATION_BYTES);
    result = open_listeners(server, options, error);
    if (result < 0) {
        http_server_free(server);
        return result;
    }
    *ret_server = server;
    return 0;
}

struct http_server *http_server_free(struct http_server *server)
{
    if (!server)
        return NULL;
    for (unsigned i = 0; i < HTTP_LISTENERS; i++)
        close_listener(&server->listener[i]);
    unix_socket_close(&server->unix_socket);
    loop_timer_stop(&server->next_pass);
    buffer_done(&server->examination.findings);
    free(server);
    return NULL;
}
