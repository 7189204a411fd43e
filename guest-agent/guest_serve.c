/* SPDX-License-Identifier: Apache-2.0 */
/* guest_serve.c - listening sockets and serial ports.
 *
 * A socket accepts at most SERVE_CONNECTIONS at once; for one more, the connection that has been
 * idle for longest is closed. Without free descriptors it pauses, because accept(2) would fail in a
 * tight loop.
 *
 * vsock: the host alone is served. Its cid is 2 for every transport (vsock(7)). Processes of the
 * guest's own have 1 or the guest's cid, sibling VMs of a vhost-user-vsock theirs.
 *
 * A serial port: it is opened once and stays open, and one connection after another runs over a
 * duplicate of its descriptor. While no host peer is attached, virtio-serial always reads
 * end-of-file and polls as hung up at once: then the port waits for a peer. (Closing it instead
 * would have the VMM announce each closing and opening to its management.) virtio-serial sends
 * SIGIO when a peer attaches, which poll(2) cannot wait for without spinning; the port is also
 * polled five times a second, for drivers that send none. A port that is gone or replaced is opened
 * anew.
 *
 * Bytes and the notices that peers attach or leave take different queues to this guest, so the
 * bytes of a client may arrive before the notice that the previous one left. Therefore a connection
 * that ended is dropped, with its pending replies, only if no peer is attached when the port is
 * polled next; a new peer takes the connection over. Replies to the previous client may then reach
 * the new one, which recognises by the stream id that they are not its own.
 */
#include "guest-agent/guest_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include "agent-client/agent_address.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

#define ACCEPT_PAUSE_NS (1 * NSEC_PER_SEC)
#define ATTACH_PAUSE_NS (200 * NSEC_PER_MSEC)

struct server {
    struct loop *loop;
    uint64_t idle_ns;
    int fd;     /* listening, or the serial port; -1 while that is not there */
    char *path; /* unix, serial */
    bool serial;
    bool complained; /* about a serial port that is not there */
    struct loop_io io;
    struct loop_timer timer;
    struct loop_signal attached;                       /* serial: SIGIO */
    struct connection *connections[SERVE_CONNECTIONS]; /* serial: only the first */
    bool has_peer;                                     /* serial: it has not ended */
};

static void on_accept(struct loop_io *io, int events);
static void on_attach(struct loop_timer *timer);

static void on_connection_ended(struct connection *connection, void *userdata)
{
    struct server *server = userdata;

    if (server->serial) {
        server->has_peer = false;
        loop_timer_start(server->loop, &server->timer, ATTACH_PAUSE_NS, on_attach);
        return;
    }
    for (size_t i = 0; i < SERVE_CONNECTIONS; i++) {
        if (server->connections[i] == connection) {
            server->connections[i] = connection_free(connection);
            break;
        }
    }
}

static void on_accept_again(struct loop_timer *timer)
{
    struct server *server = container_of(timer, struct server, timer);

    loop_io_start(server->loop, &server->io, server->fd, LOOP_READ, on_accept);
}

/* A free slot, if necessary that of the connection that has been idle for longest; NULL: all are
 * busy. */
static struct connection **make_room(struct server *server)
{
    struct connection **slot = NULL;
    uint64_t since = UINT64_MAX;

    for (size_t i = 0; i < SERVE_CONNECTIONS; i++) {
        struct connection **each = &server->connections[i];
        uint64_t idle_since = *each ? connection_idle_since(*each) : 0;

        if (idle_since < since) {
            slot = each;
            since = idle_since;
        }
    }
    if (slot && *slot) {
        log_warning(NULL, "too many connections: the one that was idle for longest is closed");
        *slot = connection_free(*slot);
    }
    return slot;
}

static void on_accept(struct loop_io *io, int events)
{
    struct server *server = container_of(io, struct server, io);
    struct connection **slot = NULL;
    struct sockaddr_vm peer = {0};
    socklen_t size = sizeof(peer);
    int fd = accept4(server->fd, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        log_warning(NULL, "cannot accept a connection: %s", strerror(errno));
        loop_io_stop(&server->io);
        loop_timer_start(server->loop, &server->timer, ACCEPT_PAUSE_NS, on_accept_again);
    }
    if (fd < 0)
        return;
    if (peer.svm_family == AF_VSOCK && peer.svm_cid != VMADDR_CID_HOST)
        log_debug(NULL, "a connection from cid %u is closed: only the host is served",
                  peer.svm_cid);
    else
        slot = make_room(server);
    if (!slot)
        fd_close(fd);
    else if (connection_new(server->loop, fd, false, server->idle_ns, on_connection_ended, server,
                            slot) < 0)
        log_warning(NULL, "cannot serve a connection");
}

static int open_port(const char *path, int *ret_fd)
{
    cleanup(fd_closep) int fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    struct termios settings;
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISCHR(status.st_mode))
        return -ENOTTY;
    if (tcgetattr(fd, &settings) == 0) {
        cfmakeraw(&settings);
        if (tcsetattr(fd, TCSANOW, &settings) < 0)
            return -errno;
    }
    /* Without SIGIO only the timer notices a peer. */
    if (fcntl(fd, F_SETOWN, getpid()) == 0)
        (void)fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK | O_ASYNC);
    *ret_fd = take_fd(&fd);
    return 0;
}

/* Whether the path still leads to the port that is open. */
static bool is_same_port(const struct server *server)
{
    struct stat open_one, named;

    return fstat(server->fd, &open_one) == 0 && stat(server->path, &named) == 0 &&
           open_one.st_rdev == named.st_rdev && open_one.st_ino == named.st_ino;
}

enum {
    ATTACHED,
    NOT_ATTACHED, /* the port is there, but no peer is */
};

static int attach(struct server *server)
{
    struct pollfd poll_fd = {.events = POLLIN};
    int r, fd;

    if (server->fd >= 0 && !is_same_port(server)) {
        fd_close(take_fd(&server->fd));
        server->connections[0] = connection_free(server->connections[0]);
    }
    if (server->fd < 0) {
        r = open_port(server->path, &server->fd);
        if (r < 0)
            return r;
    }
    poll_fd.fd = server->fd;
    if (poll(&poll_fd, 1, 0) < 0)
        return -errno;
    if ((poll_fd.revents & POLLHUP) && !(poll_fd.revents & POLLIN))
        return NOT_ATTACHED;
    fd = fcntl(server->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return -errno;
    if (server->connections[0])
        return connection_resume(server->connections[0], fd);
    return connection_new(server->loop, fd, true, server->idle_ns, on_connection_ended, server,
                          &server->connections[0]);
}

/* Whether the host is there. */
static bool try_to_attach(struct server *server)
{
    int r = attach(server);

    if (r < 0 && !server->complained)
        log_warning(NULL, "cannot use %s, will try again: %s", server->path, strerror(-r));
    server->complained = r < 0;
    server->has_peer = r == ATTACHED;
    if (server->has_peer)
        loop_timer_stop(&server->timer);
    return server->has_peer;
}

static void on_attach(struct loop_timer *timer)
{
    struct server *server = container_of(timer, struct server, timer);

    if (try_to_attach(server))
        return;
    server->connections[0] = connection_free(server->connections[0]);
    loop_timer_start(server->loop, &server->timer, ATTACH_PAUSE_NS, on_attach);
}

static void on_attached(struct loop_signal *signal)
{
    struct server *server = container_of(signal, struct server, attached);

    if (!server->has_peer)
        (void)try_to_attach(server);
}

static int listen_on(struct server *server, const struct sockaddr *name, socklen_t size)
{
    cleanup(fd_closep) int fd =
        socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, name, size) < 0 || listen(fd, SERVE_CONNECTIONS) < 0)
        return -errno;
    server->fd = take_fd(&fd);
    loop_io_start(server->loop, &server->io, server->fd, LOOP_READ, on_accept);
    return 0;
}

/* A socket left over from an earlier run is replaced, any other file is not. Only root may connect.
 */
static int listen_unix(struct server *server)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct stat status;
    mode_t mask;
    int r;

    if (strlen(server->path) >= sizeof(name.sun_path))
        return -ENAMETOOLONG;
    strcpy(name.sun_path, server->path);
    if (lstat(server->path, &status) == 0 && S_ISSOCK(status.st_mode))
        (void)unlink(server->path);
    mask = umask(0177);
    r = listen_on(server, (const struct sockaddr *)&name, sizeof(name));
    (void)umask(mask);
    return r;
}

static int server_start(struct server *server, const char *address)
{
    struct sockaddr_vm name = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY};
    const bool is_unix = strncmp(address, "unix://", 7) == 0;
    const char *path = address + (is_unix ? 7 : 9);

    if (strncmp(address, "vsock://", 8) == 0)
        return agent_address_parse_number(address + 8, strlen(address + 8), 1, &name.svm_port) < 0
                   ? SERVER_NO_ADDRESS
                   : listen_on(server, (const struct sockaddr *)&name, sizeof(name));
    if ((!is_unix && strncmp(address, "serial://", 9) != 0) || path[0] != '/' || !path[1])
        return SERVER_NO_ADDRESS;
    server->path = strdup(path);
    if (!server->path)
        return -ENOMEM;
    if (is_unix)
        return listen_unix(server);
    server->serial = true;
    loop_signal_start(server->loop, &server->attached, SIGIO, on_attached);
    loop_timer_start(server->loop, &server->timer, 0, on_attach);
    return 0;
}

int server_new(struct loop *loop, const char *address, uint64_t idle_ns, struct server **ret_server,
               struct error *error)
{
    struct server *server = calloc(1, sizeof(*server));
    int r = -ENOMEM;

    if (server) {
        *server = (struct server){.loop = loop, .idle_ns = idle_ns, .fd = -1};
        r = server_start(server, address);
    }
    if (r == 0) {
        *ret_server = server;
        return 0;
    }
    (void)server_free(server);
    return r == SERVER_NO_ADDRESS
               ? error_set(error, r, "%s is none of vsock://PORT, unix:///PATH, serial:///dev/NAME",
                           address)
               : error_set_errno(error, r, "cannot listen on %s", address);
}

struct server *server_free(struct server *server)
{
    if (!server)
        return NULL;
    for (size_t i = 0; i < SERVE_CONNECTIONS; i++)
        (void)connection_free(server->connections[i]);
    loop_io_stop(&server->io);
    loop_timer_stop(&server->timer);
    loop_signal_stop(&server->attached);
    if (server->fd >= 0 && server->path && !server->serial)
        (void)unlink(server->path);
    fd_close(server->fd);
    free(server->path);
    free(server);
    return NULL;
}
