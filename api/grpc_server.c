/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_server.c - the listening socket and its connections: reading, writing and time limits.
 *
 * There are at most CONNECTIONS at a time. A new connection beyond that replaces the one that has
 * been without a request for longest, so that clients that connect and stay silent cannot exclude
 * others. The new one is closed only if all have a request in flight. Bodies take at most
 * ROOM_BYTES together, beyond each connection's own allowance.
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
#include "api/grpc_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/listen.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/log.h"

enum {
    CONNECTIONS = 64,
    ACCEPTS = 8,
    ROOM_BYTES = 4 * 1024 * 1024,
    READ_BYTES = 16 * 1024,
    WRITE_BYTES = 16 * 1024,
    BEGIN_SECONDS = 10,
    REQUEST_SECONDS = 10,
    STALL_SECONDS = 30,
    IDLE_SECONDS = 300,
    CHECK_SECONDS = 5,
    FAREWELL_SECONDS = 1,
};

struct grpc_connection {
    struct grpc_server *server;
    struct grpc_connection *next;
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
    bool is_replaced;    /* by a new connection; no longer counted */
};

struct grpc_server {
    struct grpc_call_options calls;
    struct unix_socket socket;
    struct loop_io accepting;
    struct loop_timer pause; /* while no descriptor is left for a connection */
    struct http2_room room;
    struct grpc_connection *connections;
    unsigned count, replaced;
};

static const struct call_method *const services[] = {
    crust_runtime_methods, crust_management_methods, crust_drives_methods, health_methods, NULL};

static void on_io(struct loop_io *io, int events);
static void on_timer(struct loop_timer *timer);

/* ---- time ---- */

/* When the client's time is over, if it does nothing until then. A client that only pings counts as
 * idle; one whose request is worked on has time. */
static uint64_t deadline_of(const struct grpc_connection *connection)
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

static void start_timer(struct grpc_connection *connection)
{
    const bool is_busy =
        connection->left_bytes || http2_session_idle_since(connection->session) == HTTP2_BUSY;
    const uint64_t now = clock_boottime();
    const uint64_t at =
        is_busy ? connection->checked_ns + CHECK_SECONDS * NSEC_PER_SEC : deadline_of(connection);

    loop_timer_start(connection->server->calls.surroundings.loop, &connection->timer,
                     at > now ? at - now : 0, on_timer);
}

/* ---- bytes ---- */

/* A reply is several frames, which the session provides one by one. They are written together,
 * because each write wakes the client. */
static void gather(struct grpc_connection *connection)
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
static int write_some(struct grpc_connection *connection)
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

/* Sends what can be sent at once, cancels the requests, closes. */
static void remove_connection(struct grpc_connection *connection)
{
    LL_DELETE(connection->server->connections, connection);
    if (connection->is_replaced)
        connection->server->replaced--;
    else
        connection->server->count--;
    loop_io_stop(&connection->io);
    loop_timer_stop(&connection->timer);
    (void)write_some(connection);
    http2_session_free(connection->session);
    fd_close(connection->fd);
    free(connection);
}

static void on_farewell_io(struct loop_io *io, int events)
{
    struct grpc_connection *connection = container_of(io, struct grpc_connection, io);
    char ignored[READ_BYTES];
    ssize_t length = recv(connection->fd, ignored, sizeof(ignored), 0);

    (void)events;
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        remove_connection(connection);
}

static void on_farewell_timer(struct loop_timer *timer)
{
    remove_connection(container_of(timer, struct grpc_connection, timer));
}

/* Writes, then waits for what comes next. Must be the last call of a callback, because it may end
 * the connection. */
static void go_on(struct grpc_connection *connection)
{
    int r;

    if (!connection->left_bytes)
        connection->moved_ns = clock_boottime();
    r = write_some(connection);
    if (r == 0 && connection->leaving && http2_session_is_over(connection->session)) {
        /* Sends nothing more, and ignores what arrives. */
        (void)shutdown(connection->fd, SHUT_WR);
        loop_io_start(connection->server->calls.surroundings.loop, &connection->io, connection->fd,
                      LOOP_READ, on_farewell_io);
        loop_timer_start(connection->server->calls.surroundings.loop, &connection->timer,
                         FAREWELL_SECONDS * NSEC_PER_SEC, on_farewell_timer);
        return;
    }
    if (r < 0 || (r == 0 && http2_session_is_over(connection->session))) {
        remove_connection(connection);
        return;
    }
    loop_io_start(connection->server->calls.surroundings.loop, &connection->io, connection->fd,
                  r > 0 ? LOOP_WRITE : LOOP_READ, on_io);
    start_timer(connection);
}

/* The bytes that a client sent last are still processed after it has gone. If they are no
 * valid HTTP/2, the client gets the error after what is still to be written. */
static void on_io(struct loop_io *io, int events)
{
    struct grpc_connection *connection = container_of(io, struct grpc_connection, io);
    char bytes[READ_BYTES];
    ssize_t length;

    if (events & LOOP_READ) {
        length = recv(connection->fd, bytes, sizeof(bytes), 0);
        if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR)) {
            remove_connection(connection);
            return;
        }
        if (length > 0)
            (void)http2_session_receive(connection->session, bytes, (size_t)length);
    }
    go_on(connection);
}

static void on_timer(struct loop_timer *timer)
{
    struct grpc_connection *connection = container_of(timer, struct grpc_connection, timer);
    uint64_t now = clock_boottime();

    connection->checked_ns = now;
    if (now >= deadline_of(connection)) {
        http2_session_shut_down(connection->session);
        connection->leaving = true;
        if (connection->left_bytes || !http2_session_has_begun(connection->session))
            remove_connection(connection); /* it does not read, or has requested nothing */
        else
            go_on(connection);
        return;
    }
    if (now > REQUEST_SECONDS * NSEC_PER_SEC)
        http2_session_expire(connection->session, now - REQUEST_SECONDS * NSEC_PER_SEC);
    go_on(connection);
}

static void wake(struct grpc_connection *connection)
{
    loop_io_start(connection->server->calls.surroundings.loop, &connection->io, connection->fd,
                  LOOP_WRITE, on_io);
}

/* Sends GOAWAY. The connection ends once its requests have been replied to and the client has hung
 * up, or a second later. */
static void shut_down(struct grpc_connection *connection)
{
    http2_session_shut_down(connection->session);
    connection->leaving = true;
    wake(connection);
}

/* ---- connections ---- */

/* Prefers clients that have said nothing yet over those that have made calls; of either kind, the
 * one that has been idle for longest. */
static struct grpc_connection *find_idlest(const struct grpc_server *server)
{
    struct grpc_connection *idlest = NULL;
    uint64_t since = UINT64_MAX;
    bool begun = true;

    for (struct grpc_connection *one = server->connections; one; one = one->next) {
        const bool has_begun = http2_session_has_begun(one->session);
        const uint64_t idle_since = http2_session_idle_since(one->session);

        if (one->is_replaced || idle_since == HTTP2_BUSY || (has_begun && !begun) ||
            (has_begun == begun && idle_since >= since))
            continue;
        idlest = one;
        since = idle_since;
        begun = has_begun;
    }
    return idlest;
}

static bool make_room(struct grpc_server *server)
{
    struct grpc_connection *idlest, *first = NULL;

    if (server->count < CONNECTIONS)
        return true;
    idlest = find_idlest(server);
    if (!idlest) {
        log_warning(&(struct log_ids){.source = "grpc"},
                    "all %d connections have a call in flight: closing a new one", CONNECTIONS);
        return false;
    }
    shut_down(idlest); /* so that none of its calls is lost */
    if (!http2_session_has_begun(idlest->session)) {
        remove_connection(idlest);
        return true;
    }
    idlest->is_replaced = true;
    server->count--;
    server->replaced++;
    if (server->replaced <= CONNECTIONS)
        return true;
    for (struct grpc_connection *one = server->connections; one; one = one->next)
        if (one->is_replaced)
            first = one; /* the list begins with the newest */
    remove_connection(first);
    return true;
}

static void on_request(struct http2_request *request, void *userdata)
{
    struct grpc_connection *connection = userdata;

    grpc_call_begin(&connection->server->calls, request, connection);
}

static const struct http2_handler handler = {on_request, grpc_call_cancel};

/* Takes over the connected descriptor. */
static void add_connection(struct grpc_server *server, int fd)
{
    struct grpc_connection *connection = make_room(server) ? calloc(1, sizeof(*connection)) : NULL;

    if (!connection ||
        http2_session_new(&handler, connection, &server->room, &connection->session) < 0) {
        free(connection);
        fd_close(fd);
        return;
    }
    connection->server = server;
    connection->fd = fd;
    connection->began_ns = connection->checked_ns = connection->moved_ns = clock_boottime();
    connection->next = server->connections;
    server->connections = connection;
    server->count++;
    wake(connection);
}

/* ---- the socket ---- */

static void on_accept(struct loop_io *io, int events);

static void on_pause(struct loop_timer *timer)
{
    struct grpc_server *server = container_of(timer, struct grpc_server, pause);

    loop_io_start(server->calls.surroundings.loop, &server->accepting, server->socket.fd, LOOP_READ,
                  on_accept);
}

static void on_accept(struct loop_io *io, int events)
{
    struct grpc_server *server = container_of(io, struct grpc_server, accepting);

    (void)events;
    for (unsigned i = 0; i < ACCEPTS; i++) {
        int fd = accept4(server->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
                return;
            /* Without a pause, the loop would spin on a connection that cannot be accepted. */
            log_warning(&(struct log_ids){.source = "grpc"}, "cannot accept a connection: %s",
                        strerror(errno));
            loop_io_stop(&server->accepting);
            loop_timer_start(server->calls.surroundings.loop, &server->pause, NSEC_PER_SEC,
                             on_pause);
            return;
        }
        if (unix_socket_admits(&server->socket, fd))
            add_connection(server, fd);
        else
            fd_close(fd);
    }
}

static void stop_accepting(struct grpc_server *server)
{
    loop_io_stop(&server->accepting);
    loop_timer_stop(&server->pause);
    unix_socket_close(&server->socket);
}

/* ---- life ---- */

int grpc_server_new(struct loop *loop, struct reconciler *reconciler,
                    const struct grpc_server_options *options, struct grpc_server **ret_server,
                    struct error *error)
{
    struct grpc_server *server = calloc(1, sizeof(*server));
    int r;

    if (!server)
        return error_set(error, -ENOMEM, "cannot start the gRPC server: out of memory");
    server->calls =
        (struct grpc_call_options){{loop, reconciler, options->operations}, services, wake};
    server->room.limit = ROOM_BYTES;
    server->socket = (struct unix_socket)UNIX_SOCKET_INIT;
    r = unix_socket_listen(options->root, options->socket_path, options->socket_group,
                           &server->socket, error);
    if (r < 0) {
        grpc_server_free(server);
        return r;
    }
    loop_io_start(loop, &server->accepting, server->socket.fd, LOOP_READ, on_accept);
    *ret_server = server;
    return 0;
}

void grpc_server_shut_down(struct grpc_server *server)
{
    stop_accepting(server);
    for (struct grpc_connection *one = server->connections; one; one = one->next)
        shut_down(one);
}

struct grpc_server *grpc_server_free(struct grpc_server *server)
{
    if (!server)
        return NULL;
    stop_accepting(server);
    while (server->connections)
        remove_connection(server->connections);
    free(server);
    return NULL;
}
