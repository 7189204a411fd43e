/* SPDX-License-Identifier: Apache-2.0 */
/* http2_connection.h - an HTTP/2 session on a socket of the loop. Private to api/.
 *
 * Bounds in time: the client must begin within 10 s, say a whole request within 10 s, read without
 * a pause of 30 s, and ask for something at least every 5 minutes. A reply that its flow control
 * does not let through keeps a connection no longer than none would. Bounds in memory: the
 * session's, and the bytes that are gathered for one write.
 */
#pragma once

#include "api/http2_session.h"
#include "lib/loop.h"

struct http2_connection;

struct http2_connection_options {
    struct loop *loop;
    const struct http2_handler *handler; /* its userdata is the one below */
    struct http2_room *room;
    /* It has ended; nothing is called any more, and the owner may free it. Called from the loop. */
    void (*ended)(struct http2_connection *connection, void *userdata);
    void *userdata;
};

/* Takes over the connected descriptor, also on failure. 0 or -ENOMEM. */
int http2_connection_new(const struct http2_connection_options *options, int fd,
                         struct http2_connection **ret_connection);

/* Sends what can be sent at once, cancels its requests, closes. Returns NULL. */
struct http2_connection *http2_connection_free(struct http2_connection *connection);

/* A reply was queued outside of the handler: has it sent in the loop's next turn. */
void http2_connection_wake(struct http2_connection *connection);

/* GOAWAY; it ends once its requests have been replied to and the client has hung up, or a second
 * later. */
void http2_connection_shut_down(struct http2_connection *connection);

/* Whether the client has said that it speaks HTTP/2. */
bool http2_connection_has_begun(const struct http2_connection *connection);

/* As http2_session_idle_since(). */
uint64_t http2_connection_idle_since(const struct http2_connection *connection);
