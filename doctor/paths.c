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
#include "lib/cleanup.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/mount_table.h"
#include "lib/path.h"

enum { LEAST_FREE_MIB = 64, MOST_DEVICES = 4096 };

static void examine_watched(const char *path, struct findings *findings)
{
    struct stat status;
    int r = path_stat_in_root(findings->root, path, &status);

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
    else
        findings_check(findings, status.st_uid == 0 && !(status.st_mode & (S_IWGRP | S_IWOTH)),
                       "it is there, and root's alone", FINDING_WARNING, "path", path,
                       "chown root and chmod go-w",
                       "others than root may write into it, and so tell crustd what is a volume");
}

/* access(2) of an open file, whatever its path is here. 0 or -errno. */
static int try_access(int fd, int how)
{
    char link[32];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return faccessat(AT_FDCWD, link, how, AT_EACCESS) < 0 ? -errno : 0;
}

/* The nearest existing directory above the path, if it can be written. 0 or -errno. */
static int open_writable(int root, const char *path, int *ret_fd)
{
    char prefix[CONFIG_PATH_BYTES];
    char *slash;
    int r;

    (void)snprintf(prefix, sizeof(prefix), "%s", path);
    do {
        slash = strrchr(prefix, '/');
        if (!slash)
            return -ENOENT;
        slash[slash == prefix] = '\0';
        r = path_open_in_root(root, prefix, ret_fd);
    } while (path_is_missing(r) && slash != prefix);
    return r < 0 ? r : try_access(*ret_fd, W_OK | X_OK);
}

/* rename(2) crosses no mounts, also of one file system. 0 or -errno. */
static int mount_of(int fd, uint64_t *ret_mount)
{
    struct statx status;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) < 0)
        return -errno;
    *ret_mount = status.stx_mnt_id;
    return status.stx_mask & STATX_MNT_ID ? 0 : -EOPNOTSUPP;
}

static void examine_trash(const char *volumes, const char *trash, struct findings *findings)
{
    cleanup(fd_closep) int from = -1, to = -1;
    uint64_t from_mount = 0, to_mount = 0;
    int r = path_open_in_root(findings->root, volumes, &from);

    if (r == 0)
        r = open_writable(findings->root, trash, &to);
    if (path_is_missing(r))
        return; /* nothing to be moved yet */
    if (r == 0)
        r = mount_of(from, &from_mount);
    if (r == 0)
        r = mount_of(to, &to_mount);
    if (r == 0 && from_mount == to_mount)
        findings_add(findings, FINDING_OK, "trash", trash, NULL, "on one mount with %s", volumes);
    else
        findings_add(findings, FINDING_WARNING, "trash", trash,
                     r < 0 ? "Let crustd write there, or name another directory"
                           : "Have one mount cover both (pod: /run; systemd: ReadWritePaths=/run)",
                     "stale metadata of %s can't be moved there: %s", volumes,
                     r < 0 ? strerror(-r) : "rename(2) does not cross mounts");
}

static bool is_directory(int root, const char *path, const char *name)
{
    char whole[CONFIG_PATH_BYTES + 32];
    struct stat status;

    (void)snprintf(whole, sizeof(whole), "%s%s", path, name);
    return path_stat_in_root(root, whole, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The kubelet's pods, sysfs and /dev, which crustd only reads. */
static void examine_node(struct findings *findings)
{
    const struct config *config = findings->config;
    const char *sysfs = config->paths.sysfs;
    struct stat status;

    for (unsigned i = 0; i < config->paths.kubelet.count; i++) {
        const char *path = config_list_item(&config->paths.kubelet, i);

        findings_check(findings, is_directory(findings->root, path, "/pods"),
                       "the kubelet's directory is there, with its pods", FINDING_WARNING,
                       "kubelet", path,
                       "Name the kubelet's --root-dir in paths.kubelet, and mount it into the pod",
                       "this is not the kubelet's directory: it has no pods. Devices that drivers "
                       "publish below it are not found, and no stale metadata is removed");
    }
    findings_check(findings,
                   is_directory(findings->root, sysfs, "/dev/block") ||
                       stat("/sys/dev/block", &status) == 0,
                   "block devices are seen", FINDING_ERROR, "sysfs", sysfs, "Mount sysfs",
                   "there is no sysfs, so no device's size is known");
    findings_check(findings, is_directory(findings->root, "/dev", ""), "device nodes are seen",
                   FINDING_ERROR, "dev", "/dev", "Mount the node's /dev (read-only)",
                   "there is no /dev, so whose device a volume's path leads to is not known");
}

static void examine_database(const char *path, struct findings *findings)
{
    cleanup(fd_closep) int directory = -1;
    struct statvfs space = {0};
    unsigned long free_mib;
    int r = open_writable(findings->root, path, &directory);

    if (r == 0 && fstatvfs(directory, &space) < 0)
        r = -errno;
    free_mib = (unsigned long)((uint64_t)space.f_bavail * space.f_frsize >> 20);
    if (r < 0)
        findings_add(findings, FINDING_ERROR, "database", path,
                     "Let crustd write to its directory, or set paths.database",
                     "the database can't be written: %s", strerror(-r));
    else if (free_mib < LEAST_FREE_MIB)
        findings_add(findings, FINDING_WARNING, "database", path, "Make room",
                     "only %lu MiB are free for the database", free_mib);
    else
        findings_add(findings, FINDING_OK, "database", path, NULL,
                     "it can be written, %.1f GiB are free", (double)free_mib / 1024);
}

void paths_examine(struct findings *findings)
{
    const struct config *config = findings->config;
    const char *const watched[] = {config->paths.kata_volumes, config->paths.crust_volumes,
                                   config->paths.kata_go_sandboxes, config->paths.kata_go_vms,
                                   config->paths.kata_rs_sandboxes};
    const char *const sockets[] = {config->paths.http_socket, config->paths.grpc_socket};
    const char *group = config->paths.socket_group;

    for (size_t i = 0; i < array_length(watched); i++)
        examine_watched(watched[i], findings);
    if (config->cleanup.mode == CLEANUP_DELETE) {
        examine_trash(config->paths.kata_volumes, config->paths.kata_trash, findings);
        examine_trash(config->paths.crust_volumes, config->paths.crust_trash, findings);
    }
    examine_node(findings);
    examine_database(config->paths.database, findings);
    for (size_t i = 0; i < array_length(sockets); i++) {
        cleanup(fd_closep) int directory = -1;
        const int r = open_writable(findings->root, sockets[i], &directory);

        findings_check(findings, r == 0, "its directory can be written", FINDING_ERROR, "socket",
                       sockets[i], "Let crustd write to its directory, or name another path",
                       "the socket can't be made: %s", strerror(-r));
    }
    if (group[0] && group[strspn(group, "0123456789")] && !getgrnam(group))
        findings_add(findings, FINDING_ERROR, "socket_group", "paths.socket_group",
                     "groupadd it, or name another",
                     "there is no group \"%s\", and crustd does not start", group);
}

/* ---- disks of drive mounts ----------------------------------------------------------------- */

/* Drive mounts need rights beyond what crustd has otherwise, and the shipped unit and pod leave
 * these out on purpose. Nothing is opened: access(2) asks the device cgroup, too, which is what a
 * unit with DevicePolicy=closed and a pod that is not privileged forbid by. */

void drives_judge_device(const char *device, int access, struct findings *findings)
{
    if (!device)
        findings_add(findings, FINDING_NOTE, "drives", "/dev", NULL,
                     "whether drives may be opened was not tried: no block device is in /dev");
    else
        findings_check(findings, access == 0, "block devices may be opened for drives",
                       FINDING_ERROR, "drives", device,
                       "systemd: put share/crustd/crustd-drives.conf into "
                       "/etc/systemd/system/crustd.service.d; pod: the component "
                       "config/deploy/drives, or the chart's drives.enabled",
                       "no drive can be attached, because block devices can't be opened: %s",
                       access == EPERM ? "the device cgroup forbids it (systemd: DeviceAllow="
                                         "block-* rw is missing; pod: it is not privileged)"
                                       : strerror(access));
}

/* The first one of the kernel's that has a node in /dev stands for all. */
static void examine_device(struct findings *findings)
{
    cleanup(dir_closep) DIR *names = opendir("/sys/class/block");
    const char *name;

    for (unsigned i = 0; names && i < MOST_DEVICES && (name = directory_next(names)); i++) {
        cleanup(fd_closep) int fd = -1;
        struct stat status;
        char path[64];

        if ((size_t)snprintf(path, sizeof(path), "/dev/%s", name) >= sizeof(path) ||
            path_open_in_root(findings->root, path, &fd) < 0 || fstat(fd, &status) < 0 ||
            !S_ISBLK(status.st_mode))
            continue;
        drives_judge_device(path, -try_access(fd, R_OK | W_OK), findings);
        return;
    }
    drives_judge_device(NULL, 0, findings);
}

static void examine_prefix(const char *path, struct findings *findings)
{
    cleanup(fd_closep) int fd = -1;
    struct stat status;
    struct statvfs mount = {0};
    int r = path_open_in_root(findings->root, path, &fd);

    if (r < 0)
        findings_add(findings, FINDING_WARNING, "drives", path,
                     "Make it, or correct drives.host_prefixes; a pod also has to mount it",
                     "no drive is found below it: %s", strerror(-r));
    else if (fstat(fd, &status) < 0 || !S_ISDIR(status.st_mode))
        findings_add(findings, FINDING_WARNING, "drives", path,
                     "Name a directory in drives.host_prefixes",
                     "it is no directory, and no drive can be below it");
    else
        findings_check(findings, fstatvfs(fd, &mount) < 0 || !(mount.f_flag & ST_RDONLY),
                       "disks below it may be attached", FINDING_NOTE, "drives", path,
                       "For writable image files, systemd: ReadWritePaths= with this path in a "
                       "drop-in; pod: mount it writable",
                       "it is read-only for this process: image files can't be opened for writing");
}

void drives_examine(struct findings *findings)
{
    const struct config_list *prefixes = &findings->config->drives.host_prefixes;

    if (!findings->config->drives.enabled)
        return;
    examine_device(findings);
    if (prefixes->count == 0)
        findings_add(findings, FINDING_WARNING, "drives", "drives.host_prefixes",
                     "Name the directories below which disks may be attached",
                     "drives.enabled is on, but no path of this node may be attached");
    for (unsigned i = 0; i < prefixes->count; i++)
        examine_prefix(config_list_item(prefixes, i), findings);
}

/* ---- host mounts --------------------------------------------------------------------------- */

/* A CSI driver that mounts a volume on the node has a pod of Kata's see it over virtio-fs. There is
 * no device in the VM, so crustd has nothing to resize, and shows nothing.
 *
 * The mount table names such volumes by the kubelet's publish path, and vol_data.json beside the
 * mount names the driver. The mounts themselves are not touched: one may hang. Whether a pod is
 * Kata's is known by its uid, which the kubelet's paths have and which is in the paths that the
 * sandbox's containers mount. */

enum { DRIVERS = 16, DRIVER_BYTES = 64, MOST_VOLUMES = 1024 }; /* CSI: a name has 63 bytes */

struct search {
    struct findings *findings;
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

/* Whether a driver has also left metadata for the path: such a volume is crustd's. */
static bool has_metadata(const struct search *search, const char *below_kubelet)
{
    char publish_path[BASE64URL_PATH_BYTES + 1], path[CONFIG_PATH_BYTES + BASE64URL_NAME_CHARS + 2];
    int length =
        snprintf(publish_path, sizeof(publish_path), "%s%s", search->kubelet, below_kubelet);
    int used = snprintf(path, sizeof(path), "%s/", search->findings->config->paths.kata_volumes);
    struct stat status;

    if (length > BASE64URL_PATH_BYTES)
        return false;
    base64url_encode(publish_path, (size_t)length, path + used);
    return path_stat_in_root(search->findings->root, path, &status) == 0;
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
    bool is_kata = false;
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
        end == 0 || rest[end] != '\0')
        return 0;
    for (unsigned i = 0; i < search->uids && !is_kata; i++)
        is_kata = below(search->uid[i], uid);
    if (!is_kata)
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

void host_mounts_examine(int table, struct findings *findings)
{
    const struct config_list *kubelets = &findings->config->paths.kubelet;
    cleanup(freep) const char **uid =
        calloc((size_t)cJSON_GetArraySize(findings->sandboxes) + 1, sizeof(const char *));
    struct search search = {.findings = findings, .uid = uid};
    const cJSON *row;

    cJSON_ArrayForEach(row, findings->sandboxes)
    {
        const char *pod = strstr(json_text(row, "pod_path"), "/pods/");

        if (uid && pod && findings_is_running(findings, row))
            uid[search.uids++] = pod + strlen("/pods/");
    }
    for (unsigned i = 0; search.uids && i < kubelets->count; i++) {
        cleanup(fd_closep) int directory = -1;

        search.kubelet = config_list_item(kubelets, i);
        search.root_length = name_of(findings->root, search.real);
        if (path_open_directory_in_root(findings->root, search.kubelet, &directory) < 0)
            continue;
        search.directory = directory;
        if (name_of(directory, search.real) > search.root_length && lseek(table, 0, SEEK_SET) == 0)
            (void)mount_table_each_line(table, MOUNT_TABLE_BYTES, on_mount, &search);
    }
    for (unsigned i = 0; i < search.drivers; i++) {
        const bool one = search.driver[i].volumes == 1;

        findings_add(findings, FINDING_NOTE, "host_mounted", NULL,
                     "Nothing has to be done. A driver whose volumes crustd is to resize hands "
                     "over the block device and does not mount it: docs/csi-drivers.md",
                     "%u volume%s of Kata pods %s mounted on this node by driver %s: there is "
                     "nothing for crustd to resize; %s file system is the host's",
                     search.driver[i].volumes, one ? "" : "s", one ? "is" : "are",
                     search.driver[i].name, one ? "its" : "their");
    }
}
