/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - one connection, up to its one closing call.
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
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"

/* DRAIN_READS: what a peer had still to say, unless it goes on saying it. */
enum { READ_BYTES = 16 * 1024, DRAIN_READS = 64 };

static void on_io(struct loop_io *io, int events);
static void on_deadline(struct loop_timer *timer);

/* The last thing done to a stream: the handler may free it. */
static void stream_end(struct stream *stream, enum stream_end end, int code, const char *what)
{
    struct error error;

    if (end == STREAM_TIMEOUT || end == STREAM_OVERFLOW)
        (void)error_set(&error, code, "%s", what);
    else
        (void)error_set_errno(&error, code, "%s", what);
    stream->ended = true;
    loop_io_stop(&stream->io);
    loop_timer_stop(&stream->deadline);
    fd_close(take_fd(&stream->fd));
    stream->handler->ended(stream, end, &error);
}

/* Calls a handler that may free the stream; false if it did, or if the stream has ended. */
static bool stream_call(struct stream *stream, void (*callback)(struct stream *stream))
{
    bool freed = false;

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
    loop_io_start(stream->loop, &stream->io, stream->fd,
                  LOOP_READ | (stream->output.length ? LOOP_WRITE : 0), on_io);
}

static ssize_t send_output(struct stream *stream)
{
    const struct buffer *output = &stream->output;
    ssize_t written = send(stream->fd, output->data, output->length, MSG_NOSIGNAL);

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

static void on_io(struct loop_io *io, int events)
{
    struct stream *stream = container_of(io, struct stream, io);
    int r;

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

    stream_end(stream, STREAM_TIMEOUT, -ETIMEDOUT, "no answer in time");
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
    *stream = (struct stream){.loop = loop, .handler = handler, .fd = fd};
    buffer_init(&stream->input, input_limit);
    buffer_init(&stream->output, output_limit);
    stream_set_deadline(stream, deadline_ns);
    stream_watch(stream);
    return 0;
}

void stream_set_deadline(struct stream *stream, uint64_t nanoseconds)
{
    if (stream->ended)
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
    if (r < 0)
        return r;
    (void)stream_flush(stream);
    stream_watch(stream);
    return 0;
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
    buffer_done(&stream->input);
    buffer_done(&stream->output);
    *stream = (struct stream){.fd = -1};
}
