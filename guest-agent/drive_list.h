/* SPDX-License-Identifier: Apache-2.0 */
/* drive_list.h - the answer to ListDrives: the drives' disks, and where each is mounted.
 *
 * It is made of sysfs and mountinfo each time, so an agent that was restarted answers as the one
 * before it did. Mounts are those of the agent's own mount namespace.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "guest-agent/drive_disk.h"

struct mount_entry;

/* The disk of a mount. btrfs has an anonymous device, so the node that it was mounted from tells.
 */
dev_t drive_list_device(const struct mount_entry *mount);

/* mountinfo: its text, which is unescaped in place. 0 or -ENOMEM. */
int drive_list_make(const struct drive_disks *disks, char *mountinfo,
                    struct drive_guest_list *ret_list);

/* Of this guest. 0 or -errno. */
int drive_list_read(struct drive_guest_list *ret_list);
