/* SPDX-License-Identifier: Apache-2.0 */
/* drive_list.h - the answer to ListDrives: the disks of drives, and where each is mounted.
 *
 * It is read from sysfs and mountinfo each time, so a restarted agent gives the same answer. Only
 * mounts in the agent's own mount namespace count.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "guest-agent/drive_disk.h"

struct mount_entry;

/* The disk of a mount. btrfs has an anonymous device, so the node that it was mounted from is used.
 */
dev_t drive_list_device(const struct mount_entry *mount);

/* mountinfo: the text, which is unescaped in place. 0 or -ENOMEM. */
int drive_list_make(const struct drive_disks *disks, char *mountinfo,
                    struct drive_guest_list *ret_list);

/* Lists the drives of this guest. 0 or -errno. */
int drive_list_read(struct drive_guest_list *ret_list);
