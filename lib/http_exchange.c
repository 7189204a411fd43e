/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange.c - libcurl's multi interface, driven by the loop.
 *
 * All exchanges share one multi handle, which exists only while there is an exchange. At rest
 * nothing of libcurl is in memory but its code, and that is loaded with the first exchange. (A
 * multi handle costs 40 KiB and two descriptors, an exchange about 10 KiB and its socket.)
 *
 * Invariants: libcurl's callbacks only take notes (what to watch, when to wake up, bytes). Which
 * transfers are over is asked after libcurl has returned, and each of them is then finished by its
 * own timer. So `done` never runs inside of libcurl, nor while a list of ended transfers is walked,
 * and may free any exchange. finish() is the last thing that touches one.
 *
 * Everything that libcurl would take from its environment is switched off: proxies, redirects,
 * protocols other than HTTP, signals, its own time limits (the deadline is ours). The socket is
 * named by an open descriptor, so that its path may be of any length.
 *
 * Over TLS nothing but the given CA is trusted (libcurl's own default directory of CAs is switched
 * off), and the server is an address: nothing is resolved, which would take a thread.
 *
 * A server that is full answers 503 without reading, and closes. libcurl finds the connection
 * closed before it has sent its request and does not read the answer, so on_close() reads it.
 */
#include "lib/http_exchange.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/curl_library.h"
#include "lib/path.h"

enum { REQUEST_BYTES = 64 * 1024, READ_BYTES = 4 * 1024, STATUS_FULL = 503 };

/* What all exchanges go through. */
static struct {
    CURLM *multi; /* NULL while there is none */
    struct loop *loop;
    struct loop_timer wake; /* when libcurl wants to be called */
    unsigned exchanges;
} shared;

struct http_exchange {
    struct loop *loop;
    http_exchange_done *done;
    void *userdata;
    CURL *easy;
    bool added; /* to the multi handle */
    CURLcode code;
    struct curl_slist *headers;
    bool is_tls;
    int handle; /* O_PATH of the socket, until it is connected */
    int fd;     /* libcurl's connection, borrowed; -1 before there is one */
    struct listener listener;
    char *socket_path;
    struct buffer body;
    size_t header_bytes;
    struct loop_io io;
    struct loop_timer timer; /* the deadline, or the end that is already known */
    struct http_exchange_answer answer;
    bool foreign, overflow;
    struct error foreigner; /* who listens there */
    bool turned_away;       /* by a 503 that libcurl did not read */
    bool headers_whole;     /* the empty line after the last of them was there */
    char detail[CURL_ERROR_SIZE];
};

/* ---- the end ----------------------------------------------------------------------------- */

static void stop(struct http_exchange *exchange)
{
    loop_io_stop(&exchange->io);
    loop_timer_stop(&exchange->timer);
}

/* The last thing done with an exchange: its owner may free it. */
static void finish(struct http_exchange *exchange, enum http_exchange_end end, const char *text)
{
    struct http_exchange_answer *answer = &exchange->answer;

    stop(exchange);
    answer->end = end;
    if (end != HTTP_EXCHANGE_ANSWERED)
        (void)error_set(&answer->error, (int)end, "%s", text);
    exchange->done(exchange, answer, exchange->userdata);
}

static enum http_exchange_end end_of(const struct http_exchange *exchange)
{
    if (exchange->foreign)
        return HTTP_EXCHANGE_FOREIGN;
    if (exchange->overflow)
        return HTTP_EXCHANGE_OVERFLOW;
    if (exchange->turned_away)
        return HTTP_EXCHANGE_ANSWERED;
    switch ((int)exchange->code) {
    case CURLE_OK: /* also for headers that were cut off */
        return exchange->headers_whole ? HTTP_EXCHANGE_ANSWERED : HTTP_EXCHANGE_CLOSED;
    case CURLE_COULDNT_CONNECT:
        return HTTP_EXCHANGE_REFUSED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return HTTP_EXCHANGE_UNTRUSTED;
    case CURLE_GOT_NOTHING:
        return HTTP_EXCHANGE_NOTHING;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return HTTP_EXCHANGE_CLOSED;
    default:
        return HTTP_EXCHANGE_FAILED;
    }
}

static const char *text_of(const struct http_exchange *exchange, enum http_exchange_end end)
{
    if (end == HTTP_EXCHANGE_FOREIGN)
        return exchange->foreigner.text;
    if (end == HTTP_EXCHANGE_OVERFLOW)
        return "the answer is too long";
    if (end == HTTP_EXCHANGE_NOTHING)
        return "the connection was closed without an answer";
    if (end == HTTP_EXCHANGE_CLOSED)
        return "the connection was closed before the answer was whole";
    return exchange->detail[0] ? exchange->detail : libcurl.easy_strerror(exchange->code);
}

static void on_transferred(struct loop_timer *timer)
{
    struct http_exchange *exchange = container_of(timer, struct http_exchange, timer);
    struct http_exchange_answer *answer = &exchange->answer;
    enum http_exchange_end end = end_of(exchange);
    long status = 0, failure = 0;

    (void)libcurl.easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &failure);
    answer->is_forbidden = end == HTTP_EXCHANGE_REFUSED && failure == EACCES;
    if (end == HTTP_EXCHANGE_ANSWERED) {
        (void)libcurl.easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
        answer->status = exchange->turned_away ? STATUS_FULL : (unsigned)status;
        answer->body = buffer_text(&exchange->body);
        answer->length = exchange->body.length;
    }
    finish(exchange, end, text_of(exchange, end));
}

/* ---- between libcurl and the loop -------------------------------------------------------- */

static struct http_exchange *exchange_of(CURL *easy)
{
    char *exchange = NULL;

    (void)libcurl.easy_getinfo(easy, CURLINFO_PRIVATE, &exchange);
    return (struct http_exchange *)(void *)exchange;
}

/* Lets libcurl go on, then finishes the transfers that are over. */
static void advance(curl_socket_t fd, int events)
{
    const CURLMsg *message;
    int running, left;

    (void)libcurl.multi_socket_action(shared.multi, fd, events, &running);
    while ((message = libcurl.multi_info_read(shared.multi, &left))) {
        struct http_exchange *exchange = exchange_of(message->easy_handle);

        exchange->code = message->data.result;
        loop_io_stop(&exchange->io);
        loop_timer_start(exchange->loop, &exchange->timer, 0, on_transferred);
    }
}

static void on_io(struct loop_io *io, int events)
{
    struct http_exchange *exchange = container_of(io, struct http_exchange, io);

    advance(exchange->fd, (events & LOOP_READ ? CURL_CSELECT_IN : 0) |
                              (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_wake(struct loop_timer *timer)
{
    (void)timer;
    advance(CURL_SOCKET_TIMEOUT, 0);
}

static void on_deadline(struct loop_timer *timer)
{
    finish(container_of(timer, struct http_exchange, timer), HTTP_EXCHANGE_TIMEOUT,
           "no answer in time");
}

static void on_not_begun(struct loop_timer *timer)
{
    struct http_exchange *exchange = container_of(timer, struct http_exchange, timer);

    finish(exchange, exchange->answer.end, exchange->detail);
}

static int on_watch(CURL *easy, curl_socket_t fd, int what, void *context, void *unused)
{
    struct http_exchange *exchange = exchange_of(easy);

    (void)context;
    (void)unused;
    if (!exchange)
        return 0; /* libcurl's own handle, closing what has been stopped */
    if (what == CURL_POLL_REMOVE)
        loop_io_stop(&exchange->io);
    else
        loop_io_start(
            exchange->loop, &exchange->io, fd,
            (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0), on_io);
    return 0;
}

static int on_wake_wanted(CURLM *multi, long milliseconds, void *context)
{
    (void)multi;
    (void)context;
    if (milliseconds < 0)
        loop_timer_stop(&shared.wake);
    else
        loop_timer_start(shared.loop, &shared.wake, (uint64_t)milliseconds * NSEC_PER_MSEC,
                         on_wake);
    return 0;
}

/* ---- what libcurl asks and tells --------------------------------------------------------- */

/* Only to know the descriptor: libcurl connects it. */
static curl_socket_t on_open(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct http_exchange *exchange = context;

    (void)purpose;
    exchange->fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return exchange->fd < 0 ? CURL_SOCKET_BAD : exchange->fd;
}

static int on_close(void *context, curl_socket_t fd)
{
    static const char full[] = "HTTP/1.1 503";
    struct http_exchange *exchange = context;
    char head[sizeof(full) - 1];

    if (!exchange->header_bytes &&
        recv(fd, head, sizeof(head), MSG_DONTWAIT) == (ssize_t)sizeof(head) &&
        memcmp(head, full, sizeof(head)) == 0)
        exchange->turned_away = true;
    return close(fd);
}

/* Connected, and nothing is sent yet: checks that the right process called listen(2), which the
 * kernel tells. */
static int on_connected(void *context, char *peer, char *local, int peer_port, int local_port)
{
    struct http_exchange *exchange = context;

    (void)peer, (void)local, (void)peer_port, (void)local_port;
    exchange->foreign = !listener_is_believed(exchange->fd, exchange->socket_path,
                                              &exchange->listener, &exchange->foreigner);
    fd_close(take_fd(&exchange->handle));
    return exchange->foreign ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* One line at a time. The headers of an interim answer (1xx) are followed by others. */
static size_t on_header(char *data, size_t size, size_t count, void *context)
{
    struct http_exchange *exchange = context;
    size_t length = size * count;

    if (length >= 5 && memcmp(data, "HTTP/", 5) == 0)
        exchange->headers_whole = false;
    else if (length && (data[0] == '\r' || data[0] == '\n'))
        exchange->headers_whole = true;
    exchange->header_bytes += length;
    exchange->overflow = exchange->header_bytes > HTTP_EXCHANGE_HEADER_BYTES;
    return exchange->overflow ? 0 : length;
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    struct http_exchange *exchange = context;
    int r = buffer_append(&exchange->body, data, size * count);

    exchange->overflow = r == BUFFER_FULL;
    return r < 0 ? 0 : size * count;
}

/* ---- the beginning ----------------------------------------------------------------------- */

#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (libcurl.easy_setopt(exchange->easy, option, value) != CURLE_OK)                        \
            return -ENOMEM;                                                                        \
    } while (0)

static int set_unix_socket(struct http_exchange *exchange)
{
    char link[32];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", exchange->handle);
    SET(CURLOPT_UNIX_SOCKET_PATH, link);
    SET(CURLOPT_CLOSESOCKETFUNCTION, on_close);
    SET(CURLOPT_CLOSESOCKETDATA, exchange);
    SET(CURLOPT_PREREQFUNCTION, on_connected);
    SET(CURLOPT_PREREQDATA, exchange);
    SET(CURLOPT_PROTOCOLS_STR, "http");
    return 0;
}

/* Certificate and address are verified by default; here it is only said by which CA. */
static int set_tls(struct http_exchange *exchange, const struct http_exchange_tls *tls)
{
    SET(CURLOPT_PROTOCOLS_STR, "https");
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_CAINFO, tls->ca_file);
    SET(CURLOPT_CAPATH, NULL);
    return 0;
}

static int set_surroundings(struct http_exchange *exchange)
{
    SET(CURLOPT_PRIVATE, exchange);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open);
    SET(CURLOPT_OPENSOCKETDATA, exchange);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_FRESH_CONNECT, 1L);
    SET(CURLOPT_FORBID_REUSE, 1L);
    SET(CURLOPT_BUFFERSIZE, (long)READ_BYTES);
    SET(CURLOPT_ERRORBUFFER, exchange->detail);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, exchange);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, exchange);
    return 0;
}

static int add_header(struct http_exchange *exchange, const char *header)
{
    struct curl_slist *longer = libcurl.slist_append(exchange->headers, header);

    if (!longer)
        return -ENOMEM;
    exchange->headers = longer;
    return 0;
}

static int add_token(struct http_exchange *exchange, const char *token)
{
    cleanup(buffer_done) struct buffer header = BUFFER_INIT(REQUEST_BYTES);
    int r = buffer_append_format(&header, "Authorization: Bearer %s", token);

    return r == 0 ? add_header(exchange, buffer_text(&header)) : r;
}

static int add_headers(struct http_exchange *exchange, const struct http_exchange_request *request)
{
    int r = add_header(exchange, "Accept: application/json");

    if (r == 0 && request->body && *request->body)
        r = add_header(exchange, "Content-Type: application/json");
    if (r == 0 && request->tls && request->tls->token)
        r = add_token(exchange, request->tls->token);
    return r;
}

static int append_server(struct buffer *url, const struct http_exchange_tls *tls)
{
    bool is_ipv6 = tls && strchr(tls->address, ':');

    return tls ? buffer_append_format(url, "https://%s%s%s:%u", is_ipv6 ? "[" : "", tls->address,
                                      is_ipv6 ? "]" : "", tls->port)
               : buffer_append_text(url, "http://localhost");
}

static int set_request(struct http_exchange *exchange, const struct http_exchange_request *request)
{
    cleanup(buffer_done) struct buffer url = BUFFER_INIT(REQUEST_BYTES);
    bool is_whole = request->target[0] != '/';
    int r = is_whole ? 0 : append_server(&url, request->tls);

    if (r == 0)
        r = buffer_append_text(&url, request->target);
    if (r == 0)
        r = add_headers(exchange, request);
    if (r < 0)
        return r;
    SET(CURLOPT_URL, buffer_text(&url));
    SET(CURLOPT_PATH_AS_IS, 1L);
    if (is_whole)
        SET(CURLOPT_REQUEST_TARGET, request->target);
    SET(CURLOPT_HTTPHEADER, exchange->headers);
    if (request->body)
        SET(CURLOPT_COPYPOSTFIELDS, request->body);
    SET(CURLOPT_CUSTOMREQUEST, request->method);
    return 0;
}

/* ---- the multi handle -------------------------------------------------------------------- */

static int shared_acquire(struct loop *loop)
{
    if (!shared.multi) {
        shared.multi = libcurl.multi_init();
        if (!shared.multi)
            return -ENOMEM;
        shared.loop = loop;
        (void)libcurl.multi_setopt(shared.multi, CURLMOPT_SOCKETFUNCTION, on_watch);
        (void)libcurl.multi_setopt(shared.multi, CURLMOPT_TIMERFUNCTION, on_wake_wanted);
    }
    shared.exchanges++;
    return 0;
}

static void shared_release(void)
{
    if (--shared.exchanges)
        return;
    (void)libcurl.multi_cleanup(shared.multi);
    loop_timer_stop(&shared.wake);
    memset(&shared, 0, sizeof(shared));
}

/* libcurl asks at once to be woken up in the loop's next iteration. */
static int start_transfer(struct http_exchange *exchange,
                          const struct http_exchange_request *request)
{
    int r = shared_acquire(exchange->loop);

    if (r < 0)
        return r;
    exchange->easy = libcurl.easy_init();
    r = exchange->easy ? set_surroundings(exchange) : -ENOMEM;
    if (r == 0)
        r = request->tls ? set_tls(exchange, request->tls) : set_unix_socket(exchange);
    if (r == 0)
        r = set_request(exchange, request);
    if (r == 0 && libcurl.multi_add_handle(shared.multi, exchange->easy) != CURLM_OK)
        r = -ENOMEM;
    exchange->added = r == 0;
    if (r < 0)
        shared_release();
    return r;
}

static bool not_begun(struct http_exchange *exchange, enum http_exchange_end end, const char *text)
{
    exchange->answer.end = end;
    (void)snprintf(exchange->detail, sizeof(exchange->detail), "%s", text);
    loop_timer_start(exchange->loop, &exchange->timer, 0, on_not_begun);
    return false;
}

/* Opens the socket and loads libcurl. A failure of either is reported from the loop. */
static bool find_means(struct http_exchange *exchange, const struct http_exchange_request *request)
{
    struct error error;
    int r = exchange->is_tls ? 0
                             : listener_open(request->directory, request->socket_path,
                                             &request->listener, &exchange->handle, &error);

    if (path_is_missing(r))
        return not_begun(exchange, HTTP_EXCHANGE_NO_SOCKET, error.text);
    exchange->answer.is_forbidden = r == PATH_FORBIDDEN;
    if (r < 0)
        return not_begun(exchange, HTTP_EXCHANGE_REFUSED, error.text);
    if (curl_library_load(&error) < 0)
        return not_begun(exchange, HTTP_EXCHANGE_FAILED, error.text);
    return true;
}

int http_exchange_new(struct loop *loop, const struct http_exchange_request *request,
                      http_exchange_done *done, void *userdata, struct http_exchange **ret_exchange)
{
    struct http_exchange *exchange = calloc(1, sizeof(*exchange));
    int r;

    if (!exchange)
        return -ENOMEM;
    exchange->loop = loop;
    exchange->done = done;
    exchange->userdata = userdata;
    exchange->handle = exchange->fd = -1;
    exchange->listener = request->listener;
    exchange->is_tls = request->tls != NULL;
    exchange->socket_path = exchange->is_tls ? NULL : strdup(request->socket_path);
    buffer_init(&exchange->body, request->body_limit);
    if (!exchange->is_tls && !exchange->socket_path) {
        (void)http_exchange_free(exchange);
        return -ENOMEM;
    }
    if (find_means(exchange, request)) {
        r = start_transfer(exchange, request);
        if (r < 0) {
            (void)http_exchange_free(exchange);
            return r;
        }
        loop_timer_start(loop, &exchange->timer, request->deadline_ns, on_deadline);
    }
    *ret_exchange = exchange;
    return 0;
}

struct http_exchange *http_exchange_free(struct http_exchange *exchange)
{
    if (!exchange)
        return NULL;
    stop(exchange);
    if (exchange->added)
        (void)libcurl.multi_remove_handle(shared.multi, exchange->easy); /* closes its connection */
    if (exchange->easy) {
        libcurl.easy_cleanup(exchange->easy);
        libcurl.slist_free_all(exchange->headers);
    }
    if (exchange->added)
        shared_release();
    fd_close(exchange->handle);
    free(exchange->socket_path);
    buffer_done(&exchange->body);
    free(exchange);
    return NULL;
}
