/* SPDX-License-Identifier: Apache-2.0 */
/* unix_socket.c - the unix sockets that crustd listens on.
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
#include "api/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

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

static void make_address(const struct unix_socket *self, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%s",
                   self->directory, self->name);
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
    struct sockaddr_un address;
    int result;

    make_address(self, &address);
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

/* Remembers the inode, so that only this one is removed at the end. */
static int widen_and_listen(struct unix_socket *self)
{
    struct stat status;

    if (fstatat(self->directory, self->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    self->device = status.st_dev;
    self->inode = status.st_ino;
    if (self->has_group) {
        if (fchownat(self->directory, self->name, (uid_t)-1, self->group, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        if (fchmodat(self->directory, self->name, 0660, 0) < 0)
            return -errno;
    }
    return listen(self->fd, BACKLOG) < 0 ? -errno : 0;
}

int unix_socket_listen(int root, const char *path, const char *group,
                       struct unix_socket *ret_socket, struct error *error)
{
    struct unix_socket made = UNIX_SOCKET_INIT;
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
    if (result == 0)
        result = widen_and_listen(&made);
    if (result < 0) {
        unix_socket_close(&made);
        return error_set_errno(error, result, "cannot listen on %s", path);
    }
    *ret_socket = made;
    return 0;
}

static bool is_in_groups(int connection, gid_t group)
{
    gid_t groups[PEER_GROUPS];
    socklen_t length = sizeof(groups);

    if (getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, groups, &length) < 0)
        return false;
    for (size_t i = 0; i < length / sizeof(groups[0]); i++)
        if (groups[i] == group)
            return true;
    return false;
}

bool unix_socket_admits(const struct unix_socket *self, int connection)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
        return false;
    if (peer.uid == 0 || peer.uid == geteuid())
        return true;
    return self->has_group && (peer.gid == self->group || is_in_groups(connection, self->group));
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
