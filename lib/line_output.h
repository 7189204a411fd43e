/* SPDX-License-Identifier: Apache-2.0 */
/* line_output.h - lines written to a descriptor that may be full or gone, without waiting for it.
 *
 * For stdout, which a container engine, journald or a shell has opened, and which others write to
 * as well: its flags are left alone. Lines are written whole, so that they do not mix with what
 * others write to the same pipe. What cannot be written now stays in the buffer, and the loop goes
 * on with it; what cannot be written at all is dropped and counted.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/loop.h"

/* The longest line, with its end: a pipe takes as much in one piece (POSIX: PIPE_BUF). */
enum { LINE_OUTPUT_LINE_BYTES = PIPE_BUF };

struct line_output {
    struct buffer lines; /* the caller appends whole lines of at most LINE_OUTPUT_LINE_BYTES */
    uint64_t written;    /* lines, since the beginning */
    uint64_t dropped;    /* lines that a failed write took with it */
    int failure;         /* why the last write failed: -errno; 0: it did not */
    /* The rest is private. */
    struct loop *loop;
    struct loop_io io;
    int fd;
    bool is_own;      /* opened here */
    bool is_socket;   /* MSG_DONTWAIT says what O_NONBLOCK says elsewhere */
    bool may_block;   /* could not be opened anew: poll(2) is asked before each write */
    bool is_mid_line; /* a line was written in part */
};

/* fd: borrowed, and stays as it is. */
void line_output_init(struct line_output *output, struct loop *loop, int fd, size_t limit);
void line_output_done(struct line_output *output);

/* Writes what the descriptor takes now of the lines that were appended. */
void line_output_flush(struct line_output *output);

/* Lines are left that the loop will write once the descriptor takes more. */
bool line_output_is_waiting(const struct line_output *output);
