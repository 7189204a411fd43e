/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet.h - reads what the kubelet's own directories contain for one published volume.
 *
 * KUBELET/pods/UID exists as long as the kubelet knows the pod. In it, volumes/kubernetes.io~csi/PV
 * holds vol_data.json from before NodePublishVolume until after NodeUnpublishVolume, and the leaf
 * `mount` (pkg/volume/csi of Kubernetes).
 */
#pragma once

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
