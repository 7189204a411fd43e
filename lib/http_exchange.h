/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange.h - one HTTP/1.1 request over a unix socket or TLS, on the loop.
 *
 * For VMMs and shims, which serve few connections at a time, and for the Kubernetes API server:
 * every exchange has its own connection, closed as soon as the answer is complete. The owner gets
 * exactly one `done`, from the loop and never from within http_exchange_new(), and frees the
 * exchange then or earlier; freeing one that is under way closes its connection.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/listener.h"
#include "lib/loop.h"
#include "lib/result.h"

enum { HTTP_EXCHANGE_HEADER_BYTES = 8 * 1024 };

/* A server that is reached over TLS. It must prove to be this address by a certificate of this CA.
 */
struct http_exchange_tls {
    const char *address; /* IPv4 or IPv6; never a name */
    uint16_t port;
    const char *ca_file; /* PEM; read once, while the exchange begins */
    const char *token;   /* for "Authorization: Bearer"; NULL: none */
};

struct http_exchange_request {
    const struct http_exchange_tls *tls; /* borrowed while it starts; NULL: the unix socket of the
                                            next three members, which TLS does not use */
    int directory;            /* O_PATH of what socket_path lies below; borrowed while it starts */
    const char *socket_path;  /* of any length; opened by listener_open() */
    struct listener listener; /* who may listen there; borrowed until done */
    const char *method;
    const char *target; /* path and query, or a whole http URL, as it goes into the request line */
    const char *body;   /* JSON, or "" for an empty one; NULL none */
    size_t body_limit;  /* of the answer, above zero */
    uint64_t deadline_ns; /* for all of it, from now */
};

enum http_exchange_end {
    HTTP_EXCHANGE_ANSWERED,  /* a whole answer, whatever its status */
    HTTP_EXCHANGE_NO_SOCKET, /* nothing has that name */
    HTTP_EXCHANGE_REFUSED,   /* nobody listens there, or no connection is to be had */
    HTTP_EXCHANGE_FOREIGN,   /* who listens there is not believed */
    HTTP_EXCHANGE_UNTRUSTED, /* its certificate is not of the CA, or not of that address */
    HTTP_EXCHANGE_NOTHING,   /* closed in good order, but without a status */
    HTTP_EXCHANGE_CLOSED,    /* closed before the answer was whole */
    HTTP_EXCHANGE_TIMEOUT,
    HTTP_EXCHANGE_OVERFLOW, /* the answer is longer than its limit */
    HTTP_EXCHANGE_FAILED,   /* no HTTP, or a local error */
};

struct http_exchange_answer {
    enum http_exchange_end end;
    unsigned status;    /* ANSWERED */
    const char *body;   /* ANSWERED: a NUL follows it; borrowed from the exchange */
    size_t length;      /* of the body */
    struct error error; /* unless ANSWERED */
    bool is_forbidden;  /* REFUSED: this process may not connect */
};

struct http_exchange;

typedef void http_exchange_done(struct http_exchange *exchange,
                                const struct http_exchange_answer *answer, void *userdata);

/* Copies the request. All exchanges of a process are on one loop. Every failure of the peer is
 * reported by `done`. 0 or -ENOMEM. */
int http_exchange_new(struct loop *loop, const struct http_exchange_request *request,
                      http_exchange_done *done, void *userdata,
                      struct http_exchange **ret_exchange);
struct http_exchange *http_exchange_free(struct http_exchange *exchange); /* returns NULL */
