/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_server.c - the listening socket and its connections.
 *
 * There are at most CONNECTIONS at a time. A new connection beyond that replaces the one that has
 * been without a request for longest, so that clients that connect and stay silent cannot exclude
 * others. The new one is closed only if all have a request in flight. Bodies take at most
 * ROOM_BYTES together, beyond each connection's own allowance.
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

enum { CONNECTIONS = 64, ACCEPTS = 8, ROOM_BYTES = 4 * 1024 * 1024 };

struct client {
    struct grpc_server *server;
    struct client *next;
    struct http2_connection *connection;
    bool leaving; /* is being replaced by a new connection; no longer counted */
};

struct grpc_server {
    struct grpc_call_options calls;
    struct unix_socket socket;
    struct loop_io accepting;
    struct loop_timer pause; /* while no descriptor is left for a connection */
    struct http2_room room;
    struct client *clients;
    unsigned count, leaving;
};

static const struct call_method *const services[] = {
    crust_runtime_methods, crust_management_methods, crust_drives_methods, health_methods, NULL};

/* ---- clients ---- */

static void on_request(struct http2_request *request, void *userdata)
{
    struct client *client = userdata;

    grpc_call_begin(&client->server->calls, request, client->connection);
}

static void remove_client(struct client *client)
{
    LL_DELETE(client->server->clients, client);
    if (client->leaving)
        client->server->leaving--;
    else
        client->server->count--;
    http2_connection_free(client->connection);
    free(client);
}

static void on_ended(struct http2_connection *connection, void *userdata)
{
    (void)connection;
    remove_client(userdata);
}

static const struct http2_handler handler = {on_request, grpc_call_cancel};

/* Prefers clients that have said nothing yet over those that have made calls; of either kind, the
 * one that has been idle for longest. */
static struct client *find_idlest(const struct grpc_server *server)
{
    struct client *idlest = NULL;
    uint64_t since = UINT64_MAX;
    bool begun = true;

    for (struct client *client = server->clients; client; client = client->next) {
        bool has_begun = http2_connection_has_begun(client->connection);
        uint64_t idle_since = http2_connection_idle_since(client->connection);

        if (client->leaving || idle_since == HTTP2_BUSY || (has_begun && !begun) ||
            (has_begun == begun && idle_since >= since))
            continue;
        idlest = client;
        since = idle_since;
        begun = has_begun;
    }
    return idlest;
}

static bool make_room(struct grpc_server *server)
{
    struct client *idlest, *first = NULL;

    if (server->count < CONNECTIONS)
        return true;
    idlest = find_idlest(server);
    if (!idlest) {
        log_warning(&(struct log_ids){.source = "grpc"},
                    "all %d connections have a call in flight: closing a new one", CONNECTIONS);
        return false;
    }
    http2_connection_shut_down(idlest->connection); /* GOAWAY, so that none of its calls is lost */
    if (!http2_connection_has_begun(idlest->connection)) {
        remove_client(idlest);
        return true;
    }
    idlest->leaving = true;
    server->count--;
    server->leaving++;
    if (server->leaving <= CONNECTIONS)
        return true;
    for (struct client *client = server->clients; client; client = client->next)
        if (client->leaving)
            first = client; /* the list begins with the newest */
    remove_client(first);
    return true;
}

static void add_client(struct grpc_server *server, int fd)
{
    struct http2_connection_options options = {.loop = server->calls.surroundings.loop,
                                               .handler = &handler,
                                               .room = &server->room,
                                               .ended = on_ended};
    struct client *client = make_room(server) ? calloc(1, sizeof(*client)) : NULL;

    if (!client) {
        fd_close(fd);
        return;
    }
    client->server = server;
    options.userdata = client;
    if (http2_connection_new(&options, fd, &client->connection) < 0) {
        free(client);
        return;
    }
    client->next = server->clients;
    server->clients = client;
    server->count++;
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
            add_client(server, fd);
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
    server->calls = (struct grpc_call_options){{loop, reconciler, options->operations}, services};
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
    for (struct client *client = server->clients; client; client = client->next)
        http2_connection_shut_down(client->connection);
}

struct grpc_server *grpc_server_free(struct grpc_server *server)
{
    if (!server)
        return NULL;
    stop_accepting(server);
    while (server->clients)
        remove_client(server->clients);
    free(server);
    return NULL;
}
