/* SPDX-License-Identifier: Apache-2.0 */
/* listen.h - where the servers listen, and who has access there: unix sockets with their users, TCP
 * with the names by which browsers may ask. */
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

/* ---- TCP ------------------------------------------------------------------------------------ */

/* Listens on "ADDRESS:PORT", "[ADDRESS]:PORT" or ":PORT" (numbers only, so that nothing waits for a
 * name server). "[::]" means every address of either family. `key` is the configuration key, for
 * the error text. 0 or -errno with a text. */
int http_listen_tcp(const char *key, const char *address, int *ret_fd, struct error *error);

/* The names by which a browser may request the pages.
 *
 * A page of some website can make its own name resolve to this machine (DNS rebinding), and then
 * read what http.listen serves as if it were its own. The name in the Host header reveals this,
 * because a browser always sends the name that it used.
 */

enum {
    HTTP_HOSTS = 20,
    HTTP_HOST_BYTES = 256, /* a DNS name has at most 253 */
};

struct http_hosts {
    unsigned count;
    char name[HTTP_HOSTS][HTTP_HOST_BYTES];
};

/* Adds a name. A name that does not fit is ignored: no Host header can match it. */
void http_hosts_add(struct http_hosts *hosts, const char *name);

/* Adds this machine's own name, with and without its domain. */
void http_hosts_add_own(struct http_hosts *hosts);

/* Whether a Host header's value, with or without a port, is an address, localhost, or one of the
 * names in any letter case. NULL is allowed: HTTP/1.0 clients omit the header, browsers do not. */
bool http_hosts_allow(const struct http_hosts *hosts, const char *host);
