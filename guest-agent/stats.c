/* stats.c - statfs(2), and ext4's own count of errors.
 *
 * statfs(2) on a mounted local file system does not wait, so this is answered on the spot.
 */
#include "guest-agent/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "guest-agent/device.h"
#include "guest-agent/volume.h"
#include "lib/cleanup.h"

static bool has_recorded_errors(const struct volume *volume)
{
    char name[DEVICE_NAME_BYTES], path[128], text[16] = "";
    cleanup(fd_closep) int fd = -1;

    if (volume->kind != FILESYSTEM_EXT)
        return false;
    device_name(volume->device, name);
    (void)snprintf(path, sizeof(path), "/sys/fs/ext4/%s/errors_count", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && text[0] != '0';
}

static void fill(struct agent_stats *stats, const struct statfs *statistics)
{
    uint64_t unit = (uint64_t)statistics->f_bsize;

    stats->has_bytes = true;
    stats->total = statistics->f_blocks * unit;
    stats->available = statistics->f_bfree * unit;
    stats->used = stats->total - stats->available;
    stats->has_inodes = true;
    stats->total_inodes = statistics->f_files;
    stats->available_inodes = statistics->f_ffree;
    stats->used_inodes = stats->total_inodes - stats->available_inodes;
}

void stats_read(const char *volume_path, struct ttrpc_status *ret_status,
                struct agent_stats *ret_stats)
{
    struct agent_stats stats = {.condition = "OK"};
    struct statfs statistics;
    struct volume volume;
    struct error error;
    int r = volume_find(volume_path, &volume, &error);

    if (r != VOLUME_FOUND) {
        ret_status->code = r < 0 ? STATUS_INTERNAL : STATUS_INVALID_ARGUMENT;
        (void)snprintf(ret_status->message, sizeof(ret_status->message), "%.*s",
                       (int)sizeof(ret_status->message) - 1, error.text);
        return;
    }
    if (statfs(volume.mount_point, &statistics) == 0) {
        fill(&stats, &statistics);
    } else {
        stats.abnormal = true;
        (void)snprintf(stats.condition, sizeof(stats.condition), "the file system answers: %s",
                       strerror(errno));
    }
    if (has_recorded_errors(&volume)) {
        stats.abnormal = true;
        strcpy(stats.condition, "the file system has recorded errors; it needs fsck");
    }
    ret_status->code = STATUS_OK;
    *ret_stats = stats;
}
