/* SPDX-License-Identifier: Apache-2.0 */
/* http_exchange.h - what http_server.c and http_exchange.c share: the listeners, and the requests
 * on them. Private to them.
 */
#pragma once

#include <microhttpd.h>

#include "api/http_call.h"
#include "api/http_routes.h"
#include "api/http_server.h"
#include "api/http_turns.h"
#include "api/unix_socket.h"

/* One listening socket with its microhttpd. */
struct listener {
    struct http_server *server;
    struct MHD_Daemon *daemon;
    struct loop_io io;
    struct loop_timer timer;
    enum http_listener kind;
    struct exchange *waiting;
    unsigned waiting_count;
    size_t answer_bytes; /* in memory, waiting to be sent */
    bool stops;          /* no more connections may be suspended */
};

struct http_server {
    struct loop *loop;
    struct reconciler *reconciler;
    struct operations *operations;
    struct unix_socket unix_socket;
    struct listener socket_listener;
    struct listener pages_listener;
    struct listener metrics_listener;
    struct http_turns turns;
    struct http_examination examination;
    struct http_hosts hosts;
};

/* One request in progress; freed when microhttpd is done with it. While the reconciler works on it,
 * its connection is suspended. */
struct exchange {
    struct exchange *next; /* the next waiting exchange */
    struct listener *listener;
    struct MHD_Connection *connection;
    struct buffer body;
    struct http_turn turn;
    struct http_call *call;  /* NULL: not waiting */
    struct http_reply reply; /* the call's, or its rows are being read */
    bool has_reply;          /* it is complete */
    bool failed;             /* there is not even memory for a refusal */
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
