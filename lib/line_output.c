/* SPDX-License-Identifier: Apache-2.0 */
/* line_output.c - see line_output.h.
 *
 * O_NONBLOCK belongs to the open file and not to the descriptor, so setting it would change the
 * descriptors of all processes that share it: a shell's terminal, the log on stderr. Therefore a
 * pipe, a terminal or a file is opened anew through /proc/self/fd. Where that is not allowed,
 * poll(2) says whether a pipe has room for PIPE_BUF bytes, which is the most that is written at
 * once.
 */
#include "lib/line_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"

void line_output_init(struct line_output *output, struct loop *loop, int fd, size_t limit)
{
    char path[32];
    struct stat status;

    *output = (struct line_output){.loop = loop, .fd = fd};
    buffer_init(&output->lines, limit);
    output->is_socket = fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
    if (output->is_socket)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    output->fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    output->is_own = output->fd >= 0;
    if (output->is_own)
        return;
    output->fd = fd;
    output->may_block = true;
}

void line_output_done(struct line_output *output)
{
    loop_io_stop(&output->io);
    buffer_done(&output->lines);
    if (output->is_own)
        fd_close(output->fd);
    output->is_own = false;
}

bool line_output_is_waiting(const struct line_output *output)
{
    return output->lines.length > 0;
}

static uint64_t count_lines(const char *text, size_t length)
{
    uint64_t lines = 0;

    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    return lines;
}

/* As many whole lines as go out in one piece. */
static size_t next_piece(const struct buffer *lines)
{
    const size_t most =
        lines->length < LINE_OUTPUT_LINE_BYTES ? lines->length : LINE_OUTPUT_LINE_BYTES;
    const char *end = memrchr(lines->data, '\n', most);

    return end ? (size_t)(end - lines->data) + 1 : most;
}

/* How many bytes were taken: 0 if none can be now. -errno. */
static ssize_t write_now(const struct line_output *output, const char *data, size_t length)
{
    struct pollfd ready = {.fd = output->fd, .events = POLLOUT};
    ssize_t written;

    if (output->may_block && poll(&ready, 1, 0) == 0)
        return 0;
    do
        written = output->is_socket ? send(output->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : write(output->fd, data, length);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return errno == EAGAIN ? 0 : -errno;
    return written > 0 ? written : -EIO;
}

static void on_writable(struct loop_io *io, int events)
{
    (void)events;
    line_output_flush(container_of(io, struct line_output, io));
}

static void drop(struct line_output *output, int failure)
{
    output->failure = failure;
    output->dropped += count_lines(output->lines.data, output->lines.length);
    buffer_clear(&output->lines);
    loop_io_stop(&output->io);
}

/* After a line of which the end was dropped, so that the next one is readable. */
static ssize_t end_torn_line(struct line_output *output)
{
    ssize_t written = write_now(output, "\n", 1);

    if (written > 0)
        output->is_mid_line = false;
    return written;
}

static ssize_t write_piece(struct line_output *output)
{
    const size_t length = next_piece(&output->lines);
    ssize_t written = write_now(output, output->lines.data, length);

    if (written <= 0)
        return written;
    output->failure = 0;
    output->written += count_lines(output->lines.data, (size_t)written);
    output->is_mid_line = output->lines.data[written - 1] != '\n';
    buffer_consume(&output->lines, (size_t)written);
    return written;
}

void line_output_flush(struct line_output *output)
{
    ssize_t written = 1;

    if (output->is_mid_line && output->failure && output->lines.length)
        written = end_torn_line(output);
    while (written > 0 && output->lines.length)
        written = write_piece(output);
    if (written == 0)
        loop_io_start(output->loop, &output->io, output->fd, LOOP_WRITE, on_writable);
    else if (written < 0)
        drop(output, (int)written);
    else
        loop_io_stop(&output->io);
}
