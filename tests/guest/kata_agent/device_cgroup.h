/* SPDX-License-Identifier: Apache-2.0 */
/* device_cgroup.h - the devices that a container may open, where the guest has cgroup v1.
 *
 * As seen with Kata 4.1.0 and an initrd: unless the pod is privileged, a container is in a cgroup
 * of its own in which it may make every device node and open none but the ordinary ones.
 */
#pragma once

#include <sys/types.h>

/* -1: the guest's kernel has no device cgroups of version 1. */
int device_cgroup_open(void);

/* Makes the group. 0 or -errno; -EEXIST is none. */
int device_cgroup_make(int hierarchy, const char *id);
int device_cgroup_move(int hierarchy, const char *id, pid_t process);
void device_cgroup_remove(int hierarchy, const char *id);
