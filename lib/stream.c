/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - one connection, from connect(2) to its one closing call.
 *
 * Invariants: handlers are only called from the loop. After each call `freed` is checked before the
 * stream is touched, because the handler may have freed it. `ended` comes last and once; before it
 * the descriptor is closed and every source is stopped.
 *
 * Received bytes are delivered before the end is: each iteration reads once, so end-of-file is met
 * only after everything before it was delivered. Therefore a failed write does not end the stream
 * at once; the remaining input is read first.
 *
 * The output stays queued until the kernel has taken it. stream_send() does not report a failed
 * write: the socket stays writable, the loop tries again, meets the same error and reports it.
 */
#include "lib/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"

/* DRAIN_READS: what a peer had still to say, unless it goes on saying it. */
enum { READ_BYTES = 16 * 1024, DRAIN_READS = 64 };

static void on_io(struct loop_io *io, int events);
static void on_deadline(struct loop_timer *timer);

static void stop_passing(struct stream *stream)
{
    if (stream->passes)
        fd_close(stream->passed);
    stream->passes = false;
}

/* The last thing done to a stream: the handler may free it. */
static void stream_end_with(struct stream *stream, enum stream_end end, const struct error *error)
{
    const struct error copy = *error; /* it may be the stream's */

    stream->ended = true;
    loop_io_stop(&stream->io);
    loop_timer_stop(&stream->deadline);
    fd_close(take_fd(&stream->fd));
    stop_passing(stream);
    stream->handler->ended(stream, end, &copy);
}

static void stream_end(struct stream *stream, enum stream_end end, int code, const char *what)
{
    struct error error;

    if (end == STREAM_TIMEOUT || end == STREAM_OVERFLOW)
        (void)error_set(&error, code, "%s", what);
    else
        (void)error_set_errno(&error, code, "%s", what);
    stream_end_with(stream, end, &error);
}

/* Calls a handler that may free the stream; false if it did, or if the stream has ended. */
static bool stream_call(struct stream *stream, void (*callback)(struct stream *stream))
{
    bool freed = false;

    if (!callback)
        return true;
    /* cppcheck-suppress autoVariables ; taken back below, unless the stream is gone */
    stream->freed = &freed;
    callback(stream);
    if (freed)
        return false;
    stream->freed = NULL;
    return true;
}

static void stream_watch(struct stream *stream)
{
    bool write = stream->connecting || stream->output.length;

    loop_io_start(stream->loop, &stream->io, stream->fd, LOOP_READ | (write ? LOOP_WRITE : 0),
                  on_io);
}

/* Writes with the descriptor that is to be passed; once a byte is written, so is the descriptor. */
static ssize_t send_passing(struct stream *stream)
{
    union {
        struct cmsghdr header; /* for its alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec bytes = {.iov_base = stream->output.data, .iov_len = stream->output.length};
    struct msghdr message = {
        .msg_iov = &bytes,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    ssize_t written;

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &stream->passed, sizeof(int));
    written = sendmsg(stream->fd, &message, MSG_NOSIGNAL);
    if (written > 0)
        stop_passing(stream);
    return written;
}

static ssize_t send_output(struct stream *stream)
{
    const struct buffer *output = &stream->output;
    ssize_t written;

    if (stream->passes)
        return send_passing(stream);
    written = send(stream->fd, output->data, output->length, MSG_NOSIGNAL);
    if (written < 0 && errno == ENOTSOCK)
        written = write(stream->fd, output->data, output->length);
    return written;
}

/* Writes what the kernel takes. 0 also if it takes nothing now. */
static int stream_flush(struct stream *stream)
{
    struct buffer *output = &stream->output;

    while (output->length) {
        ssize_t written = send_output(stream);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno == EAGAIN ? 0 : -errno;
        buffer_consume(output, (size_t)written);
    }
    return 0;
}

enum read_result { READ_SOME, READ_NOTHING, READ_ENDED };

/* One read and its delivery. READ_ENDED: the stream is over or freed, do not touch it. */
static enum read_result stream_read(struct stream *stream)
{
    char bytes[READ_BYTES];
    size_t room = stream->input.limit - stream->input.length;
    ssize_t count = read(stream->fd, bytes, room < sizeof(bytes) ? room : sizeof(bytes));
    int r;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return READ_NOTHING;
    if (count < 0) {
        stream_end(stream, STREAM_CLOSED, -errno, "the connection broke");
        return READ_ENDED;
    }
    if (count == 0) {
        stream_end(stream, STREAM_CLOSED, -ECONNRESET, "the peer closed the connection");
        return READ_ENDED;
    }
    r = buffer_append(&stream->input, bytes, (size_t)count);
    if (r < 0) {
        stream_end(stream, STREAM_FAILED, r, "cannot keep what was received");
        return READ_ENDED;
    }
    loop_announce(stream->loop, "what a peer sent", NULL);
    if (!stream_call(stream, stream->handler->received))
        return READ_ENDED;
    if (stream->input.length >= stream->input.limit) {
        stream_end(stream, STREAM_OVERFLOW, -EMSGSIZE, "the peer sent too much at once");
        return READ_ENDED;
    }
    return READ_SOME;
}

/* The peer accepts nothing more; what it sent before is still read. */
static void stream_drain(struct stream *stream, int code)
{
    enum read_result result = READ_SOME;

    for (unsigned reads = 0; result == READ_SOME && reads < DRAIN_READS; reads++)
        result = stream_read(stream);
    if (result != READ_ENDED)
        stream_end(stream, STREAM_CLOSED, code, "the peer takes nothing more");
}

/* False if the stream is over or freed. */
static bool stream_finish_connect(struct stream *stream)
{
    int code = 0;
    socklen_t size = sizeof(code);

    if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        code = errno;
    if (code) {
        stream_end(stream, STREAM_REFUSED, -code, "cannot connect");
        return false;
    }
    stream->connecting = false;
    return stream_call(stream, stream->handler->connected);
}

static void on_io(struct loop_io *io, int events)
{
    struct stream *stream = container_of(io, struct stream, io);
    int r;

    if (stream->connecting && !stream_finish_connect(stream))
        return;
    r = stream_flush(stream);
    if (r < 0) {
        stream_drain(stream, r);
        return;
    }
    if ((events & LOOP_READ) && stream_read(stream) == READ_ENDED)
        return;
    stream_watch(stream);
}

static void on_deadline(struct loop_timer *timer)
{
    struct stream *stream = container_of(timer, struct stream, deadline);

    stream_end(stream, STREAM_TIMEOUT, -ETIMEDOUT,
               stream->connecting ? "no connection in time" : "no answer in time");
}

/* A connect that failed at once, reported from the loop. */
static void on_refusal(struct loop_timer *timer)
{
    struct stream *stream = container_of(timer, struct stream, deadline);

    stream_end_with(stream, STREAM_REFUSED, &stream->refusal);
}

static void stream_init(struct stream *stream, struct loop *loop, size_t input_limit,
                        size_t output_limit, const struct stream_handler *handler)
{
    *stream = (struct stream){.loop = loop, .handler = handler, .fd = -1};
    buffer_init(&stream->input, input_limit);
    buffer_init(&stream->output, output_limit);
}

/* A connection in progress counts as one. */
static int begin_connecting(int fd, const void *name, socklen_t length)
{
    return connect(fd, name, length) < 0 && errno != EINPROGRESS && errno != EINTR ? -errno : 0;
}

static int cannot_connect(int r, struct error *error)
{
    return r < 0 ? error_set_errno(error, r, "cannot connect") : 0;
}

/* A socket that is named by an open descriptor: its path may be of any length. */
static int connect_handle(int fd, int handle)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    (void)snprintf(name.sun_path, sizeof(name.sun_path), "/proc/self/fd/%d", handle);
    return begin_connecting(fd, &name, sizeof(name));
}

static int connect_absolute(int fd, const char *path)
{
    cleanup(fd_closep) int handle = -1;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t length = strlen(path);

    if (length < sizeof(name.sun_path)) {
        memcpy(name.sun_path, path, length + 1);
        return begin_connecting(fd, &name, sizeof(name));
    }
    handle = open(path, O_PATH | O_CLOEXEC);
    return handle < 0 ? -errno : connect_handle(fd, handle);
}

/* The listener is known as soon as connect(2) returns: unix sockets are connected at once. */
static int connect_unix(int fd, const struct stream_address *address, struct error *error)
{
    cleanup(fd_closep) int handle = -1;
    int r;

    if (address->directory == AT_FDCWD)
        return cannot_connect(connect_absolute(fd, address->path), error);
    r = listener_open(address->directory, address->path, &address->listener, &handle, error);
    if (r == 0)
        r = cannot_connect(connect_handle(fd, handle), error);
    if (r == 0 && !listener_is_believed(fd, address->path, &address->listener, error))
        r = STREAM_FOREIGN;
    error->code = r;
    return r;
}

static int connect_vsock(int fd, const struct stream_address *address)
{
    struct sockaddr_vm name = {
        .svm_family = AF_VSOCK,
        .svm_cid = address->cid,
        .svm_port = address->port,
    };

    return begin_connecting(fd, &name, sizeof(name));
}

static int stream_open(const struct stream_address *address, int *ret_fd, struct error *error)
{
    int family = address->family == STREAM_UNIX ? AF_UNIX : AF_VSOCK;
    cleanup(fd_closep) int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r;

    if (fd < 0)
        return cannot_connect(-errno, error);
    r = family == AF_UNIX ? connect_unix(fd, address, error)
                          : cannot_connect(connect_vsock(fd, address), error);
    if (r < 0)
        return r;
    *ret_fd = take_fd(&fd);
    return 0;
}

int stream_connect(struct stream *stream, struct loop *loop, const struct stream_address *address,
                   uint64_t deadline_ns, size_t input_limit, size_t output_limit,
                   const struct stream_handler *handler)
{
    stream_init(stream, loop, input_limit, output_limit, handler);
    stream->connecting = true;
    if (stream_open(address, &stream->fd, &stream->refusal) < 0) {
        loop_timer_start(loop, &stream->deadline, 0, on_refusal);
        return 0;
    }
    stream_set_deadline(stream, deadline_ns);
    stream_watch(stream);
    return 0;
}

int stream_adopt(struct stream *stream, struct loop *loop, int fd, uint64_t deadline_ns,
                 size_t input_limit, size_t output_limit, const struct stream_handler *handler)
{
    int flags = fcntl(fd, F_GETFL);

    *stream = (struct stream){.fd = -1};
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        int r = -errno;

        fd_close(fd);
        return r;
    }
    stream_init(stream, loop, input_limit, output_limit, handler);
    stream->fd = fd;
    stream_set_deadline(stream, deadline_ns);
    stream_watch(stream);
    return 0;
}

void stream_set_deadline(struct stream *stream, uint64_t nanoseconds)
{
    if (stream->ended || stream->refusal.code)
        return;
    if (nanoseconds == STREAM_NO_DEADLINE)
        loop_timer_stop(&stream->deadline);
    else
        loop_timer_start(stream->loop, &stream->deadline, nanoseconds, on_deadline);
}

int stream_send(struct stream *stream, const void *data, size_t length)
{
    int r;

    if (!stream->handler || stream->ended)
        return -EPIPE;
    r = buffer_try_append(&stream->output, data, length);
    if (r < 0 || stream->fd < 0)
        return r;
    if (!stream->connecting)
        (void)stream_flush(stream);
    stream_watch(stream);
    return 0;
}

int stream_send_descriptor(struct stream *stream, const void *data, size_t length, int descriptor)
{
    int r;

    if (stream->output.length)
        return -EBUSY;
    if (!stream->handler || stream->ended)
        return -EPIPE;
    stream->passed = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
    if (stream->passed < 0)
        return -errno;
    stream->passes = true;
    r = stream_send(stream, data, length);
    if (r < 0)
        stop_passing(stream);
    return r;
}

void stream_done(struct stream *stream)
{
    if (!stream || !stream->handler)
        return;
    if (stream->freed)
        *stream->freed = true;
    loop_io_stop(&stream->io);
    loop_timer_stop(&stream->deadline);
    fd_close(stream->fd);
    stop_passing(stream);
    buffer_done(&stream->input);
    buffer_done(&stream->output);
    *stream = (struct stream){.fd = -1};
}
