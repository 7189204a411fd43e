/* SPDX-License-Identifier: Apache-2.0 */
/* publish_path.c - what the kubelet's directory layout says about a volume path.
 *
 * The layout is KUBELET/pods/UID/volumes/PLUGIN/PV/mount, where PLUGIN is kubernetes.io~csi for CSI
 * volumes (pkg/volume/csi of Kubernetes) and kubernetes.io~empty-dir for the pod's own scratch
 * space. The path itself is only parsed. vol_data.json, which the kubelet writes beside `mount`,
 * names the driver and the volume, and as of KEP-2857 says whether the mount is deferred. If it is
 * missing or invalid, these stay unknown; so they do if others can write it, which is a problem.
 *
 * A container that mounts a part of a volume (subPath) does not get a path below `mount`: the
 * kubelet binds that part to KUBELET/pods/UID/volume-subpaths/PV/CONTAINER/INDEX
 * (pkg/volume/util/subpath). Such a path says nothing about a volume that is not mounted on the
 * host.
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

#define VOLUME_DATA "vol_data.json"

/* The part of `path` below `directory`, whose trailing slashes are ignored; NULL if path is
 * elsewhere. */
static const char *below(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    while (length && directory[length - 1] == '/')
        length--;
    return strncmp(path, directory, length) == 0 && path[length] == '/' ? path + length + 1 : NULL;
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

/* The KEP spells the key in two letter cases; all values in the kubelet's file are strings. */
static enum observed_flag read_deferred(const cJSON *object)
{
    const cJSON *value = json_member(object, "deferFSMount");

    if (cJSON_IsBool(value))
        return cJSON_IsTrue(value) ? OBSERVED_YES : OBSERVED_NO;
    if (cJSON_IsString(value))
        return strcmp(value->valuestring, "true") == 0 ? OBSERVED_YES : OBSERVED_NO;
    return OBSERVED_UNSAID;
}

/* The file's name begins the text; the directories before it are left out. */
static void note_problem(const struct error *error, struct observed_publish_path *path)
{
    const char *text = strstr(error->text, VOLUME_DATA);

    (void)snprintf(path->problem, sizeof(path->problem),
                   "%.128s: not read, so the driver and the volume's handle are not known",
                   text ? text : error->text);
}

/* Returns 0 also if the file is missing or invalid; otherwise -errno. */
static int read_volume_data(int kubelet, struct observed_publish_path *path)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_MOUNT_INFO.bytes);
    cleanup(json_deletep) cJSON *object = NULL;
    struct error error = {0};
    char file[PATH_MAX];
    int r;

    (void)snprintf(file, sizeof(file), "pods/%s/volumes/kubernetes.io~csi/%s/" VOLUME_DATA,
                   path->pod_uid, path->pv);
    r = path_read_below(kubelet, file, &text, NULL, &error);
    if (r == PATH_UNSAFE || r == PATH_TOO_BIG)
        note_problem(&error, path);
    if (r != PATH_OK)
        return r < 0 ? r : 0;
    r = json_parse(buffer_text(&text), text.length, JSON_LIMITS_MOUNT_INFO, &object, NULL);
    if (r < 0)
        return r == JSON_NO_MEMORY ? r : 0;
    copy_text(object, "driverName", path->driver, sizeof(path->driver));
    copy_text(object, "volumeHandle", path->volume_handle, sizeof(path->volume_handle));
    path->defer_fs_mount = read_deferred(object);
    return 0;
}

/* Only checks that it exists; its content is not read, because anyone who can write to the volume
 * can write it. */
static void look_for_plugin_file(int kubelet, struct observed_publish_path *path)
{
    cleanup(fd_closep) int fd = -1;
    char directory[PATH_MAX];
    struct stat st;

    (void)snprintf(directory, sizeof(directory), "pods/%s/volumes/kubernetes.io~csi/%s/mount",
                   path->pod_uid, path->pv);
    path->has_plugin_file = path_open_directory_below(kubelet, directory, &fd) == 0 &&
                            fstatat(fd, "csiPlugin.json", &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_and_read_volume_data(int root, const char *kubelet,
                                     struct observed_publish_path *path)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_directory_in_root(root, kubelet, &fd);

    if (path_is_missing(r))
        return 0;
    if (r < 0)
        return r;
    look_for_plugin_file(fd, path);
    return read_volume_data(fd, path);
}

/* Sets the directory to which the kubelet binds parts of the volume. */
static void note_subpaths(const char *kubelet, struct observed_publish_path *path)
{
    size_t length = strlen(kubelet);

    while (length && kubelet[length - 1] == '/')
        length--;
    (void)snprintf(path->subpaths, sizeof(path->subpaths), "%.*s/pods/%s/volume-subpaths/%s",
                   (int)length, kubelet, path->pod_uid, path->pv);
}

static bool take_apart(const char *target_path, const char *kubelet,
                       struct observed_publish_path *ret_path)
{
    struct observed_publish_path path = {0};
    const char *rest = below(target_path, kubelet);

    if (!rest || !skip_component(&rest, "pods") ||
        !take_component(&rest, path.pod_uid, sizeof(path.pod_uid)) ||
        !skip_component(&rest, "volumes"))
        return false;
    if (skip_component(&rest, "kubernetes.io~empty-dir"))
        path.is_empty_dir = true;
    else if (skip_component(&rest, "kubernetes.io~csi") &&
             take_component(&rest, path.pv, sizeof(path.pv)) && strcmp(rest, "mount") == 0) {
        path.is_publish_path = true;
        note_subpaths(kubelet, &path);
    } else
        path.pv[0] = '\0';
    *ret_path = path;
    return true;
}

int observe_publish_path(int root, const char *const *kubelet, unsigned kubelets,
                         const char *target_path, struct observed_publish_path *ret_path)
{
    struct observed_publish_path path = {0};
    int r = 0;

    for (unsigned i = 0; i < kubelets; i++) {
        if (!take_apart(target_path, kubelet[i], &path))
            continue;
        path.kubelet = i;
        if (path.is_publish_path)
            r = open_and_read_volume_data(root, kubelet[i], &path);
        break;
    }
    if (r == 0)
        *ret_path = path;
    return r;
}

/* ---- publish walk --------------------------------------------------------------------------- */

/* The publish paths that are possible on this node.
 *
 * The kubelet makes KUBELET/pods/UID/volumes/kubernetes.io~csi/PV before it calls the driver, and
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

static int tell(const char *kubelet, const char *pod, const char *pv, path_callback *callback,
                void *userdata)
{
    char path[PATH_MAX];
    size_t length = strlen(kubelet);

    while (length && kubelet[length - 1] == '/')
        length--;
    if (snprintf(path, sizeof(path), "%.*s/pods/%s/volumes/kubernetes.io~csi/%s/mount", (int)length,
                 kubelet, pod, pv) >= (int)sizeof(path))
        return 0;
    return callback(userdata, path);
}

static int walk_pod(const struct publish_walk *walk, const char *pod, path_callback *callback,
                    void *userdata)
{
    cleanup(dir_closep) DIR *volumes = NULL;
    char path[NAME_MAX + 64];
    const char *pv;
    int r;

    (void)snprintf(path, sizeof(path), "%s/volumes/kubernetes.io~csi", pod);
    r = without_absence(directory_list_below(dirfd(walk->pods), path, &volumes));
    while (r == 0 && volumes && (pv = next_name(volumes)))
        r = tell(walk->kubelet[walk->next - 1], pod, pv, callback, userdata);
    return r;
}

static int open_next_kubelet(struct publish_walk *walk)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/pods", walk->kubelet[walk->next++]);
    return without_absence(directory_list_in_root(walk->root, path, &walk->pods));
}

int publish_walk_next(struct publish_walk *walk, path_callback *callback, void *userdata)
{
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
        r = open_next_kubelet(walk);
    }
    return r;
}
