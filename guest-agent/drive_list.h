/* SPDX-License-Identifier: Apache-2.0 */
/* drive_list.h - the answer to ListDrives: the drives' disks, and where each is mounted.
 *
 * It is made of sysfs and mountinfo each time, so an agent that was restarted answers as the one
 * before it did. Mounts are those of the agent's own mount namespace.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "guest-agent/drive_disk.h"

/* mountinfo: its text, which is unescaped in place. 0 or -ENOMEM. */
int drive_list_make(const struct drive_disks *disks, char *mountinfo,
                    struct drive_guest_list *ret_list);

/* Of this guest. 0 or -errno. */
int drive_list_read(struct drive_guest_list *ret_list);
