/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange.c - libcurl's easy interface.
 *
 * Everything that libcurl would take from its environment is switched off: proxies, redirects,
 * protocols other than HTTP, signals. The socket is named by an open descriptor, so that its path
 * may be of any length.
 *
 * Over TLS nothing but the given CA is trusted (libcurl's own default directory of CAs is switched
 * off), and the server is an address: nothing is resolved, which would take a thread.
 *
 * A server that is full answers 503 without reading, and closes. libcurl finds the connection
 * closed before it has sent its request and does not read the answer, so on_close() reads it.
 */
#include "lib/http_exchange.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"

enum { REQUEST_BYTES = 64 * 1024, READ_BYTES = 4 * 1024, STATUS_FULL = 503 };

struct exchange {
    const struct http_exchange_request *request;
    CURL *easy;
    CURLcode code;
    struct curl_slist *headers;
    int handle; /* O_PATH of the socket, until it is connected */
    int fd;     /* libcurl's connection, borrowed; -1 before there is one */
    struct buffer body;
    size_t header_bytes;
    bool foreign, overflow;
    struct error foreigner; /* who listens there */
    bool turned_away;       /* by a 503 that libcurl did not read */
    bool headers_whole;     /* the empty line after the last of them was there */
    char detail[CURL_ERROR_SIZE];
};

/* ---- the end ----------------------------------------------------------------------------- */

static enum http_exchange_end end_of(const struct exchange *exchange)
{
    long failure = 0;

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
        (void)libcurl.easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &failure);
        return failure == EACCES ? HTTP_EXCHANGE_FORBIDDEN : HTTP_EXCHANGE_REFUSED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return HTTP_EXCHANGE_UNTRUSTED;
    case CURLE_GOT_NOTHING:
        return HTTP_EXCHANGE_NOTHING;
    case CURLE_OPERATION_TIMEDOUT:
        return HTTP_EXCHANGE_TIMEOUT;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return HTTP_EXCHANGE_CLOSED;
    default:
        return HTTP_EXCHANGE_FAILED;
    }
}

static const char *text_of(const struct exchange *exchange, enum http_exchange_end end)
{
    static const char *const texts[HTTP_EXCHANGE_ENDS] = {
        [HTTP_EXCHANGE_OVERFLOW] = "the answer is too long",
        [HTTP_EXCHANGE_NOTHING] = "the connection was closed without an answer",
        [HTTP_EXCHANGE_CLOSED] = "the connection was closed before the answer was whole",
        [HTTP_EXCHANGE_TIMEOUT] = "no answer in time",
    };

    if (end == HTTP_EXCHANGE_FOREIGN)
        return exchange->foreigner.text;
    if (texts[end])
        return texts[end];
    return exchange->detail[0] ? exchange->detail : libcurl.easy_strerror(exchange->code);
}

/* ---- what libcurl asks and tells --------------------------------------------------------- */

/* To know the descriptor: libcurl connects it. */
static curl_socket_t on_open(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct exchange *exchange = context;

    (void)purpose;
    exchange->fd =
        exchange->request->tls
            ? fcntl(exchange->request->tls->socket, F_DUPFD_CLOEXEC, 0)
            : socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return exchange->fd < 0 ? CURL_SOCKET_BAD : exchange->fd;
}

static int on_close(void *context, curl_socket_t fd)
{
    static const char full[] = "HTTP/1.1 503";
    struct exchange *exchange = context;
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
    struct exchange *exchange = context;

    (void)peer, (void)local, (void)peer_port, (void)local_port;
    exchange->foreign = !listener_is_believed(exchange->fd, exchange->request->socket_path,
                                              &exchange->request->listener, &exchange->foreigner);
    fd_close(take_fd(&exchange->handle));
    return exchange->foreign ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* One line at a time. The headers of an interim answer (1xx) are followed by others. */
static size_t on_header(char *data, size_t size, size_t count, void *context)
{
    struct exchange *exchange = context;
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
    struct exchange *exchange = context;
    int r = buffer_append(&exchange->body, data, size * count);

    exchange->overflow = r == BUFFER_FULL;
    return r < 0 ? 0 : size * count;
}

static int on_progress(void *context, curl_off_t download, curl_off_t downloaded, curl_off_t upload,
                       curl_off_t uploaded)
{
    const struct http_exchange_request *request = context;

    (void)download, (void)downloaded, (void)upload, (void)uploaded;
    request->on_waiting(request->userdata);
    return 0;
}

/* ---- the beginning ----------------------------------------------------------------------- */

#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (libcurl.easy_setopt(exchange->easy, option, value) != CURLE_OK)                        \
            return -ENOMEM;                                                                        \
    } while (0)

static int add_header(struct exchange *exchange, const char *header)
{
    struct curl_slist *longer = libcurl.slist_append(exchange->headers, header);

    if (!longer)
        return -ENOMEM;
    exchange->headers = longer;
    return 0;
}

static int add_headers(struct exchange *exchange)
{
    const struct http_exchange_request *request = exchange->request;
    cleanup(buffer_done) struct buffer token = BUFFER_INIT(REQUEST_BYTES);
    int r = add_header(exchange, "Accept: application/json");

    if (r == 0 && request->body && *request->body)
        r = add_header(exchange, "Content-Type: application/json");
    if (r < 0 || !request->tls || !request->tls->token)
        return r;
    r = buffer_append_format(&token, "Authorization: Bearer %s", request->tls->token);
    return r == 0 ? add_header(exchange, buffer_text(&token)) : r;
}

static int set_target(struct exchange *exchange)
{
    const struct http_exchange_request *request = exchange->request;
    cleanup(buffer_done) struct buffer url = BUFFER_INIT(REQUEST_BYTES);
    const struct http_exchange_tls *tls = request->tls;
    bool is_whole = request->target[0] != '/', is_ipv6 = tls && strchr(tls->address, ':');
    int r;

    if (!is_whole && tls)
        buffer_append_format(&url, "https://%s%s%s:%u", is_ipv6 ? "[" : "", tls->address,
                             is_ipv6 ? "]" : "", tls->port);
    else if (!is_whole)
        buffer_append_text(&url, "http://localhost");
    r = buffer_append_text(&url, request->target);
    if (r == 0)
        r = add_headers(exchange);
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

static int set_up(struct exchange *exchange)
{
    const struct http_exchange_request *request = exchange->request;
    char link[32];

    exchange->easy = libcurl.easy_init();
    if (!exchange->easy)
        return -ENOMEM;
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
    if (request->on_waiting) {
        SET(CURLOPT_NOPROGRESS, 0L);
        SET(CURLOPT_XFERINFOFUNCTION, on_progress);
        SET(CURLOPT_XFERINFODATA, request);
    }
    if (request->tls) {
        /* Certificate and address are verified by default; here it is only said by which CA. */
        SET(CURLOPT_PROTOCOLS_STR, "https");
        SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
        SET(CURLOPT_SSL_VERIFYPEER, 1L);
        SET(CURLOPT_SSL_VERIFYHOST, 2L);
        SET(CURLOPT_CAINFO, request->tls->ca_file);
        SET(CURLOPT_CAPATH, NULL);
    } else {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", exchange->handle);
        SET(CURLOPT_UNIX_SOCKET_PATH, link);
        SET(CURLOPT_CLOSESOCKETFUNCTION, on_close);
        SET(CURLOPT_CLOSESOCKETDATA, exchange);
        SET(CURLOPT_PREREQFUNCTION, on_connected);
        SET(CURLOPT_PREREQDATA, exchange);
        SET(CURLOPT_PROTOCOLS_STR, "http");
    }
    return set_target(exchange);
}

/* Opens the socket and loads libcurl. ANSWERED, or why there is no means of asking. */
static enum http_exchange_end find_means(struct exchange *exchange, struct error *error)
{
    const struct http_exchange_request *request = exchange->request;
    int r = request->tls ? 0
                         : listener_open(request->directory, request->socket_path,
                                         &request->listener, &exchange->handle, error);

    if (path_is_missing(r))
        return HTTP_EXCHANGE_NO_SOCKET;
    if (r < 0)
        return r == PATH_FORBIDDEN ? HTTP_EXCHANGE_FORBIDDEN : HTTP_EXCHANGE_REFUSED;
    return curl_library_load(error) < 0 ? HTTP_EXCHANGE_FAILED : HTTP_EXCHANGE_ANSWERED;
}

static enum http_exchange_end transfer(struct exchange *exchange, uint64_t until_ns,
                                       struct error *error)
{
    enum http_exchange_end end = find_means(exchange, error);
    uint64_t now_ns = clock_boottime();
    long milliseconds = (long)((until_ns - now_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);

    if (end != HTTP_EXCHANGE_ANSWERED)
        return end;
    if (now_ns >= until_ns) /* to libcurl 0 is no limit */
        exchange->code = CURLE_OPERATION_TIMEDOUT;
    else if (set_up(exchange) < 0 ||
             libcurl.easy_setopt(exchange->easy, CURLOPT_TIMEOUT_MS, milliseconds) != CURLE_OK)
        exchange->code = CURLE_OUT_OF_MEMORY;
    else
        exchange->code = libcurl.easy_perform(exchange->easy);
    end = end_of(exchange);
    if (end != HTTP_EXCHANGE_ANSWERED)
        (void)error_set(error, (int)end, "%s", text_of(exchange, end));
    return end;
}

enum http_exchange_end http_exchange_perform(const struct http_exchange_request *request,
                                             uint64_t until_ns, unsigned *ret_status,
                                             struct buffer *ret_body, struct error *error)
{
    struct exchange exchange = {
        .request = request, .handle = -1, .fd = -1, .body = BUFFER_INIT(request->body_limit)};
    enum http_exchange_end end = transfer(&exchange, until_ns, error);
    long status = exchange.turned_away ? STATUS_FULL : 0;

    if (end == HTTP_EXCHANGE_ANSWERED && !exchange.turned_away)
        (void)libcurl.easy_getinfo(exchange.easy, CURLINFO_RESPONSE_CODE, &status);
    *ret_status = end == HTTP_EXCHANGE_ANSWERED ? (unsigned)status : 0;
    if (exchange.easy) {
        libcurl.easy_cleanup(exchange.easy);
        libcurl.slist_free_all(exchange.headers);
    }
    fd_close(exchange.handle);
    buffer_done(ret_body);
    *ret_body = exchange.body;
    return end;
}

/* ---- curl library --------------------------------------------------------------------------- */

/* Dlopen(3) of the GnuTLS build, by the name that its ABI has.
 *
 * It is never unloaded: libraries under it keep state of their own in the process.
 */

struct curl_library libcurl;

static const char library_name[] = "libcurl-gnutls.so.4";

int curl_library_load(struct error *error)
{
    static bool loaded;
    struct curl_library found = {0};
    void *handle;

    if (loaded)
        return 0;
    handle = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return error_set(error, -ENOPKG, "HTTP needs libcurl, install libcurl3-gnutls: %s",
                         dlerror());
#define CURL_LIBRARY_FIND(name)                                                                    \
    found.name = (typeof(found.name))dlsym(handle, "curl_" #name);                                 \
    if (!found.name)                                                                               \
        return error_set(error, -ENOPKG, "HTTP needs libcurl, install libcurl3-gnutls: %s",        \
                         dlerror());
    CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_FIND)
#undef CURL_LIBRARY_FIND
    if (found.global_init(CURL_GLOBAL_NOTHING) != CURLE_OK)
        return error_set(error, -ENOPKG, "%s cannot be initialised", library_name);
    libcurl = found;
    loaded = true;
    return 0;
}
