/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h - a connection to a VMM, a guest or a shim, for the blocking code of a worker.
 *
 * One absolute deadline holds for all that is done with it, and one bound for all that it says.
 * This is the only file of a worker's that waits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/result.h"

/* ---- listener ------------------------------------------------------------------------------- */

/* Who listens on a unix socket of a sandbox.
 *
 * A socket's path shows nothing about who listens there: a directory that a VMM may write to can
 * have another's socket, or a link to one. So a socket of a sandbox is opened without following
 * links below the sandbox's own directory, and once connected, before anything is sent, the kernel
 * is asked who called listen(2) (unix(7), SO_PEERCRED). The VMM, its parent and the sandbox's shim
 * are believed: a shim opens some sockets and hands them to its VMM.
 *
 * The process that called listen(2) may have ended and left the socket to another, and a process in
 * a pid namespace beside crustd's has number 0. Both are believed if its user is root or the VMM's.
 */

struct listener {
    pid_t vmm;              /* 0: every listener is believed, and links are followed */
    const char *sandbox_id; /* the shim is a process of root's that names it; NULL: no shim */
};

/* The socket as O_PATH, below `root`, an O_PATH descriptor of a directory. 0, or an enum
 * path_failure or another -errno with a text. */
int listener_open(int root, const char *path, const struct listener *listener, int *ret_fd,
                  struct error *error);

/* Whether the listener of a connected unix socket is believed; if not, `error` names the process.
 * `path` is for the text. */
bool listener_is_believed(int fd, const char *path, const struct listener *listener,
                          struct error *error);

/* ---- peer ----------------------------------------------------------------------------------- */

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
