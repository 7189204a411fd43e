/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - one bounded byte stream with an absolute deadline, on a loop: a server's end.
 *
 * An adopted descriptor that does not block, a bounded input buffer, a bounded output buffer, and
 * one deadline for the whole conversation. The owner gets exactly one closing call; after it the
 * stream does nothing more. (A client in a worker uses lib/peer.h.)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"

enum stream_end {
    STREAM_CLOSED,   /* the peer closed or reset */
    STREAM_TIMEOUT,  /* the deadline passed */
    STREAM_OVERFLOW, /* the peer sent more than the limit without a complete message */
    STREAM_FAILED,   /* a local error */
};

struct stream;

struct stream_handler {
    /* New bytes are at stream->input. The handler consumes what it understands and returns; it is
     * called again when more arrive. It may free the stream. */
    void (*received)(struct stream *stream);
    /* Called at most once, never after stream_done(). It may call stream_done(). */
    void (*ended)(struct stream *stream, enum stream_end end, const struct error *error);
};

struct stream {
    struct loop *loop;
    const struct stream_handler *handler;
    int fd;
    bool ended;
    bool *freed; /* set while a handler runs, so that it may free the stream */
    struct buffer input;
    struct buffer output;
    struct loop_io io;
    struct loop_timer deadline;
};

/* For streams that live until one side ends them. */
#define STREAM_NO_DEADLINE UINT64_MAX

/* Takes over a connected descriptor (owned from here on, also on failure); a socket, or anything
 * else that poll(2) can wait for. 0 or -errno. deadline_ns: nanoseconds from now for everything.
 * input_limit, output_limit: bytes, above zero. */
int stream_adopt(struct stream *stream, struct loop *loop, int fd, uint64_t deadline_ns,
                 size_t input_limit, size_t output_limit, const struct stream_handler *handler);

/* Replaces the deadline. */
void stream_set_deadline(struct stream *stream, uint64_t nanoseconds);

/* Queues bytes and tries to write at once. -EMSGSIZE past the limit,
 * -EPIPE after the end. A peer that is gone is reported by the loop, through `ended`. */
int stream_send(struct stream *stream, const void *data, size_t length);

/* Stops, closes, frees. Fine on a zeroed or ended stream, and from within its handlers. */
void stream_done(struct stream *stream);
