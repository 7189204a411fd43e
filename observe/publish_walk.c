/* SPDX-License-Identifier: Apache-2.0 */
/* publish_walk.c - the publish paths that are possible on this node.
 *
 * The kubelet makes KUBELET/pods/UID/volumes/kubernetes.io~csi/PV before it calls the driver, and
 * the driver makes `mount` in it. So the names are read from the directories and the path is put
 * together; nothing below them is opened. One pod is read at a time, because there may be hundreds.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "observe/observe.h"

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
