/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet.h - what the kubelet's own directories say about a published volume.
 *
 * KUBELET/pods/UID exists as long as the kubelet knows the pod. In it, volumes/kubernetes.io~csi/PV
 * holds vol_data.json from before NodePublishVolume until after NodeUnpublishVolume, and the leaf
 * `mount` (pkg/volume/csi of Kubernetes).
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* Anything not known to be absent counts as present. */
struct observed_kubelet {
    bool pod;         /* KUBELET/pods/UID */
    bool leaf;        /* …/PV/mount */
    bool volume_data; /* …/PV/vol_data.json */
    char canary[64];  /* a pod that proves this is the kubelet's root; "": none, or not needed */
    dev_t device;     /* of KUBELET/pods; 0: it does not exist */
    bool elsewhere;   /* the node's first process sees another directory there */
};

/* pod_uid and pv are single components of a path (observe_publish_path). 0, or -errno for a local
 * failure that says nothing about the kubelet. */
int observe_kubelet(int root, const char *kubelet, const char *pod_uid, const char *pv,
                    struct observed_kubelet *ret_kubelet);

/* ---- publish path --------------------------------------------------------------------------- */

enum observed_flag { OBSERVED_UNSAID, OBSERVED_NO, OBSERVED_YES };

struct observed_publish_path {
    bool is_publish_path; /* KUBELET/pods/UID/volumes/kubernetes.io~csi/PV/mount */
    unsigned kubelet;     /* index of the kubelet root that it lies below */
    char pod_uid[64];
    char pv[256];
    char driver[256];                  /* vol_data.json; "" */
    char volume_handle[512];           /* vol_data.json; "" */
    enum observed_flag defer_fs_mount; /* vol_data.json */
    char problem[256];                 /* why vol_data.json is there and not read; "" */
    bool has_plugin_file;              /* csiPlugin.json at the volume's root */
    char subpaths[PATH_MAX]; /* where the kubelet binds parts of the volume (subPath); "" */
    bool is_empty_dir;       /* …/kubernetes.io~empty-dir/…: the shim's own, left alone */
    bool is_block;           /* KUBELET/plugins/kubernetes.io/csi/volumeDevices/publish/PV/UID */
};

/* kubelet: the roots to try in turn. The path is only parsed, not opened; only vol_data.json beside
 * the publish path is opened, below the kubelet root. 0 or -errno. */
int observe_publish_path(int root, const char *const *kubelet, unsigned kubelets,
                         const char *target_path, struct observed_publish_path *ret_path);

/* Calls back with each raw block claim of a pod: its publish path, at which the driver has put the
 * device, and the device's number. 0, -errno or the callback's result, if that is not 0. */
int observe_each_block_claim(int root, const char *const *kubelet, unsigned kubelets,
                             const char *pod_uid,
                             int (*callback)(void *userdata, const char *path, dev_t device),
                             void *userdata);

/* Walks, pod by pod, through every publish path that the kubelets' directories allow, whether or
 * not `mount` exists yet. */
struct publish_walk;
int publish_walk_new(int root, const char *const *kubelet, unsigned kubelets,
                     struct publish_walk **ret_walk); /* kubelet: borrowed */
struct publish_walk *publish_walk_free(struct publish_walk *walk);

/* Calls back with the paths of the next pod, if there is one. An enum progress_outcome; -errno; or
 * the callback's result, if that is not 0. */
int publish_walk_next(struct publish_walk *walk, int (*callback)(void *userdata, const char *path),
                      void *userdata);
