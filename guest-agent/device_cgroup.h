/* SPDX-License-Identifier: Apache-2.0 */
/* device_cgroup.h - lets this process read a block device that its device cgroup forbids.
 *
 * Only for a helper in a container. Where the guest has cgroup v1, as with an initrd in which
 * kata-agent is process 1, the agent allows a container no disk unless the pod is privileged, and
 * its protocol cannot say "any disk": it takes a number, which is not known outside the guest
 * (Kata: src/libs/protocols/src/trans.rs, src/agent/rustjail/src/cgroups/fs/mod.rs). The agent
 * leaves the cgroup's parent open, so the container may widen its own. It needs CAP_SYS_ADMIN.
 */
#pragma once

#include <sys/types.h>

/* 0; -ENOENT: no device cgroup of version 1 has this process; another -errno. */
int device_cgroup_allow(dev_t device);
