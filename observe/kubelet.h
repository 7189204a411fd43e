/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet.h - what the kubelet's own directories say of one published volume, read now.
 *
 * KUBELET/pods/UID is there as long as the kubelet knows the pod; in it
 * volumes/kubernetes.io~csi/PV holds vol_data.json from before NodePublishVolume until after
 * NodeUnpublishVolume, and the leaf `mount` (pkg/volume/csi of Kubernetes).
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whatever is not known to be absent is there. */
struct observed_kubelet {
    bool pod;         /* KUBELET/pods/UID */
    bool leaf;        /* …/PV/mount */
    bool volume_data; /* …/PV/vol_data.json */
    char canary[64];  /* another pod's directory: this is the kubelet's root. "": there is none, or
                         it was not looked for, since the volume's own is there */
    dev_t device;     /* of KUBELET/pods; 0: that is not there */
    bool elsewhere;   /* the node's first process sees another directory there */
};

/* pod_uid and pv are single components of a path (observe_publish_path). 0 or -errno: a fault of
 * this machine, nothing was learned. */
int observe_kubelet(int root, const char *kubelet, const char *pod_uid, const char *pv,
                    struct observed_kubelet *ret_kubelet);
