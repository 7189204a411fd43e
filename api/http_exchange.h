/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange.h - what http_server.c and http_exchange.c share: the listeners, and the requests
 * on them. Private to them.
 */
#pragma once

#include <microhttpd.h>

#include "api/http_call.h"
#include "api/http_routes.h"
#include "api/http_server.h"
#include "api/unix_socket.h"

/* One listening socket with its microhttpd. */
struct listener {
    struct http_server *server;
    struct MHD_Daemon *daemon;
    struct loop_io io;
    struct loop_timer timer;
    enum http_listener kind;
    struct exchange *waiting; /* for the reconciler */
    unsigned waiting_count;
    struct exchange *queue;  /* for a pass in which their costly answers are built */
    uint64_t rests_until_ns; /* no costly answer of it is built before */
    size_t answer_bytes;     /* in memory, waiting to be sent */
    bool stops;              /* no more connections may be suspended */
};

struct http_server {
    struct loop *loop;
    struct reconciler *reconciler;
    struct operations *operations;
    struct unix_socket unix_socket;
    struct listener listener[HTTP_LISTENERS];
    struct loop_timer next_pass;
    bool has_built; /* a costly answer, in this pass */
    struct http_examination examination;
    struct http_hosts hosts;
};

/* One request in progress; freed when microhttpd is done with it. Its connection is suspended while
 * it waits, and microhttpd keeps the texts of the request until the exchange ends. */
struct exchange {
    struct exchange *next; /* in `waiting` or in `queue` */
    struct listener *listener;
    struct MHD_Connection *connection;
    struct buffer body;
    struct http_request request;
    bool is_queued;
    struct http_call *call; /* NULL: the reconciler is not asked */
    bool is_answered;
    unsigned status;
    struct MHD_Response *response; /* with is_answered; NULL: there is no memory for it */
};

/* microhttpd's callbacks; their first argument is the listener. */
enum MHD_Result http_exchange_serve(void *listener, struct MHD_Connection *connection,
                                    const char *path, const char *method, const char *version,
                                    const char *body, size_t *body_length, void **exchange_pointer);
void http_exchange_forget(void *listener, struct MHD_Connection *connection,
                          void **exchange_pointer, enum MHD_RequestTerminationCode how);
void *http_exchange_check_uri(void *listener, const char *uri, struct MHD_Connection *connection);
void http_exchange_check_client(void *listener, struct MHD_Connection *connection, void **context,
                                enum MHD_ConnectionNotificationCode code);

/* Refuses all requests whose connections are suspended, and resumes these. */
void http_exchange_refuse_all(struct listener *listener);

/* Has the loop run the listener's microhttpd, which has no thread that a resumed connection would
 * wake. */
void http_listener_wake(struct listener *listener);
