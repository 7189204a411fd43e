/* SPDX-License-Identifier: Apache-2.0 */
/* unix_socket.h - a listening unix socket, and the users that have access to it. Private to
 * api/. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "lib/result.h"

/* A bound unix socket and the name that it must remove again. */
struct unix_socket {
    int fd;        /* listening; -1: none */
    int directory; /* the directory of the name */
    char name[80]; /* fits into sun_path behind "/proc/self/fd/N/" */
    dev_t device;  /* identify the name as this process made it */
    ino_t inode;
    bool has_group;
    gid_t group; /* has access besides root */
};

#define UNIX_SOCKET_INIT                                                                           \
    {                                                                                              \
        .fd = -1, .directory = -1                                                                  \
    }

/* Listens on `path` below root: 0600, or 0660 for `group` (a name or a number; "" or NULL none).
 * Missing directories are made (0755). A socket that nothing listens on is replaced; anything else
 * with the name is left alone. 0; -EADDRINUSE if the name is in use; -errno; all with a text. */
int unix_socket_listen(int root, const char *path, const char *group,
                       struct unix_socket *ret_socket, struct error *error);

/* Whether the peer of a connection belongs to root (or to the daemon's own user), or to the group,
 * as its primary or a supplementary group. */
bool unix_socket_admits(const struct unix_socket *self, int connection);

/* Closes, and removes the name if it is still this socket's. May be called after
 * UNIX_SOCKET_INIT. */
void unix_socket_close(struct unix_socket *self);
