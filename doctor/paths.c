/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - whether the directories exist, who owns them, and whether crustd may write where it has
 * to.
 *
 * A directory that Kata or a CSI driver makes when it first needs it may be absent; an incomplete
 * one (a kubelet without pods/) is a finding. For a directory that crustd makes itself, the nearest
 * existing parent is judged. Nothing is made or written here.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/mount_table.h"
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

/* ---- host mounts ---------------------------------------------------------------------------- */

/* A CSI driver that mounts a volume on the node has a pod of Kata's see it over
 * virtio-fs. There is no device in the VM, so crustd has nothing to resize, and shows nothing.
 *
 * The mount table names such volumes by the kubelet's publish path, and vol_data.json beside the
 * mount names the driver. The mounts themselves are not touched: one may hang. Whether a pod is
 * Kata's is known by its uid, which the kubelet's paths have and which is in the paths that the
 * sandbox's containers mount.
 */

enum { DRIVERS = 16, DRIVER_BYTES = 64, MOST_VOLUMES = 1024 }; /* CSI: a name has 63 bytes */

struct search {
    int root;
    const struct config *config;
    const char **uid;    /* of Kata's pods, each up to a slash */
    const char *kubelet; /* the present one of paths.kubelet */
    int directory;       /* the same, open */
    char real[PATH_MAX]; /* its path, as this process names it */
    size_t root_length;  /* the part that names the root: process 1, whose mount table it is, does
                            not have it if the root is a directory of crustd's container */
    unsigned uids, volumes, drivers;
    struct {
        char name[DRIVER_BYTES];
        unsigned volumes;
    } driver[DRIVERS];
};

/* What stands behind the directory in a path below it; NULL: the path is elsewhere. */
static const char *below(const char *path, const char *directory)
{
    const size_t length = strlen(directory);

    return strncmp(path, directory, length) == 0 && path[length] == '/' ? path + length : NULL;
}

static bool is_of_kata(const struct search *search, const char *uid)
{
    for (unsigned i = 0; i < search->uids; i++)
        if (below(search->uid[i], uid))
            return true;
    return false;
}

/* Whether a driver has also left metadata for the path: such a volume is crustd's. */
static bool has_metadata(const struct search *search, const char *below_kubelet)
{
    char publish_path[BASE64URL_PATH_BYTES + 1], path[CONFIG_PATH_BYTES + BASE64URL_NAME_CHARS + 2];
    int length =
        snprintf(publish_path, sizeof(publish_path), "%s%s", search->kubelet, below_kubelet);
    int used = snprintf(path, sizeof(path), "%s/", search->config->paths.kata_volumes);
    struct stat status;

    if (length > BASE64URL_PATH_BYTES)
        return false;
    base64url_encode(publish_path, (size_t)length, path + used);
    return path_stat_in_root(search->root, path, &status) == 0;
}

/* A volume whose record cannot be read is not counted. */
static void count_volume(struct search *search, const char *record)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_MOUNT_INFO.bytes);
    cleanup(json_deletep) cJSON *object = NULL;
    const char *name;
    unsigned i = 0;

    if (path_read_below(search->directory, record, &text, NULL, NULL) != PATH_OK ||
        json_read(buffer_text(&text), text.length, JSON_LIMITS_MOUNT_INFO, "driverName", &object,
                  NULL) != FILE_READ)
        return;
    name = json_text(object, "driverName");
    while (i < search->drivers && strcmp(search->driver[i].name, name) != 0)
        i++;
    if (!*name || strlen(name) >= DRIVER_BYTES || i == DRIVERS)
        return;
    search->drivers += i == search->drivers;
    (void)snprintf(search->driver[i].name, DRIVER_BYTES, "%s", name);
    search->driver[i].volumes++;
}

static int on_mount(void *userdata, char *line)
{
    struct search *search = userdata;
    const char *rest;
    char uid[64], pv[256], record[400];
    struct mount_entry mount;
    int end = 0;

    if (!mount_table_split(line, &mount) || !strstr(mount.mount_point, "/kubernetes.io~csi/") ||
        (major(mount.device) == 0 && !mount_table_source_is_device(&mount)))
        return 0;
    mount_table_unescape(mount.mount_point);
    rest = below(mount.mount_point, search->real);
    if (!rest)
        rest = below(mount.mount_point, search->real + search->root_length);
    if (!rest ||
        sscanf(rest, "/pods/%63[^/]/volumes/kubernetes.io~csi/%255[^/]/mount%n", uid, pv, &end) !=
            2 ||
        end == 0 || rest[end] != '\0' || !is_of_kata(search, uid))
        return 0;
    (void)snprintf(record, sizeof(record), "pods/%s/volumes/kubernetes.io~csi/%s/vol_data.json",
                   uid, pv);
    if (!has_metadata(search, rest))
        count_volume(search, record);
    return ++search->volumes < MOST_VOLUMES ? 0 : -E2BIG;
}

/* The length of the name. "/" has none; neither has what cannot be told. */
static size_t name_of(int directory, char ret_name[static PATH_MAX])
{
    char link[32];
    ssize_t length;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", directory);
    length = readlink(link, ret_name, PATH_MAX - 1);
    ret_name[length > 1 ? length : 0] = '\0';
    return strlen(ret_name);
}

static void search_kubelet(struct search *search, int table)
{
    search->root_length = name_of(search->root, search->real);
    if (path_open_directory_in_root(search->root, search->kubelet, &search->directory) < 0)
        return;
    if (name_of(search->directory, search->real) > search->root_length &&
        lseek(table, 0, SEEK_SET) == 0)
        (void)mount_table_each_line(table, MOUNT_TABLE_BYTES, on_mount, search);
    (void)close(search->directory);
}

static void add_note(const char *driver, unsigned volumes, struct findings *findings)
{
    const bool one = volumes == 1;

    findings_add(
        findings, FINDING_NOTE, "host_mounted", NULL,
        "Nothing has to be done. A driver whose volumes crustd is to resize hands over the "
        "block device and does not mount it: docs/csi-drivers.md",
        "%u volume%s of Kata pods %s mounted on this node by driver %s: there is nothing "
        "for crustd to resize; %s file system is the host's",
        volumes, one ? "" : "s", one ? "is" : "are", driver, one ? "its" : "their");
}

void host_mounts_examine(int root, const struct config *config, int table, const cJSON *sandboxes,
                         const char *boot_id, struct findings *findings)
{
    cleanup(freep) const char **uid =
        calloc((size_t)cJSON_GetArraySize(sandboxes) + 1, sizeof(const char *));
    struct search search = {.root = root, .config = config, .uid = uid};
    const cJSON *row;

    cJSON_ArrayForEach(row, sandboxes)
    {
        const char *pod = strstr(json_text(row, "pod_path"), "/pods/");

        if (uid && pod && strcmp(json_text(row, "boot_id"), boot_id) == 0)
            uid[search.uids++] = pod + strlen("/pods/");
    }
    for (unsigned i = 0; search.uids && i < config->paths.kubelet.count; i++) {
        search.kubelet = config_list_item(&config->paths.kubelet, i);
        search_kubelet(&search, table);
    }
    for (unsigned i = 0; i < search.drivers; i++)
        add_note(search.driver[i].name, search.driver[i].volumes, findings);
}
