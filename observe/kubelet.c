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
#include "observe/kubelet.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"

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
static bool may_be_canary(int pods, const char *name, const char *pod_uid, size_t size)
{
    bool there = false;
    int fd = -1;

    if (name[0] == '.' || strcmp(name, pod_uid) == 0 || strlen(name) >= size)
        return false;
    there = path_open_directory_below(pods, name, &fd) == 0;
    fd_close(fd);
    return there;
}

static int find_canary(int pods, const char *pod_uid, struct observed_kubelet *kubelet)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list(pods, &names);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < CANARY_NAMES && (name = directory_next(names)); i++)
        if (may_be_canary(pods, name, pod_uid, sizeof(kubelet->canary))) {
            memcpy(kubelet->canary, name, strlen(name) + 1);
            break;
        }
    return 0;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether root is crustd's own root directory or the node's, and not some tree below it. */
static bool is_whole(int root, int first)
{
    struct stat here, own, of_first;

    return fstat(root, &here) == 0 && ((stat("/", &own) == 0 && is_same(&here, &own)) ||
                                       (fstat(first, &of_first) == 0 && is_same(&here, &of_first)));
}

/* A mount in crustd's own container, made when the container was, still shows what the node has
 * since mounted over. If the first process' root cannot be examined, or has no kubelet, nothing is
 * concluded. */
static bool is_elsewhere(int root, const char *name, const struct stat *ours)
{
    cleanup(fd_closep) int first = open("/proc/1/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat theirs;

    return first >= 0 && is_whole(root, first) && path_stat_in_root(first, name, &theirs) == 0 &&
           !is_same(&theirs, ours);
}

static int observe_below(int pods, const char *pod_uid, const char *pv,
                         struct observed_kubelet *kubelet)
{
    char name[PATH_MAX];
    int r = 0;

    if (r == 0)
        r = is_there(pods, pod_uid, &kubelet->pod);
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
