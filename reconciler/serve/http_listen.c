/* http_listen.c - the listening sockets of the HTTP server.
 *
 * A unix socket is bound through /proc/self/fd/N/NAME, where N is its directory as resolved below
 * --root. So a path longer than sun_path works, and the directory that was checked is the one that
 * is used. The inode is 0600 from its first moment on (bind(2) takes the mode of the socket
 * itself); group and mode are widened before listen(2), until which every connect is refused.
 *
 * A daemon that was killed leaves its name behind. Only a socket that refuses connections is such a
 * remnant: whatever else has the name, a file or a socket with somebody behind it, stays.
 */
#include "reconciler/serve/http_listen.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "lib/cleanup.h"
#include "lib/path.h"

enum { BACKLOG = 128 };

static int find_group(const char *group, gid_t *ret_gid, struct error *error)
{
    char *end = NULL;
    unsigned long number = strtoul(group, &end, 10);
    const struct group *entry;

    if (*group >= '0' && *group <= '9' && *end == '\0' && number < UINT_MAX) {
        *ret_gid = (gid_t)number;
        return 0;
    }
    entry = getgrnam(group);
    if (!entry)
        return error_set(error, -EINVAL, "paths.socket_group: there is no group \"%s\"", group);
    *ret_gid = entry->gr_gid;
    return 0;
}

static void make_address(const struct http_unix_socket *unix_socket,
                         struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%s",
                   unix_socket->directory, unix_socket->name);
}

/* Removes a socket on which nobody answers. */
static int remove_stale(const struct http_unix_socket *unix_socket,
                        const struct sockaddr_un *address)
{
    cleanup(fd_closep) int probe = -1;
    struct stat status;

    if (fstatat(unix_socket->directory, unix_socket->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISSOCK(status.st_mode))
        return -EADDRINUSE;
    probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return -errno;
    if (connect(probe, (const struct sockaddr *)address, sizeof(*address)) == 0)
        return -EADDRINUSE;
    if (errno != ECONNREFUSED)
        return -EADDRINUSE;
    return unlinkat(unix_socket->directory, unix_socket->name, 0) < 0 ? -errno : 0;
}

static int bind_name(const struct http_unix_socket *unix_socket)
{
    struct sockaddr_un address;
    int result;

    make_address(unix_socket, &address);
    if (fchmod(unix_socket->fd, 0600) < 0)
        return -errno;
    if (bind(unix_socket->fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return 0;
    if (errno != EADDRINUSE)
        return -errno;
    result = remove_stale(unix_socket, &address);
    if (result < 0)
        return result;
    return bind(unix_socket->fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno
                                                                                         : 0;
}

static int open_directory(int root, const char *path, struct http_unix_socket *unix_socket)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX];
    int result;

    if (!slash || slash[1] == '\0')
        return -EINVAL;
    if (strlen(slash + 1) >= sizeof(unix_socket->name) ||
        (size_t)(slash - path) >= sizeof(directory))
        return -ENAMETOOLONG;
    (void)snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    (void)snprintf(unix_socket->name, sizeof(unix_socket->name), "%s", slash + 1);
    if (*directory == '\0')
        (void)snprintf(directory, sizeof(directory), "/");
    result = path_make_directories(root, directory, 0755);
    if (result < 0)
        return result;
    return path_open_directory_in_root(root, directory, &unix_socket->directory);
}

/* Remembers which inode the name is, so that only that one is removed at the end. */
static int widen_and_listen(struct http_unix_socket *unix_socket, const gid_t *group)
{
    struct stat status;

    if (fstatat(unix_socket->directory, unix_socket->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    unix_socket->device = status.st_dev;
    unix_socket->inode = status.st_ino;
    if (group) {
        if (fchownat(unix_socket->directory, unix_socket->name, (uid_t)-1, *group,
                     AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        if (fchmodat(unix_socket->directory, unix_socket->name, 0660, 0) < 0)
            return -errno;
    }
    return listen(unix_socket->fd, BACKLOG) < 0 ? -errno : 0;
}

int http_listen_unix(int root, const char *path, const char *group,
                     struct http_unix_socket *ret_socket, struct error *error)
{
    struct http_unix_socket made = {.fd = -1, .directory = -1};
    const bool has_group = group && *group;
    gid_t gid = 0;
    int result = 0;

    if (has_group)
        result = find_group(group, &gid, error);
    if (result < 0)
        return result;
    result = open_directory(root, path, &made);
    if (result == 0) {
        made.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        result = made.fd < 0 ? -errno : bind_name(&made);
    }
    if (result == 0)
        result = widen_and_listen(&made, has_group ? &gid : NULL);
    if (result < 0) {
        http_unlisten_unix(&made);
        return error_set_errno(error, result, "cannot listen on %s", path);
    }
    *ret_socket = made;
    return 0;
}

void http_unlisten_unix(struct http_unix_socket *unix_socket)
{
    struct stat status;

    if (unix_socket->inode != 0 &&
        fstatat(unix_socket->directory, unix_socket->name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_dev == unix_socket->device && status.st_ino == unix_socket->inode)
        (void)unlinkat(unix_socket->directory, unix_socket->name, 0);
    fd_close(unix_socket->fd);
    fd_close(unix_socket->directory);
    *unix_socket = (struct http_unix_socket){.fd = -1, .directory = -1};
}

/* "[::1]:80" -> "::1", "80". */
static int split_address(const char *address, char *ret_host, size_t size, const char **ret_port)
{
    const char *colon = strrchr(address, ':');
    size_t length;

    if (!colon || colon[1] == '\0')
        return -EINVAL;
    length = (size_t)(colon - address);
    if (length >= 2 && address[0] == '[' && colon[-1] == ']') {
        address++;
        length -= 2;
    }
    if (length >= size)
        return -EINVAL;
    memcpy(ret_host, address, length);
    ret_host[length] = '\0';
    *ret_port = colon + 1;
    return 0;
}

static int listen_on(const struct addrinfo *info, int *ret_fd)
{
    cleanup(fd_closep) int fd =
        socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    *ret_fd = take_fd(&fd);
    return 0;
}

int http_listen_tcp(const char *address, int *ret_fd, struct error *error)
{
    const struct addrinfo hints = {
        .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
        .ai_socktype = SOCK_STREAM,
    };
    struct addrinfo *info = NULL;
    const char *port;
    char host[64];
    int result;

    if (split_address(address, host, sizeof(host), &port) < 0 ||
        getaddrinfo(*host ? host : NULL, port, &hints, &info) != 0)
        return error_set(error, -EINVAL, "http.listen: \"%s\" is not a numeric ADDRESS:PORT",
                         address);
    result = listen_on(info, ret_fd);
    freeaddrinfo(info);
    if (result < 0)
        return error_set_errno(error, result, "cannot listen on %s", address);
    return 0;
}
