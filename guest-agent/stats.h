/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h - how full a volume is, in bytes and inodes.
 *
 * As the kubelet counts: available is what a user who is not root can write. A file system that has
 * recorded errors, was shut down or does not answer is reported as abnormal.
 */
#pragma once

#include "agent-client/agent_messages.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/volume.h"

/* Of a file system whose statfs(2) does not wait: one on a device. */
void stats_of(const struct volume *volume, struct agent_stats *ret_stats);

/* One GetVolumeStats. Fills ret_stats if status is OK. */
void stats_read(const char *volume_path, struct ttrpc_status *ret_status,
                struct agent_stats *ret_stats);
