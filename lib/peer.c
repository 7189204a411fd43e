/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c - see peer.h.
 *
 * SO_PEERCRED has the number of the process at the time of listen(2). That another process has it
 * now is noticed by SO_PEERPIDFD, which Linux has since 6.5; before, the number is all there is.
 */
#include "lib/peer.h"

#include <errno.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/process.h"
#include "lib/text.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum {
    JAILED_ID_CHARS = 32, /* of a sandbox's id, in the names of Firecracker's directories */
    ARGUMENTS_BYTES = 64 * 1024,
    NAME_BYTES = 64,
};

/* ---- the way to the socket ------------------------------------------------------------- */

static bool names_sandbox(const char *component, size_t length, const char *sandbox_id)
{
    size_t id_length = strlen(sandbox_id);

    return (length == id_length || (length == JAILED_ID_CHARS && id_length > JAILED_ID_CHARS)) &&
           strncmp(component, sandbox_id, length) == 0;
}

/* The length of what leads to the sandbox's own directory: up to the last component that is its id,
 * else all but the last component. */
static size_t length_of_directory(const char *path, const char *sandbox_id)
{
    const char *name = strrchr(path, '/');
    size_t found = name ? (size_t)(name - path) : 0;

    for (const char *at = path; sandbox_id && *sandbox_id && *at;) {
        size_t slashes = strspn(at, "/"), length = strcspn(at + slashes, "/");
        const char *end = at + slashes + length;

        if (*end && names_sandbox(at + slashes, length, sandbox_id))
            found = (size_t)(end - path);
        at = end;
    }
    return found;
}

int listener_open(int root, const char *path, const struct listener *listener, int *ret_fd,
                  struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    cleanup(freep) char *upper = NULL;
    size_t length = length_of_directory(path, listener->sandbox_id);
    int r;

    if (listener->vmm) {
        upper = strndup(path, length);
        r = upper ? path_open_directory_in_root(root, *upper ? upper : "/", &directory) : -ENOMEM;
        if (r == 0)
            r = path_open_unlinked(directory, path + length + strspn(path + length, "/"), ret_fd);
    } else {
        r = path_open_in_root(root, path, ret_fd);
    }
    if (r == PATH_BEHIND_A_LINK)
        return error_set(error, r,
                         "cannot connect: below the sandbox's directory a link is on the way to %s",
                         path);
    return r < 0 ? error_set_errno(error, r, "cannot connect") : 0;
}

/* ---- who listens ----------------------------------------------------------------------- */

/* A pidfd of a process that has ended can be read from (pidfd_open(2)); where the process is gone
 * altogether, some kernels give none. */
static bool pidfd_has_ended(int fd)
{
    cleanup(fd_closep) int process = -1;
    socklen_t size = sizeof(process);
    struct pollfd poll_of = {.events = POLLIN};

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) < 0) {
        process = -1;
        return errno != ENOPROTOOPT;
    }
    poll_of.fd = process;
    return poll(&poll_of, 1, 0) > 0;
}

/* Shims of Kata are started with "-id SANDBOX" (containerd's shim API, which CRI-O speaks as well).
 */
static bool has_id(const struct buffer *arguments, const char *sandbox_id)
{
    const char *argument = buffer_text(arguments), *end = argument + arguments->length;
    bool found = false, expected = false;

    for (; argument < end && !found; argument += strlen(argument) + 1) {
        found = expected && strcmp(argument, sandbox_id) == 0;
        expected = strcmp(argument, "-id") == 0;
    }
    return found;
}

/* Not any process of root's that names the sandbox: a virtiofsd does, and a guest may have it. A
 * process that keeps its memory locked is waited for until the worker's deadline. */
static bool is_shim(pid_t pid, const char *sandbox_id)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);

    return sandbox_id && *sandbox_id && process_read_arguments(pid, &arguments) == 0 &&
           has_id(&arguments, sandbox_id) && process_judge_unjailed(pid, NULL) == PROCESS_ROOTS &&
           process_still_has_arguments(pid, &arguments) == 1;
}

static bool is_of_sandbox(pid_t pid, const struct listener *listener)
{
    struct process vmm;
    bool is_parent = process_read(listener->vmm, &vmm) == 0 && vmm.parent == pid;

    return pid == listener->vmm || is_parent || is_shim(pid, listener->sandbox_id);
}

static bool is_roots_or(uid_t uid, pid_t vmm)
{
    uid_t user = 0;

    if (uid == 0 || uid == geteuid())
        return true;
    return process_judge(vmm, &user) >= 0 && uid == user;
}

static void name_process(pid_t pid, char ret_name[static NAME_BYTES])
{
    cleanup(buffer_done) struct buffer name = BUFFER_INIT(NAME_BYTES);
    const char *text = process_read_file(pid, "comm", &name) == 0 ? buffer_text(&name) : "?";

    text_clean(text, strcspn(text, "\n"), ret_name, NAME_BYTES);
}

bool listener_is_believed(int fd, const char *path, const struct listener *listener,
                          struct error *error)
{
    char name[NAME_BYTES] = "one that has ended";
    struct process process;
    struct ucred peer;
    socklen_t size = sizeof(peer);
    bool is_there;

    if (!listener->vmm)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
        (void)error_set_errno(error, -errno, "cannot find out who listens on %s", path);
        return false;
    }
    is_there =
        peer.pid > 0 && !pidfd_has_ended(fd) && process_read(peer.pid, &process) != PROCESS_GONE;
    if (is_there ? is_of_sandbox(peer.pid, listener) : is_roots_or(peer.uid, listener->vmm))
        return true;
    if (is_there)
        name_process(peer.pid, name);
    (void)error_set(error, 0,
                    "process %d (%s) of user %u listens on %s, which is neither the sandbox's VMM "
                    "nor its shim",
                    (int)peer.pid, name, (unsigned)peer.uid, path);
    return false;
}

/* ---- the connection -------------------------------------------------------------------- */

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
