/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h - a connection to a VMM, a guest or a shim, for the blocking code of a worker.
 *
 * One absolute deadline holds for all that is done with it, and one bound for all that it says.
 * This is the only file of a worker's that waits.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/listener.h"
#include "lib/result.h"

enum peer_failure {
    PEER_MISSING = 1, /* nothing listens there */
    PEER_FOREIGN,     /* a process that is not the sandbox's listens there, or nobody knows who */
    PEER_FULL,        /* its queue of connections is full */
    PEER_HINDERED, /* whether anything listens was not found out: no descriptor or memory is left,
                      or the path may hang */
    PEER_CLOSED,   /* it cannot be connected to, or closed the connection */
    PEER_LATE,     /* the deadline is over */
    PEER_FLOOD,    /* it has said more than the bound */
};

struct peer {
    int fd;
    uint64_t deadline_ns;  /* CLOCK_BOOTTIME */
    size_t received, most; /* bytes in all */
    struct buffer input;   /* received and not consumed yet */
};

#define PEER_INIT                                                                                  \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Connects to a unix socket below `root`. All functions return 0 or an enum peer_failure, and say
 * why in `error`. peer_close() has to be called in any case. */
int peer_connect(struct peer *peer, int root, const char *path, const struct listener *listener,
                 uint64_t deadline_ns, size_t most, struct error *error);

/* The same for a port of a guest. */
int peer_connect_vsock(struct peer *peer, uint32_t cid, uint32_t port, uint64_t deadline_ns,
                       size_t most, struct error *error);

/* Sends all of it, with a copy of the descriptor `fd` unless that is -1. */
int peer_send(struct peer *peer, const void *data, size_t length, int fd, struct error *error);

/* Appends at least one byte to the input. */
int peer_receive(struct peer *peer, struct error *error);

/* The same, but waits no longer than until_ns: then PEER_LATE says nothing about the peer. */
int peer_receive_until(struct peer *peer, uint64_t until_ns, struct error *error);

void peer_close(struct peer *peer);
