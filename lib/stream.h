/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - one bounded byte stream with an absolute deadline.
 *
 * QMP and ttrpc all run over this: a non-blocking connection to a unix or vsock address (or an
 * adopted descriptor), a bounded input buffer, a bounded output buffer, and one deadline for the
 * whole conversation. The owner gets exactly one closing call; after it the stream does nothing
 * more. Never half-closes: Cloud Hypervisor, ttrpc servers and QEMU drop the reply of a half-closed
 * peer.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/listener.h"
#include "lib/loop.h"
#include "lib/result.h"

/* Why connect(2) failed; others are another -errno, and path_is_missing() is told of a path. */
enum stream_refusal {
    STREAM_BACKLOG_FULL = -EAGAIN, /* of a unix socket: the listener accepts none for now */
    STREAM_FOREIGN = -EPERM,       /* the listener there is not believed */
};

enum stream_end {
    STREAM_REFUSED,  /* connect(2) failed; error.code says how: an enum stream_refusal… */
    STREAM_CLOSED,   /* the peer closed or reset */
    STREAM_TIMEOUT,  /* the deadline passed */
    STREAM_OVERFLOW, /* the peer sent more than the limit without a complete message */
    STREAM_FAILED,   /* a local error */
};

struct stream;

struct stream_handler {
    void (*connected)(struct stream *stream); /* may be NULL */
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
    bool connecting;
    bool ended;
    bool *freed;          /* set while a handler runs, so that it may free the stream */
    struct error refusal; /* why connecting failed, until the loop reports it */
    bool passes;          /* `passed` goes with the first byte of the output */
    int passed;           /* owned while `passes` */
    struct buffer input;
    struct buffer output;
    struct loop_io io;
    struct loop_timer deadline;
};

/* A socket's address. */
enum stream_family { STREAM_UNIX, STREAM_VSOCK };

struct stream_address {
    enum stream_family family;
    int directory;    /* unix: resolve path below this descriptor; AT_FDCWD for an absolute one.
                         Borrowed for the duration of the call. */
    const char *path; /* unix: any length; beyond sun_path it is reached through its directory */
    struct listener listener; /* unix, below a directory: who may listen there; borrowed likewise */
    uint32_t cid;             /* vsock */
    uint32_t port;            /* vsock */
};

/* For streams that live until one side ends them. */
#define STREAM_NO_DEADLINE UINT64_MAX

/* Starts connecting; `connected` or `ended` follows, never from within this call. A refused
 * connection is reported through `ended` as well, and so is every other failure: the result is
 * always 0, so that callers have one error path.
 * deadline_ns: nanoseconds from now for everything. input_limit, output_limit: bytes, above zero.
 */
int stream_connect(struct stream *stream, struct loop *loop, const struct stream_address *address,
                   uint64_t deadline_ns, size_t input_limit, size_t output_limit,
                   const struct stream_handler *handler);

/* Takes over a connected descriptor (owned from here on, also on failure); a socket, or anything
 * else that poll(2) can wait for. 0 or -errno. `connected` is not called. */
int stream_adopt(struct stream *stream, struct loop *loop, int fd, uint64_t deadline_ns,
                 size_t input_limit, size_t output_limit, const struct stream_handler *handler);

/* Replaces the deadline. */
void stream_set_deadline(struct stream *stream, uint64_t nanoseconds);

/* Queues bytes (also while still connecting) and tries to write at once. -EMSGSIZE past the limit,
 * -EPIPE after the end. A peer that is gone is reported by the loop, through `ended`. */
int stream_send(struct stream *stream, const void *data, size_t length);

/* The same, and passes a copy of the descriptor with the first of these bytes (SCM_RIGHTS), as one
 * message: unix sockets only. -EBUSY: earlier bytes still wait to be written. -errno of dup. */
int stream_send_descriptor(struct stream *stream, const void *data, size_t length, int descriptor);

/* Stops, closes, frees. Fine on a zeroed or ended stream, and from within its handlers. */
void stream_done(struct stream *stream);
