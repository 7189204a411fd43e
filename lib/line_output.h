/* SPDX-License-Identifier: Apache-2.0 */
/* line_output.h - lines written to a descriptor that may be full or gone, without waiting for it.
 *
 * For stdout, which a container engine, journald or a shell has opened, and which others write to
 * as well: its flags are left alone. Each line is written in one piece, so that it does not mix
 * with what others write to the same pipe. A line that cannot be written now is dropped and
 * counted.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest line, with its end: a pipe takes as much in one piece (POSIX: PIPE_BUF). */
enum { LINE_OUTPUT_LINE_BYTES = PIPE_BUF };

struct line_output {
    uint64_t written, dropped; /* lines, since the beginning */
    /* The rest is private. */
    int fd;
    bool is_own;      /* opened here */
    bool is_socket;   /* MSG_DONTWAIT says what O_NONBLOCK says elsewhere */
    bool may_block;   /* could not be opened anew: poll(2) is asked before each write */
    bool is_mid_line; /* a line was written in part */
};

/* fd: borrowed, and stays as it is. */
void line_output_init(struct line_output *output, int fd);
void line_output_done(struct line_output *output);

enum line_output_failure { LINE_OUTPUT_FULL = -EAGAIN };

/* Whole lines of at most LINE_OUTPUT_LINE_BYTES. 0, or why the last line that was dropped was: FULL
 * or another -errno. */
int line_output_write(struct line_output *output, const char *lines, size_t length);
