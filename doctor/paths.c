/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - whether the directories exist, who owns them, and whether crustd may write where it has
 * to.
 *
 * A directory that Kata or a CSI driver makes when it first needs it may be absent; an incomplete
 * one (a kubelet without pods/) is a finding. For a directory that crustd makes itself, the nearest
 * existing parent is judged. Nothing is made or written here.
 */
#include "doctor/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"

enum { LEAST_FREE_MIB = 64 };

/* ---- what is watched ----------------------------------------------------------------------- */

static void examine_watched(int root, const char *path, struct findings *findings)
{
    struct stat status;
    int r = path_stat_in_root(root, path, &status);

    if (path_is_missing(r))
        findings_add(findings, FINDING_NOTE, "path", path, NULL,
                     "it is not there yet; crustd waits for it");
    else if (r < 0)
        findings_add(findings, FINDING_ERROR, "path", path, NULL, "it cannot be examined: %s",
                     strerror(-r));
    else if (!S_ISDIR(status.st_mode))
        findings_add(findings, FINDING_ERROR, "path", path,
                     "Remove it, or name the right path in crustd's configuration",
                     "it is no directory");
    else if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)))
        findings_add(findings, FINDING_WARNING, "path", path, "chown root and chmod go-w",
                     "others than root may write into it, and so tell crustd what is a volume");
    else
        findings_add(findings, FINDING_OK, "path", path, NULL, "it is there, and root's alone");
}

/* ---- the nearest directory that exists ----------------------------------------------------- */

static int open_nearest(int root, const char *path, int *ret_fd)
{
    char prefix[CONFIG_PATH_BYTES];
    int r = -ENOENT;

    (void)snprintf(prefix, sizeof(prefix), "%s", path);
    while (path_is_missing(r)) {
        char *slash = strrchr(prefix, '/');

        if (!slash)
            return r;
        slash[slash == prefix] = '\0';
        r = path_open_in_root(root, prefix, ret_fd);
        if (slash == prefix)
            break;
    }
    return r;
}

/* 0 or -errno. */
static int may_write(int directory)
{
    char link[32];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", directory);
    return faccessat(AT_FDCWD, link, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static int nearest_is_writable(int root, const char *path, int *ret_fd)
{
    int r = open_nearest(root, path, ret_fd);

    return r < 0 ? r : may_write(*ret_fd);
}

/* ---- the trash ----------------------------------------------------------------------------- */

/* 0 or -errno; a mount, not a file system: rename(2) crosses none of either. */
static int mount_of(int fd, uint64_t *ret_mount)
{
    struct statx status;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) < 0)
        return -errno;
    if (!(status.stx_mask & STATX_MNT_ID))
        return -EOPNOTSUPP;
    *ret_mount = status.stx_mnt_id;
    return 0;
}

static void examine_trash(int root, const char *volumes, const char *trash,
                          struct findings *findings)
{
    cleanup(fd_closep) int from = -1;
    cleanup(fd_closep) int to = -1;
    uint64_t from_mount = 0, to_mount = 0;
    int r = path_open_in_root(root, volumes, &from);

    if (r == 0)
        r = nearest_is_writable(root, trash, &to);
    if (path_is_missing(r))
        return; /* nothing to be moved yet */
    if (r == 0)
        r = mount_of(from, &from_mount);
    if (r == 0)
        r = mount_of(to, &to_mount);
    if (r < 0)
        findings_add(findings, FINDING_WARNING, "trash", trash,
                     "Let crustd write there, or name another directory",
                     "stale metadata of %s can't be moved there: %s", volumes, strerror(-r));
    else if (from_mount != to_mount)
        findings_add(findings, FINDING_WARNING, "trash", trash,
                     "Have one mount cover both (pod: /run; systemd: ReadWritePaths=/run)",
                     "stale metadata of %s can't be moved there: rename(2) does not cross mounts",
                     volumes);
    else
        findings_add(findings, FINDING_OK, "trash", trash, NULL, "on one mount with %s", volumes);
}

/* ---- the kubelet, devices ------------------------------------------------------------------ */

static void examine_kubelet(int root, const char *path, struct findings *findings)
{
    char pods[CONFIG_PATH_BYTES + sizeof("/pods")];
    struct stat status;
    int r;

    (void)snprintf(pods, sizeof(pods), "%s/pods", path);
    r = path_stat_in_root(root, pods, &status);
    if (r == 0 && S_ISDIR(status.st_mode))
        findings_add(findings, FINDING_OK, "kubelet", path, NULL,
                     "the kubelet's directory is there, with its pods");
    else
        findings_add(findings, FINDING_WARNING, "kubelet", path,
                     "Name the kubelet's --root-dir in paths.kubelet, and mount it into the pod",
                     "this is not the kubelet's directory: it has no pods. Devices that drivers "
                     "publish below it are not found, and no stale metadata is removed");
}

static void examine_sysfs(int root, const char *path, struct findings *findings)
{
    char block[CONFIG_PATH_BYTES + sizeof("/dev/block")];
    struct stat status;

    (void)snprintf(block, sizeof(block), "%s/dev/block", path);
    if (path_stat_in_root(root, block, &status) == 0)
        findings_add(findings, FINDING_OK, "sysfs", path, NULL, "block devices are seen");
    else if (stat("/sys/dev/block", &status) == 0)
        findings_add(findings, FINDING_OK, "sysfs", "/sys", NULL,
                     "block devices are seen, by this process's own sysfs");
    else
        findings_add(findings, FINDING_ERROR, "sysfs", path, "Mount sysfs",
                     "there is no sysfs, so no device's size is known");
}

static void examine_dev(int root, struct findings *findings)
{
    struct stat status;

    if (path_stat_in_root(root, "/dev", &status) == 0 && S_ISDIR(status.st_mode))
        findings_add(findings, FINDING_OK, "dev", "/dev", NULL, "device nodes are seen");
    else
        findings_add(findings, FINDING_ERROR, "dev", "/dev", "Mount the node's /dev (read-only)",
                     "there is no /dev, so whose device a volume's path leads to is not known");
}

/* ---- what crustd writes -------------------------------------------------------------------- */

static void examine_database(int root, const char *path, struct findings *findings)
{
    cleanup(fd_closep) int directory = -1;
    struct statvfs space;
    unsigned long free_mib;
    int r = nearest_is_writable(root, path, &directory);

    if (r == 0 && fstatvfs(directory, &space) < 0)
        r = -errno;
    if (r < 0) {
        findings_add(findings, FINDING_ERROR, "database", path,
                     "Let crustd write to its directory, or set paths.database",
                     "the database can't be written: %s", strerror(-r));
        return;
    }
    free_mib = (unsigned long)((uint64_t)space.f_bavail * space.f_frsize >> 20);
    if (free_mib < LEAST_FREE_MIB)
        findings_add(findings, FINDING_WARNING, "database", path, "Make room",
                     "only %lu MiB are free for the database", free_mib);
    else
        findings_add(findings, FINDING_OK, "database", path, NULL,
                     "it can be written, %.1f GiB are free", (double)free_mib / 1024);
}

static void examine_socket(int root, const char *path, struct findings *findings)
{
    cleanup(fd_closep) int directory = -1;
    int r = nearest_is_writable(root, path, &directory);

    if (r < 0)
        findings_add(findings, FINDING_ERROR, "socket", path,
                     "Let crustd write to its directory, or name another path",
                     "the socket can't be made: %s", strerror(-r));
    else
        findings_add(findings, FINDING_OK, "socket", path, NULL, "its directory can be written");
}

static void examine_group(const char *group, struct findings *findings)
{
    if (group[0] && group[strspn(group, "0123456789")] && !getgrnam(group))
        findings_add(findings, FINDING_ERROR, "socket_group", "paths.socket_group",
                     "groupadd it, or name another",
                     "there is no group \"%s\", and crustd does not start", group);
}

void paths_examine(int root, const struct config *config, struct findings *findings)
{
    const char *const watched[] = {config->paths.kata_volumes, config->paths.crust_volumes,
                                   config->paths.kata_go_sandboxes, config->paths.kata_go_vms,
                                   config->paths.kata_rs_sandboxes};

    for (size_t i = 0; i < array_length(watched); i++)
        examine_watched(root, watched[i], findings);
    if (config->cleanup.mode == CLEANUP_DELETE) {
        examine_trash(root, config->paths.kata_volumes, config->paths.kata_trash, findings);
        examine_trash(root, config->paths.crust_volumes, config->paths.crust_trash, findings);
    }
    for (unsigned i = 0; i < config->paths.kubelet.count; i++)
        examine_kubelet(root, config_list_item(&config->paths.kubelet, i), findings);
    examine_sysfs(root, config->paths.sysfs, findings);
    examine_dev(root, findings);
    examine_database(root, config->paths.database, findings);
    examine_socket(root, config->paths.http_socket, findings);
    examine_socket(root, config->paths.grpc_socket, findings);
    examine_group(config->paths.socket_group, findings);
}
