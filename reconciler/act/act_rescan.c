/* SPDX-License-Identifier: Apache-2.0 */
/* act_rescan.c - having the kernel read a SCSI disk's size again, where resize.scsi_rescan allows.
 *
 * The disk is one that announced growth and that a volume stands on, by its number; that it is
 * still the same one is made sure of just before. Nothing that comes from outside is part of the
 * path. A disk is rescanned once in a while at most, whatever it announces.
 *
 * A rescan that went well and brought nothing answers the announcement too.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/act/act.h"

static const uint64_t PAUSE_NS = 60 * NSEC_PER_SEC;

static int find_disk(const struct reconciler *reconciler, const struct store_volume *volume,
                     struct store_disk *ret_disk)
{
    uint64_t now = clock_boottime();

    return store_find_announced(reconciler->store, volume->device_id,
                                now > PAUSE_NS ? now - PAUSE_NS : 0, ret_disk);
}

int may_rescan(const struct reconciler *reconciler, const struct store_volume *volume,
               bool *ret_may)
{
    struct store_disk disk;
    int r = find_disk(reconciler, volume, &disk);

    *ret_may = r > 0;
    return r < 0 ? r : 0;
}

int act_rescan_intend(struct act *act)
{
    int r = find_disk(act->reconciler, &act->volume, &act->disk);

    return r < 0 ? r
                 : store_intend_rescan(act->reconciler->store, act->volume.volume_id, &act->disk,
                                       clock_boottime());
}

/* Not O_PATH's reopening for reading: this is written to. */
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

static void on_written(struct slow_write *write, int result, void *userdata)
{
    struct act *act = userdata;

    act->rescan = slow_write_free(write);
    if (result < 0) {
        act->reason = REASON_HOST_STALE;
        error_set_errno(&act->error, result, "rescanning %s", act->disk.name);
    }
    act_finish(act);
}

int act_rescan_start(struct act *act)
{
    const struct reconciler *reconciler = act->reconciler;
    const struct store_disk *disk = &act->disk;
    struct observed_device device;
    cleanup(fd_closep) int fd = -1;
    int r = observe_device_number(reconciler->sysfs, disk->major, disk->minor, &device);

    if (r < 0)
        return r;
    if (r != OBSERVED || device.diskseq != disk->diskseq)
        return -ENODEV;
    r = open_rescan(reconciler->sysfs, disk, &fd);
    return r < 0 ? r
                 : slow_write_new(reconciler->loop, fd, "1", act_time_left(act), on_written, act,
                                  &act->rescan);
}

int act_rescan_record(struct act *act)
{
    struct reconciler *reconciler = act->reconciler;
    struct observed_device device;
    int64_t device_id;
    bool changed;
    int r = observe_device_number(reconciler->sysfs, act->disk.major, act->disk.minor, &device);

    if (r != OBSERVED || device.diskseq != act->disk.diskseq)
        return 0; /* another disk, about which nothing was found out */
    r = record_device(reconciler, &device, &device_id, &changed);
    return r < 0 ? r
                 : store_put_rescan_result(reconciler->store, act->volume.volume_id, &act->disk,
                                           device.size_bytes, act->error.text);
}
