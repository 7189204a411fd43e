/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c - see peer.h. */
#include "lib/peer.h"

#include <errno.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"

enum { RECEIVED_BYTES = 16 * 1024 };

static int wait_for(const struct peer *peer, short events, uint64_t until_ns, struct error *error)
{
    struct pollfd socket = {.fd = peer->fd, .events = events};
    int count;

    do {
        const uint64_t now_ns = clock_boottime();
        const uint64_t left_ns = now_ns < until_ns ? until_ns - now_ns : 0;

        count = ppoll(&socket, 1,
                      &(struct timespec){.tv_sec = (time_t)(left_ns / NSEC_PER_SEC),
                                         .tv_nsec = (long)(left_ns % NSEC_PER_SEC)},
                      NULL);
    } while (count < 0 && errno == EINTR);
    if (count > 0)
        return 0;
    return count == 0
               ? error_set(error, PEER_LATE, "no answer in time")
               : error_set(error, PEER_CLOSED, "cannot wait for an answer: %s", strerror(errno));
}

static int peer_init(struct peer *peer, int family, uint64_t deadline_ns, size_t most,
                     struct error *error)
{
    *peer = (struct peer){.fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                          .deadline_ns = deadline_ns,
                          .most = most,
                          .input = BUFFER_INIT(most)};
    if (peer->fd >= 0)
        return 0;
    return error_set(error, result_is_shortage(-errno) ? PEER_HINDERED : PEER_CLOSED,
                     "cannot connect: %s", strerror(errno));
}

static int connect_failed(int code, struct error *error)
{
    if (code == EAGAIN)
        return error_set(error, PEER_FULL, "cannot connect: its queue of connections is full");
    return error_set(error,
                     path_is_missing(-code)      ? PEER_MISSING
                     : result_is_shortage(-code) ? PEER_HINDERED
                                                 : PEER_CLOSED,
                     "cannot connect: %s", strerror(code));
}

static int not_found(int code)
{
    if (path_is_missing(code))
        return PEER_MISSING;
    if (result_is_shortage(code) || code == PATH_MAY_HANG)
        return PEER_HINDERED;
    return code == PATH_BEHIND_A_LINK ? PEER_FOREIGN : PEER_CLOSED;
}

/* The socket is found first, and connected by its descriptor: nobody can put another one in its
 * place in between. */
int peer_connect(struct peer *peer, int root, const char *path, const struct listener *listener,
                 uint64_t deadline_ns, size_t most, struct error *error)
{
    cleanup(fd_closep) int found = -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int r = peer_init(peer, AF_UNIX, deadline_ns, most, error);

    if (r != 0)
        return r;
    r = listener_open(root, path, listener, &found, error);
    if (r < 0)
        return not_found(r);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", found);
    if (connect(peer->fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return connect_failed(errno, error);
    return listener_is_believed(peer->fd, path, listener, error) ? 0 : PEER_FOREIGN;
}

int peer_connect_vsock(struct peer *peer, uint32_t cid, uint32_t port, uint64_t deadline_ns,
                       size_t most, struct error *error)
{
    const struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port};
    int code = 0, r = peer_init(peer, AF_VSOCK, deadline_ns, most, error);
    socklen_t size = sizeof(code);

    if (r != 0)
        return r;
    if (connect(peer->fd, (const struct sockaddr *)(const void *)&address, sizeof(address)) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return connect_failed(errno, error);
    r = wait_for(peer, POLLOUT, deadline_ns, error);
    if (r != 0)
        return r;
    if (getsockopt(peer->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        code = errno;
    return code ? connect_failed(code, error) : 0;
}

static ssize_t send_once(int socket, const void *data, size_t length, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec piece = {(void *)(uintptr_t)data, length};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

int peer_send(struct peer *peer, const void *data, size_t length, int fd, struct error *error)
{
    for (const char *at = data; length > 0;) {
        ssize_t n = send_once(peer->fd, at, length, fd);
        int r;

        if (n > 0) {
            at += n;
            length -= (size_t)n;
            fd = -1; /* it goes with the first byte */
        } else if (n < 0 && errno == EAGAIN) {
            r = wait_for(peer, POLLOUT, peer->deadline_ns, error);
            if (r != 0)
                return r;
        } else if (errno != EINTR) {
            return error_set(error, PEER_CLOSED, "cannot send: %s", strerror(errno));
        }
    }
    return 0;
}

int peer_receive_until(struct peer *peer, uint64_t until_ns, struct error *error)
{
    char bytes[RECEIVED_BYTES];
    ssize_t n = recv(peer->fd, bytes, sizeof(bytes), 0);

    while (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        int r = wait_for(peer, POLLIN, until_ns < peer->deadline_ns ? until_ns : peer->deadline_ns,
                         error);

        if (r != 0)
            return r;
        n = recv(peer->fd, bytes, sizeof(bytes), 0);
    }
    if (n < 0)
        return error_set(error, PEER_CLOSED, "cannot receive: %s", strerror(errno));
    if (n == 0)
        return error_set(error, PEER_CLOSED, "the connection was closed");
    peer->received += (size_t)n;
    if (peer->received > peer->most || buffer_append(&peer->input, bytes, (size_t)n) < 0)
        return error_set(error, PEER_FLOOD, "more than %zu bytes were sent", peer->most);
    return 0;
}

int peer_receive(struct peer *peer, struct error *error)
{
    return peer_receive_until(peer, peer->deadline_ns, error);
}

void peer_close(struct peer *peer)
{
    fd_close(take_fd(&peer->fd));
    buffer_done(&peer->input);
}
