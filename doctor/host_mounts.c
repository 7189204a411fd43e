/* SPDX-License-Identifier: Apache-2.0 */
/* host_mounts.c - a CSI driver that mounts a volume on the node has a pod of Kata's see it over
 * virtio-fs. There is no device in the VM, so crustd has nothing to resize, and shows nothing.
 *
 * The mount table names such volumes by the kubelet's publish path, and vol_data.json beside the
 * mount names the driver. The mounts themselves are not touched: one may hang. Whether a pod is
 * Kata's is known by its uid, which the kubelet's paths have and which is in the paths that the
 * sandbox's containers mount.
 */
#include "doctor/host_mounts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/mount_table.h"
#include "lib/path.h"

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
