/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c - the sockets that crustd listens on.
 *
 * A socket is bound through /proc/self/fd/N/NAME, where N is its directory as resolved below
 * --root. So a path longer than sun_path works, and the directory that was checked is the one that
 * is used. The inode is 0600 from its first moment on (bind(2) takes the mode of the socket
 * itself). Group and mode are widened before listen(2), until which every connect is refused.
 *
 * A daemon that was killed leaves its socket behind. Only a socket that refuses connections is such
 * a remnant; anything else with the name, a file or a socket that something listens on, is left
 * alone.
 *
 * The mode keeps others from connecting. The peer's credentials are checked as well, because a
 * descriptor can be passed on, and a directory that is mounted into a pod is subject to the pod's
 * users.
 */
#include "api/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"

enum { BACKLOG = 128, PEER_GROUPS = 1024 };

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

/* Removes a socket that nothing listens on. */
static int remove_stale(const struct unix_socket *self, const struct sockaddr_un *address)
{
    cleanup(fd_closep) int probe = -1;
    struct stat status;

    if (fstatat(self->directory, self->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
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
    return unlinkat(self->directory, self->name, 0) < 0 ? -errno : 0;
}

static int bind_name(const struct unix_socket *self)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int result;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s",
                   self->directory, self->name);
    if (fchmod(self->fd, 0600) < 0)
        return -errno;
    if (bind(self->fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return 0;
    if (errno != EADDRINUSE)
        return -errno;
    result = remove_stale(self, &address);
    if (result < 0)
        return result;
    return bind(self->fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
}

static int open_directory(int root, const char *path, struct unix_socket *self)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX];
    int result;

    if (!slash || slash[1] == '\0')
        return -EINVAL;
    if (strlen(slash + 1) >= sizeof(self->name) || (size_t)(slash - path) >= sizeof(directory))
        return -ENAMETOOLONG;
    (void)snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    (void)snprintf(self->name, sizeof(self->name), "%s", slash + 1);
    if (*directory == '\0')
        (void)snprintf(directory, sizeof(directory), "/");
    result = path_make_directories(root, directory, 0755);
    if (result < 0)
        return result;
    return path_open_directory_in_root(root, directory, &self->directory);
}

int unix_socket_listen(int root, const char *path, const char *group,
                       struct unix_socket *ret_socket, struct error *error)
{
    struct unix_socket made = UNIX_SOCKET_INIT;
    struct stat status;
    int result = 0;

    made.has_group = group && *group;
    if (made.has_group)
        result = find_group(group, &made.group, error);
    if (result < 0)
        return result;
    result = open_directory(root, path, &made);
    if (result == 0) {
        made.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        result = made.fd < 0 ? -errno : bind_name(&made);
    }
    if (result == 0 && fstatat(made.directory, made.name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        result = -errno;
    if (result == 0) { /* only this inode is removed at the end */
        made.device = status.st_dev;
        made.inode = status.st_ino;
        if ((made.has_group &&
             (fchownat(made.directory, made.name, (uid_t)-1, made.group, AT_SYMLINK_NOFOLLOW) < 0 ||
              fchmodat(made.directory, made.name, 0660, 0) < 0)) ||
            listen(made.fd, BACKLOG) < 0)
            result = -errno;
    }
    if (result < 0) {
        unix_socket_close(&made);
        return error_set_errno(error, result, "cannot listen on %s", path);
    }
    *ret_socket = made;
    return 0;
}

bool unix_socket_admits(const struct unix_socket *self, int connection)
{
    gid_t groups[PEER_GROUPS];
    struct ucred peer;
    socklen_t length = sizeof(peer), groups_length = sizeof(groups);

    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
        return false;
    if (peer.uid == 0 || peer.uid == geteuid() || (self->has_group && peer.gid == self->group))
        return true;
    if (!self->has_group ||
        getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, groups, &groups_length) < 0)
        return false;
    for (size_t i = 0; i < groups_length / sizeof(groups[0]); i++)
        if (groups[i] == self->group)
            return true;
    return false;
}

void unix_socket_close(struct unix_socket *self)
{
    struct stat status;

    if (self->inode != 0 &&
        fstatat(self->directory, self->name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_dev == self->device && status.st_ino == self->inode)
        (void)unlinkat(self->directory, self->name, 0);
    fd_close(self->fd);
    fd_close(self->directory);
    *self = (struct unix_socket)UNIX_SOCKET_INIT;
}

/* ---- TCP ------------------------------------------------------------------------------------ */

/* The failures of listening that are distinguished. */
enum {
    WRONG_ADDRESS = -EINVAL, /* not numeric */
    NO_FAMILY = -EAFNOSUPPORT,
    ABSENT_ADDRESS = -EADDRNOTAVAIL,
};

/* "[::1]:80" -> "::1", "80"; "localhost:80" -> "127.0.0.1", "80". */
static int split_address(const char *address, char *ret_host, size_t size, const char **ret_port)
{
    const char *colon = strrchr(address, ':');
    size_t length;

    if (!colon || colon[1] == '\0')
        return WRONG_ADDRESS;
    length = (size_t)(colon - address);
    if (length >= 2 && address[0] == '[' && colon[-1] == ']') {
        address++;
        length -= 2;
    }
    if (length >= size)
        return WRONG_ADDRESS;
    memcpy(ret_host, address, length);
    ret_host[length] = '\0';
    if (strcmp(ret_host, "localhost") == 0)
        (void)snprintf(ret_host, size, "127.0.0.1");
    *ret_port = colon + 1;
    return 0;
}

static int listen_at(const char *host, const char *port, int *ret_fd)
{
    const struct addrinfo hints = {
        .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
        .ai_socktype = SOCK_STREAM,
    };
    const int on = 1, off = 0;
    const struct sockaddr_in6 *ipv6;
    struct addrinfo *info = NULL;
    bool takes_all;
    int fd, result = 0;

    if (getaddrinfo(*host ? host : NULL, port, &hints, &info) != 0)
        return WRONG_ADDRESS;
    ipv6 = (const struct sockaddr_in6 *)(const void *)info->ai_addr;
    takes_all = info->ai_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&ipv6->sin6_addr);
    fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* [::] means every address of either family, regardless of net.ipv6.bindv6only. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        (takes_all && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0) ||
        bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        result = -errno;
    freeaddrinfo(info);
    if (result < 0)
        fd_close(fd);
    else
        *ret_fd = fd;
    return result;
}

int http_listen_tcp(const char *key, const char *address, int *ret_fd, struct error *error)
{
    const char *port;
    char host[64];
    int result = split_address(address, host, sizeof(host), &port);

    if (result == 0)
        result = listen_at(host, port, ret_fd);
    /* The kernel may have been booted without IPv6. */
    if ((result == NO_FAMILY || result == ABSENT_ADDRESS) && strcmp(host, "::") == 0)
        result = listen_at("0.0.0.0", port, ret_fd);
    if (result == WRONG_ADDRESS)
        return error_set(error, WRONG_ADDRESS, "%s: \"%s\" is not a numeric ADDRESS:PORT", key,
                         address);
    if (result < 0)
        return error_set_errno(error, result, "%s: cannot listen on %s", key, address);
    return 0;
}

/* ---- the Host header ---- */

/* Addresses are always allowed, because they cannot be rebound; names must be known. */

void http_hosts_add(struct http_hosts *hosts, const char *name)
{
    const size_t length = strlen(name);

    if (length == 0 || length >= HTTP_HOST_BYTES || hosts->count == HTTP_HOSTS)
        return;
    memcpy(hosts->name[hosts->count++], name, length + 1);
}

void http_hosts_add_own(struct http_hosts *hosts)
{
    char name[HTTP_HOST_BYTES] = "";

    if (gethostname(name, sizeof(name) - 1) < 0)
        return;
    http_hosts_add(hosts, name);
    name[strcspn(name, ".")] = '\0';
    http_hosts_add(hosts, name);
}

/* "[::1]:9824", "10.0.0.7:9824", "node-7": without the port and the brackets. */
bool http_hosts_allow(const struct http_hosts *hosts, const char *host)
{
    const bool is_ipv6 = host && *host == '[';
    const char *begin = is_ipv6 ? host + 1 : host, *rest;
    char name[HTTP_HOST_BYTES];
    struct in6_addr address;
    size_t length;

    if (!host)
        return true;
    length = strcspn(begin, is_ipv6 ? "]" : ":");
    rest = begin + length;
    if (is_ipv6 && *rest++ != ']')
        return false;
    if (*rest == ':')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (*rest || length == 0 || length >= HTTP_HOST_BYTES)
        return false;
    (void)snprintf(name, sizeof(name), "%.*s", (int)length, begin);
    if (inet_pton(is_ipv6 ? AF_INET6 : AF_INET, name, &address) == 1)
        return true;
    if (is_ipv6)
        return false;
    for (unsigned i = 0; i < hosts->count; i++)
        if (strcasecmp(hosts->name[i], name) == 0)
            return true;
    return strcasecmp(name, "localhost") == 0;
}
