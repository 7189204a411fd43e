/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet.c - checks whether the pod's directory still exists.
 *
 * Everything is looked up below one descriptor of KUBELET/pods, so all answers are about the same
 * directory, whatever is mounted meanwhile. Only ENOENT means absent: a mount point, a link, or a
 * file in place of a directory count as present.
 *
 * An empty directory proves nothing: if the kubelet's file system is not mounted, every pod is
 * absent. So the directory of another pod must be visible, which every node has: that of the CSI
 * driver itself.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/path.h"
#include "observe/observe.h"

enum { CANARY_NAMES = 256 };

/* A local failure says nothing about the directory. */
static bool is_fault(int r)
{
    return result_is_shortage(r) || r == PATH_IS_RACING || r == PATH_UNREADABLE;
}

static int is_there(int pods, const char *name, bool *ret_there)
{
    int fd = -1;
    int r = path_open_directory_below(pods, name, &fd);

    fd_close(fd);
    if (is_fault(r))
        return r;
    *ret_there = r != PATH_MISSING;
    return 0;
}

/* A pod's directory is named after its uid, which begins with a letter or digit. */
static int find_canary(int pods, const char *pod_uid, struct observed_kubelet *kubelet)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list(pods, &names);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < CANARY_NAMES && (name = directory_next(names)); i++) {
        cleanup(fd_closep) int fd = -1;

        if (name[0] == '.' || strcmp(name, pod_uid) == 0 ||
            strlen(name) >= sizeof(kubelet->canary) ||
            path_open_directory_below(pods, name, &fd) != 0)
            continue;
        memcpy(kubelet->canary, name, strlen(name) + 1);
        break;
    }
    return 0;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* A mount in crustd's own container, made when the container was, still shows what the node has
 * since mounted over. Nothing is concluded if root is neither crustd's own root directory nor the
 * node's, if the first process's root cannot be examined, or if that has no kubelet. */
static bool is_elsewhere(int root, const char *name, const struct stat *ours)
{
    cleanup(fd_closep) int first = open("/proc/1/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat here, own, of_first, theirs;

    if (first < 0 || fstat(root, &here) < 0)
        return false;
    if (!(stat("/", &own) == 0 && is_same(&here, &own)) &&
        !(fstat(first, &of_first) == 0 && is_same(&here, &of_first)))
        return false;
    return path_stat_in_root(first, name, &theirs) == 0 && !is_same(&theirs, ours);
}

static int observe_below(int pods, const char *pod_uid, const char *pv,
                         struct observed_kubelet *kubelet)
{
    char name[PATH_MAX];
    int r = is_there(pods, pod_uid, &kubelet->pod);

    (void)snprintf(name, sizeof(name), "%s/volumes/kubernetes.io~csi/%s/mount", pod_uid, pv);
    if (r == 0)
        r = is_there(pods, name, &kubelet->leaf);
    (void)snprintf(name, sizeof(name), "%s/volumes/kubernetes.io~csi/%s/vol_data.json", pod_uid,
                   pv);
    if (r == 0)
        r = is_there(pods, name, &kubelet->volume_data);
    if (r < 0 || (kubelet->pod && (kubelet->leaf || kubelet->volume_data)))
        return r;
    return find_canary(pods, pod_uid, kubelet);
}

int observe_kubelet(int root, const char *kubelet, const char *pod_uid, const char *pv,
                    struct observed_kubelet *ret_kubelet)
{
    cleanup(fd_closep) int pods = -1;
    struct observed_kubelet observed = {.pod = true, .leaf = true, .volume_data = true};
    char name[PATH_MAX];
    struct stat st;
    int r;

    if (snprintf(name, sizeof(name), "%s/pods", kubelet) >= (int)sizeof(name))
        return -ENAMETOOLONG;
    r = path_open_directory_in_root(root, name, &pods);
    if (r == 0 && fstat(pods, &st) == 0) {
        observed.device = st.st_dev;
        observed.elsewhere = is_elsewhere(root, name, &st);
        r = observe_below(pods, pod_uid, pv, &observed);
    } else if (!is_fault(r))
        r = 0;
    if (r == 0)
        *ret_kubelet = observed;
    return r;
}

/* ---- publish path --------------------------------------------------------------------------- */

/* The layout is KUBELET/pods/UID/volumes/PLUGIN/PV/mount, where PLUGIN is kubernetes.io~csi for CSI
 * volumes (pkg/volume/csi of Kubernetes) and kubernetes.io~empty-dir for the pod's own scratch
 * space. The path itself is only parsed. vol_data.json, which the kubelet writes beside `mount`,
 * names the driver and the volume, and as of KEP-2857 says whether the mount is deferred. If it is
 * missing or invalid, these stay unknown; so they do if others can write it, which is a problem.
 *
 * A container that mounts a part of a volume (subPath) does not get a path below `mount`: the
 * kubelet binds that part to KUBELET/pods/UID/volume-subpaths/PV/CONTAINER/INDEX
 * (pkg/volume/util/subpath). Such a path says nothing about a volume that is not mounted on the
 * host. */

#define VOLUME_DATA "vol_data.json"

/* A raw block claim is published as a device node, or as a file that one is bound to, at
 * KUBELET/BLOCK/publish/PV/UID, and the pod's own record of it is a link,
 * KUBELET/pods/UID/volumeDevices/kubernetes.io~csi/PV (pkg/volume/csi/csi_block.go). The loop
 * device that the kubelet makes to hold the device is in neither. */
#define BLOCK "plugins/kubernetes.io/csi/volumeDevices"

/* Without trailing slashes. */
static int length_of(const char *directory)
{
    size_t length = strlen(directory);

    while (length && directory[length - 1] == '/')
        length--;
    return (int)length;
}

/* Moves past one component that must be `expected`. */
static bool skip_component(const char **path, const char *expected)
{
    size_t length = strlen(expected);

    if (strncmp(*path, expected, length) != 0 || ((*path)[length] && (*path)[length] != '/'))
        return false;
    *path += length + ((*path)[length] == '/');
    return true;
}

/* Moves past one component and copies it. */
static bool take_component(const char **path, char *ret_component, size_t size)
{
    size_t length = strcspn(*path, "/");

    if (!length || length >= size || (*path)[0] == '.')
        return false;
    memcpy(ret_component, *path, length);
    ret_component[length] = '\0';
    *path += length + ((*path)[length] == '/');
    return true;
}

static void copy_text(const cJSON *object, const char *name, char *ret_text, size_t size)
{
    const char *text = json_string(object, name);

    if (text && strlen(text) < size)
        (void)snprintf(ret_text, size, "%s", text);
}

/* Returns 0 also if the file is missing or invalid; otherwise -errno. */
static int read_volume_data(int kubelet, struct observed_publish_path *path)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_MOUNT_INFO.bytes);
    cleanup(json_deletep) cJSON *object = NULL;
    struct error error = {0};
    const cJSON *deferred;
    const char *problem;
    char file[PATH_MAX];
    int r;

    if (path->is_block)
        (void)snprintf(file, sizeof(file), BLOCK "/%s/data/" VOLUME_DATA, path->pv);
    else
        (void)snprintf(file, sizeof(file), "pods/%s/volumes/kubernetes.io~csi/%s/" VOLUME_DATA,
                       path->pod_uid, path->pv);
    r = path_read_below(kubelet, file, &text, NULL, &error);
    if (r == PATH_UNSAFE || r == PATH_TOO_BIG) {
        /* The directories before the file's name are left out. */
        problem = strstr(error.text, VOLUME_DATA);
        (void)snprintf(path->problem, sizeof(path->problem),
                       "%.128s: not read, so the driver and the volume's handle are not known",
                       problem ? problem : error.text);
    }
    if (r != PATH_OK)
        return r < 0 ? r : 0;
    r = json_parse(buffer_text(&text), text.length, JSON_LIMITS_MOUNT_INFO, &object, NULL);
    if (r < 0)
        return r == JSON_NO_MEMORY ? r : 0;
    copy_text(object, "driverName", path->driver, sizeof(path->driver));
    copy_text(object, "volumeHandle", path->volume_handle, sizeof(path->volume_handle));
    /* The KEP spells the key in two letter cases; all values in the kubelet's file are strings. */
    deferred = json_member(object, "deferFSMount");
    if (cJSON_IsBool(deferred))
        path->defer_fs_mount = cJSON_IsTrue(deferred) ? OBSERVED_YES : OBSERVED_NO;
    else if (cJSON_IsString(deferred))
        path->defer_fs_mount =
            strcmp(deferred->valuestring, "true") == 0 ? OBSERVED_YES : OBSERVED_NO;
    return 0;
}

/* Parses the path; false if it is not below this kubelet's directory. */
static bool take_apart(const char *target_path, const char *kubelet,
                       struct observed_publish_path *ret_path)
{
    struct observed_publish_path path = {0};
    const int length = length_of(kubelet);
    const char *rest;

    if (strncmp(target_path, kubelet, (size_t)length) != 0 || target_path[length] != '/')
        return false;
    rest = target_path + length + 1;
    if (strncmp(rest, BLOCK "/publish/", strlen(BLOCK "/publish/")) == 0) {
        rest += strlen(BLOCK "/publish/");
        path.is_block = take_component(&rest, path.pv, sizeof(path.pv)) &&
                        take_component(&rest, path.pod_uid, sizeof(path.pod_uid)) && !*rest;
        if (path.is_block)
            *ret_path = path;
        return path.is_block;
    }
    if (!skip_component(&rest, "pods") ||
        !take_component(&rest, path.pod_uid, sizeof(path.pod_uid)) ||
        !skip_component(&rest, "volumes"))
        return false;
    if (skip_component(&rest, "kubernetes.io~empty-dir"))
        path.is_empty_dir = true;
    else if (skip_component(&rest, "kubernetes.io~csi") &&
             take_component(&rest, path.pv, sizeof(path.pv)) && strcmp(rest, "mount") == 0) {
        path.is_publish_path = true;
        (void)snprintf(path.subpaths, sizeof(path.subpaths), "%.*s/pods/%s/volume-subpaths/%s",
                       length, kubelet, path.pod_uid, path.pv);
    } else
        path.pv[0] = '\0';
    *ret_path = path;
    return true;
}

int observe_publish_path(int root, const char *const *kubelet, unsigned kubelets,
                         const char *target_path, struct observed_publish_path *ret_path)
{
    cleanup(fd_closep) int fd = -1, leaf = -1;
    struct observed_publish_path path = {0};
    char directory[PATH_MAX];
    unsigned i = 0;
    struct stat st;
    int r = PATH_MISSING;

    while (i < kubelets && !take_apart(target_path, kubelet[i], &path))
        i++;
    if (i < kubelets)
        path.kubelet = i;
    if (path.is_publish_path || path.is_block)
        r = path_open_directory_in_root(root, kubelet[i], &fd);
    if (r == 0) {
        /* Of the plugin's file only the existence is checked; its content is not read, because
         * anyone who can write to the volume can write it. */
        (void)snprintf(directory, sizeof(directory), "pods/%s/volumes/kubernetes.io~csi/%s/mount",
                       path.pod_uid, path.pv);
        path.has_plugin_file = path_open_directory_below(fd, directory, &leaf) == 0 &&
                               fstatat(leaf, "csiPlugin.json", &st, AT_SYMLINK_NOFOLLOW) == 0;
        r = read_volume_data(fd, &path);
        if (r < 0)
            return r;
    } else if (!path_is_missing(r)) {
        return r;
    }
    *ret_path = path;
    return 0;
}

/* ---- raw block claims ----------------------------------------------------------------------- */

/* Turns the outcomes that mean "nothing to list" into 0. */
static int without_absence(int r)
{
    return path_is_missing(r) || r == PATH_BEHIND_A_LINK || r == PATH_LEADS_OUT ? 0 : r;
}

static const char *next_name(DIR *names)
{
    const char *name;

    while ((name = directory_next(names)) && name[0] == '.')
        ;
    return name;
}

/* Calls back if the driver's part is there, too: then `pv` is a claim of the pod. */
static int offer_block_claim(int root, const char *kubelet, const char *pod_uid, const char *pv,
                             int (*callback)(void *userdata, const char *path, dev_t device),
                             void *userdata)
{
    char path[PATH_MAX];
    struct stat st;

    if (snprintf(path, sizeof(path), "%.*s/" BLOCK "/publish/%s/%s", length_of(kubelet), kubelet,
                 pv, pod_uid) >= (int)sizeof(path) ||
        path_stat_in_root(root, path, &st) < 0 || !S_ISBLK(st.st_mode))
        return 0;
    return callback(userdata, path, st.st_rdev);
}

int observe_each_block_claim(int root, const char *const *kubelet, unsigned kubelets,
                             const char *pod_uid,
                             int (*callback)(void *userdata, const char *path, dev_t device),
                             void *userdata)
{
    const char *pv;
    int r = 0;

    if (!pod_uid[0] || pod_uid[0] == '.' || strchr(pod_uid, '/'))
        return 0;
    for (unsigned i = 0; r == 0 && i < kubelets; i++) {
        cleanup(dir_closep) DIR *links = NULL;
        char directory[PATH_MAX];

        if (snprintf(directory, sizeof(directory), "%.*s/pods/%s/volumeDevices/kubernetes.io~csi",
                     length_of(kubelet[i]), kubelet[i], pod_uid) >= (int)sizeof(directory))
            continue;
        r = without_absence(directory_list_in_root(root, directory, &links));
        while (r == 0 && links && (pv = next_name(links)))
            r = offer_block_claim(root, kubelet[i], pod_uid, pv, callback, userdata);
    }
    return r;
}

/* ---- publish walk --------------------------------------------------------------------------- */

/* The kubelet makes KUBELET/pods/UID/volumes/kubernetes.io~csi/PV before it calls the driver, and
 * the driver makes `mount` in it. So the names are read from the directories and the path is put
 * together; nothing below them is opened. One pod is read at a time, because there may be hundreds.
 */

struct publish_walk {
    int root;
    const char *const *kubelet;
    unsigned kubelets, next; /* kubelet[next - 1] is the root that `pods` belongs to */
    DIR *pods;
};

typedef int path_callback(void *userdata, const char *path);

int publish_walk_new(int root, const char *const *kubelet, unsigned kubelets,
                     struct publish_walk **ret_walk)
{
    struct publish_walk *walk = calloc(1, sizeof(*walk));

    if (!walk)
        return -ENOMEM;
    *walk = (struct publish_walk){.root = root, .kubelet = kubelet, .kubelets = kubelets};
    *ret_walk = walk;
    return 0;
}

struct publish_walk *publish_walk_free(struct publish_walk *walk)
{
    if (walk && walk->pods)
        (void)closedir(walk->pods);
    free(walk);
    return NULL;
}

static int walk_pod(const struct publish_walk *walk, const char *pod, path_callback *callback,
                    void *userdata)
{
    const char *kubelet = walk->kubelet[walk->next - 1];
    cleanup(dir_closep) DIR *volumes = NULL;
    char directory[NAME_MAX + 64], path[PATH_MAX];
    const char *pv;
    int r;

    (void)snprintf(directory, sizeof(directory), "%s/volumes/kubernetes.io~csi", pod);
    r = without_absence(directory_list_below(dirfd(walk->pods), directory, &volumes));
    while (r == 0 && volumes && (pv = next_name(volumes)))
        if (snprintf(path, sizeof(path), "%.*s/pods/%s/%s/mount", length_of(kubelet), kubelet,
                     directory, pv) < (int)sizeof(path))
            r = callback(userdata, path);
    return r;
}

int publish_walk_next(struct publish_walk *walk, path_callback *callback, void *userdata)
{
    char path[PATH_MAX];
    int r = 0;

    while (r == 0) {
        const char *pod = walk->pods ? next_name(walk->pods) : NULL;

        if (pod) {
            r = walk_pod(walk, pod, callback, userdata);
            return r == 0 ? PROGRESS_MORE : r;
        }
        if (walk->pods)
            (void)closedir(walk->pods);
        walk->pods = NULL;
        if (walk->next == walk->kubelets)
            return 0;
        (void)snprintf(path, sizeof(path), "%s/pods", walk->kubelet[walk->next++]);
        r = without_absence(directory_list_in_root(walk->root, path, &walk->pods));
    }
    return r;
}
