/* SPDX-License-Identifier: Apache-2.0 */
/* unix_socket.h - a listening unix socket, and who may speak on it. Private to api/. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "lib/result.h"

/* A bound unix socket and the name that it must take away again. */
struct unix_socket {
    int fd;        /* listening; -1: none */
    int directory; /* where the name lives */
    char name[80]; /* fits sun_path behind "/proc/self/fd/N/" */
    dev_t device;  /* what the name was when we made it */
    ino_t inode;
    bool has_group;
    gid_t group; /* which may connect beside root */
};

#define UNIX_SOCKET_INIT                                                                           \
    {                                                                                              \
        .fd = -1, .directory = -1                                                                  \
    }

/* Listens on `path` below root: 0600, or 0660 for `group` (a name or a number; "" or NULL none).
 * Missing directories are made (0755). A name on which nobody answers is replaced, anything but a
 * socket never. 0; -EADDRINUSE if somebody answers; -errno, all with a text. */
int unix_socket_listen(int root, const char *path, const char *group,
                       struct unix_socket *ret_socket, struct error *error);

/* Whether the process at the other end of a connection belongs to root (or to the daemon's own
 * user), or to the group, as its main group or as one of its others. */
bool unix_socket_admits(const struct unix_socket *self, int connection);

/* Closes, and removes the name if it is still this socket's. Fine after UNIX_SOCKET_INIT. */
void unix_socket_close(struct unix_socket *self);
