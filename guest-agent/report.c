/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - figures from statfs(2) and sysfs, one object per path.
 *
 * A figure that cannot be read is 0 and no error, because the report is mainly about growing.
 */
#include "guest-agent/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "guest-agent/device.h"
#include "guest-agent/stats.h"
#include "lib/cleanup.h"
#include "lib/json.h"

enum { REPORT_VERSION = 1 };

static const char *const error_names[REPORT_ERROR_COUNT] = {
    [REPORT_DONE] = "",
    [REPORT_NOT_MOUNTED] = "not_mounted",
    [REPORT_NOT_A_BLOCK_DEVICE] = "not_a_block_device",
    [REPORT_UNSUPPORTED] = "unsupported",
    [REPORT_REFUSED] = "refused",
    [REPORT_READ_ONLY] = "read_only",
    [REPORT_ERRORS] = "errors",
    [REPORT_SHUT_DOWN] = "shut_down",
    [REPORT_NO_CAPABILITY] = "no_capability",
    [REPORT_BUSY] = "busy",
    [REPORT_TIMED_OUT] = "timed_out",
    [REPORT_LIMIT] = "limit",
    [REPORT_GROWING] = "growing",
    [REPORT_FAILED] = "failed",
};

enum report_error report_error_from_outcome(int outcome)
{
    switch (outcome) {
    case FILESYSTEM_GROWN:
        return REPORT_DONE;
    case FILESYSTEM_BUSY:
        return REPORT_BUSY;
    case FILESYSTEM_DENIED:
        return REPORT_NO_CAPABILITY;
    case FILESYSTEM_READ_ONLY:
        return REPORT_READ_ONLY;
    case FILESYSTEM_UNSUPPORTED:
        return REPORT_UNSUPPORTED;
    case FILESYSTEM_REFUSED:
        return REPORT_REFUSED;
    case FILESYSTEM_ERRORS:
        return REPORT_ERRORS;
    case FILESYSTEM_SHUT_DOWN:
        return REPORT_SHUT_DOWN;
    case FILESYSTEM_LIMIT:
        return REPORT_LIMIT;
    default:
        return REPORT_FAILED;
    }
}

void report_fail(struct report_volume *report, enum report_error error, const char *text)
{
    if (report->error != REPORT_DONE)
        return;
    report->error = error;
    (void)snprintf(report->error_text, sizeof(report->error_text), "%s", text);
}

/* The file system's devices; of one that cannot be opened, the device in mountinfo. */
static void find_devices(const struct volume *volume, struct filesystem *ret_filesystem)
{
    cleanup(fd_closep) int fd = -1;

    if (volume->kind != FILESYSTEM_OTHER && volume_open(volume, ret_filesystem, &fd) == 0)
        return;
    *ret_filesystem = (struct filesystem){.kind = volume->kind};
    if (major(volume->device) == 0)
        return;
    ret_filesystem->device_count = 1;
    ret_filesystem->devices[0].device = volume->device;
}

static void describe_devices(const struct volume *volume, struct report_volume *report)
{
    struct filesystem filesystem;

    find_devices(volume, &filesystem);
    report->device_bytes = 0;
    report->device_count = filesystem.device_count;
    report->device = filesystem.device_count ? filesystem.devices[0].device : 0;
    for (unsigned i = 0; i < filesystem.device_count; i++) {
        dev_t device = filesystem.devices[i].device;
        uint64_t bytes;

        if (device_size(device, &bytes) == 0)
            report->device_bytes += bytes;
        if (!report->layer[0])
            (void)device_layer(device, report->layer, sizeof(report->layer));
    }
}

void report_describe(const struct volume *volume, struct report_volume *report)
{
    (void)snprintf(report->file_system, sizeof(report->file_system), "%s", volume->file_system);
    report->read_only = volume->read_only;
    report->stats = (struct agent_stats){0};
    if (!volume_has_device(volume))
        return; /* statfs(2) of a remote one might wait */
    describe_devices(volume, report);
    stats_of(volume, &report->stats);
}

static void append_device(struct buffer *line, const struct report_volume *volume)
{
    char name[DEVICE_NAME_BYTES] = "", numbers[32] = "";

    if (volume->device_count) {
        device_name(volume->device, name);
        (void)snprintf(numbers, sizeof(numbers), "%u:%u", major(volume->device),
                       minor(volume->device));
    }
    json_append_member(line, "device", numbers);
    json_append_member(line, "device_name", name);
    buffer_append_format(line, ",\"device_count\":%u,\"device_bytes\":%" PRIu64,
                         volume->device_count, volume->device_bytes);
    json_append_member(line, "layer", volume->layer);
}

static void append_stats(struct buffer *line, const struct agent_stats *stats)
{
    buffer_append_format(line,
                         ",\"total\":%" PRIu64 ",\"used\":%" PRIu64 ",\"available\":%" PRIu64
                         ",\"total_inodes\":%" PRIu64 ",\"used_inodes\":%" PRIu64
                         ",\"available_inodes\":%" PRIu64,
                         stats->total, stats->used, stats->available, stats->total_inodes,
                         stats->used_inodes, stats->available_inodes);
}

int report_begin(struct buffer *line)
{
    return buffer_append_format(line, "{\"version\":%d,\"volumes\":[", REPORT_VERSION);
}

int report_append(struct buffer *line, const struct report_volume *volume)
{
    bool abnormal = volume->stats.abnormal;
    bool is_first = line->length > 0 && line->data[line->length - 1] == '[';

    buffer_append_text(line, is_first ? "{" : ",{");
    json_append_member(line, "path", volume->path);
    json_append_member(line, "file_system", volume->file_system);
    append_device(line, volume);
    append_stats(line, &volume->stats);
    buffer_append_format(line, ",\"read_only\":%s", volume->read_only ? "true" : "false");
    json_append_member(line, "condition", abnormal ? "abnormal" : "normal");
    json_append_member(line, "message", abnormal ? volume->stats.condition : "");
    json_append_member(line, "error", error_names[volume->error]);
    json_append_member(line, "error_text", volume->error_text);
    return buffer_append_text(line, "}");
}

int report_end(struct buffer *line)
{
    return buffer_append_text(line, "]}\n");
}
