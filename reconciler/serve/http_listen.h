/* http_listen.h - the listening sockets of the HTTP server. Private to serve/. */
#pragma once

#include <sys/types.h>

#include "lib/result.h"

/* A bound unix socket and the name that it must take away again. */
struct http_unix_socket {
    int fd;        /* listening; -1: none */
    int directory; /* where the name lives */
    char name[80]; /* fits sun_path behind "/proc/self/fd/N/" */
    dev_t device;  /* what the name was when we made it */
    ino_t inode;
};

/* Listens on `path` below root: 0600, or 0660 for `group` (a name or a number). Missing directories
 * are made (0755). A name on which nobody answers is replaced, anything but a socket never.
 * 0; -EADDRINUSE if somebody answers; -errno, all with a text. */
int http_listen_unix(int root, const char *path, const char *group,
                     struct http_unix_socket *ret_socket, struct error *error);

/* Closes, and removes the name if it is still this socket's. */
void http_unlisten_unix(struct http_unix_socket *socket);

/* Listens on "ADDRESS:PORT", "[ADDRESS]:PORT" or ":PORT" (numbers only: nothing waits for a name
 * server). 0 or -errno with a text. */
int http_listen_tcp(const char *address, int *ret_fd, struct error *error);
