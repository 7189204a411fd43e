/* SPDX-License-Identifier: Apache-2.0 */
/* http2_connection.h - an HTTP/2 session on a socket of the loop. Private to api/.
 *
 * Bounds in time: the client must begin within 10 s, complete a request within 10 s, read without a
 * pause of 30 s, and send a request at least every 5 minutes. A reply that is held up by the
 * client's flow control does not keep the connection open for longer. Bounds in memory: the
 * session's, and the bytes that are gathered for one write.
 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stddef.h>

#include "api/http2_session.h"
#include "lib/loop.h"

struct http2_connection;

struct http2_connection_options {
    struct loop *loop;
    const struct http2_handler *handler; /* called with `userdata` below */
    struct http2_room *room;
    /* The connection has ended; nothing is called after this, and the owner may free it. Called
     * from the loop. */
    void (*ended)(struct http2_connection *connection, void *userdata);
    void *userdata;
};

/* Takes over the connected descriptor, also on failure. 0 or -ENOMEM. */
int http2_connection_new(const struct http2_connection_options *options, int fd,
                         struct http2_connection **ret_connection);

/* Sends what can be sent at once, cancels the requests, closes. Returns NULL. */
struct http2_connection *http2_connection_free(struct http2_connection *connection);

/* A reply was queued outside the handler: it is sent in the loop's next iteration. */
void http2_connection_wake(struct http2_connection *connection);

/* Sends GOAWAY. The connection ends once its requests have been replied to and the client has hung
 * up, or a second later. */
void http2_connection_shut_down(struct http2_connection *connection);

/* Whether the client has shown that it speaks HTTP/2. */
bool http2_connection_has_begun(const struct http2_connection *connection);

/* As http2_session_idle_since(). */
uint64_t http2_connection_idle_since(const struct http2_connection *connection);

/* ---- http2 memory --------------------------------------------------------------------------- */

/* Limits the memory that nghttp2 takes for one session.
 *
 * How much nghttp2 stores for frames, fields and waiting replies depends on the client. This sets a
 * bound on it, whatever the cause: beyond it, allocations fail and nghttp2 ends the session.
 */

struct http2_memory {
    size_t limit;
    size_t used;
};

/* Returns an allocator that draws on `memory`, which is borrowed for the session's life. */
nghttp2_mem http2_memory_use(struct http2_memory *memory);
