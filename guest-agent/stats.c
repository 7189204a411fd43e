/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - statfs(2), and the file system's own record of errors.
 *
 * statfs(2) on a mounted local file system does not block, so this is answered at once.
 */
#include "guest-agent/stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#include "guest-agent/volume.h"

static void fill(struct agent_stats *stats, const struct statfs *statistics)
{
    uint64_t unit = (uint64_t)statistics->f_bsize;

    stats->has_bytes = true;
    stats->total = statistics->f_blocks * unit;
    stats->available = statistics->f_bavail * unit;
    stats->used = (statistics->f_blocks - statistics->f_bfree) * unit;
    stats->has_inodes = statistics->f_files > 0; /* btrfs has no number of them */
    stats->total_inodes = statistics->f_files;
    stats->available_inodes = statistics->f_ffree;
    stats->used_inodes = stats->total_inodes - stats->available_inodes;
}

void stats_of(const struct volume *volume, struct agent_stats *ret_stats)
{
    struct agent_stats stats = {.condition = "OK"};
    struct statfs statistics;
    int outcome;
    const char *trouble = volume_trouble(volume, &outcome);

    if (statfs(volume->mount_point, &statistics) == 0) {
        fill(&stats, &statistics);
    } else {
        stats.abnormal = true;
        (void)snprintf(stats.condition, sizeof(stats.condition), "the file system answers: %s",
                       strerror(errno));
    }
    if (trouble) {
        stats.abnormal = true;
        (void)snprintf(stats.condition, sizeof(stats.condition), "%s", trouble);
    }
    *ret_stats = stats;
}

void stats_read(const char *volume_path, struct ttrpc_status *ret_status,
                struct agent_stats *ret_stats)
{
    struct volume volume;
    struct error error;
    int r = volume_find(volume_path, &volume, &error);

    if (r != VOLUME_FOUND) {
        ret_status->code = r < 0 ? STATUS_INTERNAL : STATUS_INVALID_ARGUMENT;
        (void)snprintf(ret_status->message, sizeof(ret_status->message), "%.*s",
                       (int)sizeof(ret_status->message) - 1, error.text);
        return;
    }
    ret_status->code = STATUS_OK;
    stats_of(&volume, ret_stats);
}
