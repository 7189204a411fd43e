/* SPDX-License-Identifier: Apache-2.0 */
/* http2_connection.c - reading, writing and time limits.
 *
 * Each iteration of the loop reads at most READ_BYTES once, so that a client that sends without
 * pause does not hold up the others. While a client does not read its replies, nothing is read from
 * it either, until its time is over.
 *
 * A connection that crustd ends is announced by GOAWAY and stays half open until the client has
 * hung up. What a client writes before it has read the GOAWAY must not fail, because otherwise the
 * client could not know that its call was never begun and may be repeated.
 *
 * There is one timer. While there are requests, it checks every CHECK_SECONDS whether one is too
 * slow; otherwise it ends the connection. An idle connection causes no wake-ups until then.
 */
#include "api/http2.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

enum {
    READ_BYTES = 16 * 1024,
    WRITE_BYTES = 16 * 1024,
    BEGIN_SECONDS = 10,
    REQUEST_SECONDS = 10,
    STALL_SECONDS = 30,
    IDLE_SECONDS = 300,
    CHECK_SECONDS = 5,
    FAREWELL_SECONDS = 1,
};

struct http2_connection {
    struct http2_connection_options options;
    struct http2_session *session;
    int fd;
    struct loop_io io;
    struct loop_timer timer;
    const char *piece; /* rest of the session's last piece, not yet gathered */
    size_t piece_bytes;
    size_t left, left_bytes; /* of the gathered bytes, not yet written */
    char gathered[WRITE_BYTES];
    uint64_t began_ns;
    uint64_t checked_ns; /* when the timer last fired */
    uint64_t moved_ns;   /* when the last byte was written, or when nothing was left to write */
    bool leaving;        /* GOAWAY was queued */
};

static void on_io(struct loop_io *io, int events);
static void on_timer(struct loop_timer *timer);

/* ---- time ---- */

/* When the client's time is over, if it does nothing until then. A client that only pings counts as
 * idle; one whose request is worked on has time. */
static uint64_t deadline_of(const struct http2_connection *connection)
{
    const uint64_t idle_since = http2_session_idle_since(connection->session);

    if (connection->left_bytes)
        return connection->moved_ns + STALL_SECONDS * NSEC_PER_SEC;
    if (idle_since == HTTP2_BUSY)
        return UINT64_MAX;
    if (!http2_session_has_begun(connection->session))
        return connection->began_ns + BEGIN_SECONDS * NSEC_PER_SEC;
    return idle_since + IDLE_SECONDS * NSEC_PER_SEC;
}

static void start_timer(struct http2_connection *connection)
{
    const bool is_busy =
        connection->left_bytes || http2_session_idle_since(connection->session) == HTTP2_BUSY;
    const uint64_t now = clock_boottime();
    const uint64_t at =
        is_busy ? connection->checked_ns + CHECK_SECONDS * NSEC_PER_SEC : deadline_of(connection);

    loop_timer_start(connection->options.loop, &connection->timer, at > now ? at - now : 0,
                     on_timer);
}

/* ---- bytes ---- */

/* A reply is several frames, which the session provides one by one. They are written together,
 * because each write wakes the client. */
static void gather(struct http2_connection *connection)
{
    connection->left = 0;
    while (connection->left_bytes < WRITE_BYTES) {
        size_t room = WRITE_BYTES - connection->left_bytes, length = connection->piece_bytes;
        const void *bytes;

        if (!length) {
            length = connection->piece_bytes = http2_session_send(connection->session, &bytes);
            connection->piece = bytes;
        }
        if (!length)
            return;
        if (length > room)
            length = room;
        memcpy(connection->gathered + connection->left_bytes, connection->piece, length);
        connection->left_bytes += length;
        connection->piece += length;
        connection->piece_bytes -= length;
    }
}

/* 0: all is written; 1: the socket accepts no more for now; -errno. */
static int write_some(struct http2_connection *connection)
{
    for (;;) {
        ssize_t written;

        if (!connection->left_bytes)
            gather(connection);
        if (!connection->left_bytes)
            return 0;
        written = send(connection->fd, connection->gathered + connection->left,
                       connection->left_bytes, MSG_NOSIGNAL);
        if (written < 0)
            return errno == EAGAIN || errno == EINTR ? 1 : -errno;
        connection->left += (size_t)written;
        connection->left_bytes -= (size_t)written;
        connection->moved_ns = clock_boottime();
    }
}

static void end(struct http2_connection *connection)
{
    loop_io_stop(&connection->io);
    loop_timer_stop(&connection->timer);
    connection->options.ended(connection, connection->options.userdata);
}

static void on_farewell_io(struct loop_io *io, int events)
{
    struct http2_connection *connection = container_of(io, struct http2_connection, io);
    char ignored[READ_BYTES];
    ssize_t length = recv(connection->fd, ignored, sizeof(ignored), 0);

    (void)events;
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        end(connection);
}

static void on_farewell_timer(struct loop_timer *timer)
{
    end(container_of(timer, struct http2_connection, timer));
}

/* Writes, then waits for what comes next. Must be the last call of a callback, because it may end
 * the connection. */
static void go_on(struct http2_connection *connection)
{
    int r;

    if (!connection->left_bytes)
        connection->moved_ns = clock_boottime();
    r = write_some(connection);
    if (r == 0 && connection->leaving && http2_session_is_over(connection->session)) {
        /* Sends nothing more, and ignores what arrives. */
        (void)shutdown(connection->fd, SHUT_WR);
        loop_io_start(connection->options.loop, &connection->io, connection->fd, LOOP_READ,
                      on_farewell_io);
        loop_timer_start(connection->options.loop, &connection->timer,
                         FAREWELL_SECONDS * NSEC_PER_SEC, on_farewell_timer);
        return;
    }
    if (r < 0 || (r == 0 && http2_session_is_over(connection->session))) {
        end(connection);
        return;
    }
    loop_io_start(connection->options.loop, &connection->io, connection->fd,
                  r > 0 ? LOOP_WRITE : LOOP_READ, on_io);
    start_timer(connection);
}

/* The bytes that a client sent last are still processed after it has gone. If they broke the
 * session, the client is told so when the rest is written. */
static void on_io(struct loop_io *io, int events)
{
    struct http2_connection *connection = container_of(io, struct http2_connection, io);
    char bytes[READ_BYTES];
    ssize_t length;

    if (events & LOOP_READ) {
        length = recv(connection->fd, bytes, sizeof(bytes), 0);
        if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR)) {
            end(connection);
            return;
        }
        if (length > 0)
            (void)http2_session_receive(connection->session, bytes, (size_t)length);
    }
    go_on(connection);
}

static void on_timer(struct loop_timer *timer)
{
    struct http2_connection *connection = container_of(timer, struct http2_connection, timer);
    uint64_t now = clock_boottime();

    connection->checked_ns = now;
    if (now >= deadline_of(connection)) {
        http2_session_shut_down(connection->session);
        connection->leaving = true;
        if (connection->left_bytes || !http2_session_has_begun(connection->session))
            end(connection); /* it does not read, or has requested nothing */
        else
            go_on(connection);
        return;
    }
    if (now > REQUEST_SECONDS * NSEC_PER_SEC)
        http2_session_expire(connection->session, now - REQUEST_SECONDS * NSEC_PER_SEC);
    go_on(connection);
}

void http2_connection_wake(struct http2_connection *connection)
{
    loop_io_start(connection->options.loop, &connection->io, connection->fd, LOOP_WRITE, on_io);
}

void http2_connection_shut_down(struct http2_connection *connection)
{
    http2_session_shut_down(connection->session);
    connection->leaving = true;
    http2_connection_wake(connection);
}

uint64_t http2_connection_idle_since(const struct http2_connection *connection)
{
    return http2_session_idle_since(connection->session);
}

bool http2_connection_has_begun(const struct http2_connection *connection)
{
    return http2_session_has_begun(connection->session);
}

/* ---- life ---- */

int http2_connection_new(const struct http2_connection_options *options, int fd,
                         struct http2_connection **ret_connection)
{
    struct http2_connection *connection = calloc(1, sizeof(*connection));
    int r;

    if (!connection) {
        fd_close(fd);
        return -ENOMEM;
    }
    connection->options = *options;
    connection->fd = fd;
    connection->began_ns = connection->checked_ns = connection->moved_ns = clock_boottime();
    r = http2_session_new(options->handler, options->userdata, options->room, &connection->session);
    if (r < 0) {
        fd_close(fd);
        free(connection);
        return r;
    }
    http2_connection_wake(connection);
    *ret_connection = connection;
    return 0;
}

struct http2_connection *http2_connection_free(struct http2_connection *connection)
{
    if (!connection)
        return NULL;
    loop_io_stop(&connection->io);
    loop_timer_stop(&connection->timer);
    (void)write_some(connection);
    http2_session_free(connection->session);
    fd_close(connection->fd);
    free(connection);
    return NULL;
}
