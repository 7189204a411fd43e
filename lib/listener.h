/* SPDX-License-Identifier: Apache-2.0 */
/* listener.h - who listens on a unix socket of a sandbox.
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
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "lib/result.h"

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
