/* SPDX-License-Identifier: Apache-2.0 */
/* act_rescan.c - having the kernel read a SCSI disk's size again, where resize.scsi_rescan allows.
 *
 * The disk is a lower device of a volume and announced a new size. It is named by its device
 * number, and just before the rescan it is checked to be the same disk. Nothing that comes from
 * outside is part of the path. The rate of rescans of a disk is bounded, whatever it announces.
 *
 * A successful rescan without a new size answers the announcement, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/act/act.h"
#include "reconciler/core/context.h"
#include "reconciler/core/device_record.h"
#include "reconciler/core/work_queue.h"

static const uint64_t PAUSE_NS = 60 * NSEC_PER_SEC;

int act_rescan_find(struct store *store, const struct store_volume *volume,
                    struct store_disk *ret_disk)
{
    uint64_t now = clock_boottime();

    return store_find_announced(store, volume->device_id, now > PAUSE_NS ? now - PAUSE_NS : 0,
                                ret_disk);
}

static int act_rescan_intend(struct act *act)
{
    struct store *store = act->context->store;
    int r = act_rescan_find(store, &act->volume, &act->disk.disk);

    return r < 0 ? r
                 : store_intend_rescan(store, act->volume.volume_id, &act->disk.disk,
                                       clock_boottime());
}

/* Opened for writing, so the helpers of lib/path.h do not serve. */
static int open_rescan(int sysfs, const struct store_disk *disk, int *ret_fd)
{
    cleanup(fd_closep) int handle = -1;
    char path[64];
    int fd, r;

    (void)snprintf(path, sizeof(path), "dev/block/%" PRIu32 ":%" PRIu32 "/device/rescan",
                   disk->major, disk->minor);
    r = path_open_in_root(sysfs, path, &handle);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", handle);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)fcntl(fd, F_SETFL, 0);
    *ret_fd = fd;
    return 0;
}

/* In a child: the write returns when the disk has answered. */
static int write_rescan(const void *text)
{
    return write(STDIN_FILENO, text, strlen(text)) < 0 ? errno : 0;
}

static void on_written(struct child *child, enum child_end end, int status,
                       const struct buffer *output, void *userdata)
{
    struct act *act = userdata;
    struct error error = {0};
    int result = end == CHILD_EXITED ? -status : end == CHILD_TIMEOUT ? -ETIMEDOUT : -EIO;

    (void)output;
    act->disk.write = child_free(child);
    if (result < 0)
        (void)error_set_errno(&error, result, "rescanning %s", act->disk.disk.name);
    act_finish(act, result < 0 ? REASON_HOST_STALE : REASON_NONE, &error);
}

static int act_rescan_start(struct act *act)
{
    const struct context *context = act->context;
    const struct store_disk *disk = &act->disk.disk;
    struct observed_device device;
    cleanup(fd_closep) int fd = -1;
    struct child_request request = {
        .function = write_rescan, .argument = "1", .subject = makedev(disk->major, disk->minor)};
    int r = observe_device_number(context->sysfs, disk->major, disk->minor, &device);

    if (r < 0)
        return r;
    if (r != OBSERVED || device.diskseq != disk->diskseq)
        return -ENODEV;
    r = open_rescan(context->sysfs, disk, &fd);
    request.input = fd;
    request.deadline_ns = act_time_left(act);
    return r < 0 ? r : child_new(context->loop, &request, on_written, act, &act->disk.write);
}

static int act_rescan_record(struct act *act)
{
    const struct context *context = act->context;
    const struct store_disk *disk = &act->disk.disk;
    struct observed_device device;
    int64_t device_id;
    bool changed;
    int r = observe_device_number(context->sysfs, disk->major, disk->minor, &device);

    if (r != OBSERVED || device.diskseq != disk->diskseq)
        return 0; /* another disk, about which nothing is known */
    work_queue_doubt_devices(context->queue);
    r = record_device(context->store, &device, &device_id, &changed);
    return r < 0 ? r
                 : store_put_rescan_result(context->store, act->volume.volume_id, disk,
                                           device.size_bytes, act->error.text);
}

static void act_rescan_done(struct act *act)
{
    act->disk.write = child_free(act->disk.write);
}

const struct act_ops act_rescan_ops = {
    .intend = act_rescan_intend,
    .start = act_rescan_start,
    .record = act_rescan_record,
    .done = act_rescan_done,
    .unstarted = REASON_HOST_STALE,
    .problem = "the disk could not be rescanned",
};
