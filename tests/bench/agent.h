/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - a scripted guest agent that grows at once: answers ResizeVolume and GetVolumeStats, and
 * notes when. */
#pragma once

#include <stdint.h>

struct agent {
    uint64_t bytes;    /* of the last growth */
    uint64_t grown_ns; /* when ResizeVolume was last answered */
    uint64_t stats_ns; /* when GetVolumeStats was last answered */
};

struct agent *agent_new(const char *path);

/* As monitor_close(). */
void agent_close(struct agent *agent);
