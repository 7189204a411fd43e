/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange.h - one HTTP/1.1 request over a unix socket or TLS, blocking: in a worker, or in
 * crustctl.
 *
 * For VMMs and shims, which serve few connections at a time, for the Kubernetes API server, and for
 * crustd itself: every exchange has its own connection, closed as soon as the answer is complete.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/peer.h"
#include "lib/result.h"

enum { HTTP_EXCHANGE_HEADER_BYTES = 8 * 1024 };

/* A server that is reached over TLS. It must prove to be this address by a certificate of this CA.
 */
struct http_exchange_tls {
    int socket;          /* of the address's family, because a worker can make none; borrowed */
    const char *address; /* IPv4 or IPv6; never a name */
    uint16_t port;
    const char *ca_file; /* PEM; read once, while the exchange begins */
    const char *token;   /* for "Authorization: Bearer"; NULL: none */
};

struct http_exchange_request {
    const struct http_exchange_tls *tls; /* NULL: the unix socket of the next three members, which
                                            TLS does not use */
    int directory;                       /* O_PATH of what socket_path lies below */
    const char *socket_path;             /* of any length; opened by listener_open() */
    struct listener listener;            /* who may listen there */
    const char *method;
    const char *target; /* path and query, or a whole http URL, as it goes into the request line */
    const char *body;   /* JSON, or "" for an empty one; NULL none */
    size_t body_limit;  /* of the answer, above zero */

    void (*on_waiting)(void *userdata); /* about once a second while the answer is waited for; it
                                           may perform another exchange. NULL: nothing */
    void *userdata;
};

enum http_exchange_end {
    HTTP_EXCHANGE_ANSWERED,  /* a whole answer, whatever its status */
    HTTP_EXCHANGE_NO_SOCKET, /* nothing has that name */
    HTTP_EXCHANGE_REFUSED,   /* nobody listens there, or no connection is to be had */
    HTTP_EXCHANGE_FORBIDDEN, /* this process may not connect */
    HTTP_EXCHANGE_FOREIGN,   /* who listens there is not believed */
    HTTP_EXCHANGE_UNTRUSTED, /* its certificate is not of the CA, or not of that address */
    HTTP_EXCHANGE_NOTHING,   /* closed in good order, but without a status */
    HTTP_EXCHANGE_CLOSED,    /* closed before the answer was whole */
    HTTP_EXCHANGE_TIMEOUT,
    HTTP_EXCHANGE_OVERFLOW, /* the answer is longer than its limit */
    HTTP_EXCHANGE_FAILED,   /* no HTTP, or a local error */
    HTTP_EXCHANGE_ENDS,
};

/* Until until_ns (clock_boottime()). Replaces *ret_body. Unless it is ANSWERED, the status is 0 and
 * `error` has a text. */
enum http_exchange_end http_exchange_perform(const struct http_exchange_request *request,
                                             uint64_t until_ns, unsigned *ret_status,
                                             struct buffer *ret_body, struct error *error);

/* ---- curl library --------------------------------------------------------------------------- */

/* Libcurl, loaded by a process's first HTTP request.
 *
 * Linked as usual it brings thirty libraries, which take 1 MB of private memory before main() in
 * every process. docs/measurements.md has the figures.
 */

/* Its checks of an option's type are macros over the functions' own names. */
#define CURL_DISABLE_TYPECHECK

#include <curl/curl.h>

#include "lib/result.h"

/* clang-format off */
#define CURL_LIBRARY_FUNCTIONS(each)                                                               \
    each(global_init) each(slist_append) each(slist_free_all)                                      \
    each(easy_init) each(easy_setopt) each(easy_getinfo) each(easy_perform)                        \
    each(easy_strerror) each(easy_cleanup)
/* clang-format on */

/* curl_easy_init() is called as libcurl.easy_init(), and so on. */
struct curl_library {
#define CURL_LIBRARY_MEMBER(name) typeof(curl_##name) *name;
    CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_MEMBER)
#undef CURL_LIBRARY_MEMBER
};

extern struct curl_library libcurl; /* of NULLs until curl_library_load() has returned 0 */

/* Loads and initialises it, once in the life of a process: that reads some thirty files, and is the
 * only time that blocks. 0 or -ENOPKG, which the next call may find mended. */
int curl_library_load(struct error *error);
