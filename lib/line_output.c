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

void line_output_init(struct line_output *output, int fd)
{
    char path[32];
    struct stat status;

    *output = (struct line_output){.fd = fd};
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
    if (output->is_own)
        fd_close(output->fd);
    output->is_own = false;
}

/* How many bytes were taken, or -errno. */
static ssize_t write_now(const struct line_output *output, const char *data, size_t length)
{
    struct pollfd ready = {.fd = output->fd, .events = POLLOUT};
    ssize_t written;

    if (output->may_block && poll(&ready, 1, 0) == 0)
        return LINE_OUTPUT_FULL;
    do
        written = output->is_socket ? send(output->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : write(output->fd, data, length);
    while (written < 0 && errno == EINTR);
    return written < 0 ? -errno : written > 0 ? written : -EIO;
}

/* A line of which the end was dropped is ended first, so that this one is readable. */
static int write_line(struct line_output *output, const char *line, size_t length)
{
    ssize_t written = output->is_mid_line ? write_now(output, "\n", 1) : 0;

    if (written < 0)
        return (int)written;
    written = write_now(output, line, length);
    output->is_mid_line = written > 0 && (size_t)written < length;
    return written < 0 ? (int)written : output->is_mid_line ? LINE_OUTPUT_FULL : 0;
}

int line_output_write(struct line_output *output, const char *lines, size_t length)
{
    int failure = 0;

    while (length) {
        const char *end = memchr(lines, '\n', length);
        const size_t line = end ? (size_t)(end - lines) + 1 : length;
        const int r = write_line(output, lines, line);

        if (r == 0)
            output->written++;
        else
            output->dropped++;
        failure = r < 0 ? r : failure;
        lines += line;
        length -= line;
    }
    return failure;
}
