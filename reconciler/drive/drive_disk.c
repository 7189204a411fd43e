/* SPDX-License-Identifier: Apache-2.0 */
/* drive_disk.c - claims the host's disk of a drive, and checks at the end that it is free.
 *
 * A disk that was claimed once belongs to the drive for good: after a restart of crustd the path
 * must lead to the same disk. Before a drive counts as removed, an exclusive open of that disk must
 * succeed, because a driver that attaches the disk elsewhere next relies on it. If the node no
 * longer has the disk, nobody can open it, and the path is not opened, since it may lead to a dead
 * disk of somebody else. If the path leads elsewhere, the disk is found by its number. A disk that
 * cannot be found is not reported as free.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "config/config.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drive_work.h"

static bool is_same(const struct store_drive_mount_disk *a, const struct store_drive_mount_disk *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == DEVICE_KIND_BLOCK
               ? a->major == b->major && a->minor == b->minor && a->diskseq == b->diskseq
               : a->file_device == b->file_device && a->inode == b->inode;
}

/* Kernels before 5.15 have no diskseq. */
static bool may_have_diskseq(const struct store_drive_mount_disk *disk, uint64_t diskseq)
{
    return disk->diskseq == 0 || diskseq == 0 || disk->diskseq == diskseq;
}

static bool is_same_block_device(const struct store_drive_mount_disk *a,
                                 const struct store_drive_mount_disk *b)
{
    return a->kind == DEVICE_KIND_BLOCK && b->kind == DEVICE_KIND_BLOCK && a->major == b->major &&
           a->minor == b->minor && may_have_diskseq(a, b->diskseq);
}

struct hypervisor_disk drive_disk_identity(const struct store_drive_mount_disk *disk)
{
    bool is_file = disk->kind == DEVICE_KIND_FILE;

    return (struct hypervisor_disk){
        .regular_file = is_file,
        .device = is_file ? (dev_t)disk->file_device : makedev(disk->major, disk->minor),
        .inode = is_file ? (ino_t)disk->inode : 0,
    };
}

static void open_disk(struct drive_work *work, const char *path, const struct config_list *prefixes,
                      bool keep, drive_claim_done *done)
{
    const struct context *context = work->drives->context;
    struct drive_claim_request request = {
        .root = context->root,
        .sysfs = context->sysfs,
        .host_path = path,
        .prefix_count = prefixes->count,
        .writable = keep && work->row.request.writable,
        .is_new = !work->row.has_disk,
        .keep = keep,
    };
    struct error error = {0};
    int r;

    for (unsigned i = 0; i < prefixes->count; i++)
        request.prefixes[i] = config_list_item(prefixes, i);
    r = drive_claim_start(&work->claim, &request, work->row.request.host_path,
                          context->config->resize.call_timeout_seconds * NSEC_PER_SEC, done);
    if (r < 0) {
        (void)error_set(&error, r, "%s cannot be opened: %s", path, child_explain(r));
        drive_act_disk_done(work, STATUS_UNAVAILABLE, &error);
    }
}

static enum status_code judge(struct drive_work *work, struct drive_claim_reply *reply)
{
    const struct store_drive_mount *row = &work->row;
    struct error *error = &reply->error;
    int flags;

    if (reply->outcome < 0)
        return STATUS_UNAVAILABLE;
    if (reply->outcome != DRIVE_CLAIM_OPEN)
        return reply->outcome == DRIVE_CLAIM_OUTSIDE   ? STATUS_PERMISSION_DENIED
               : reply->outcome == DRIVE_CLAIM_MISSING ? STATUS_NOT_FOUND
                                                       : STATUS_FAILED_PRECONDITION;
    if (row->has_disk && !is_same(&row->disk, &reply->disk))
        return (enum status_code)error_set(error, STATUS_FAILED_PRECONDITION,
                                           "%s is not the disk that was claimed",
                                           row->request.host_path);
    if (reply->disk.kind != DEVICE_KIND_BLOCK)
        return STATUS_OK; /* the file system of a regular file may not support O_DIRECT */
    /* It bypasses the host's cache, so that data that another node wrote to the disk is read. */
    flags = fcntl(reply->fd, F_GETFL);
    if (flags >= 0 && fcntl(reply->fd, F_SETFL, flags | O_DIRECT) == 0)
        return STATUS_OK;
    (void)error_set_errno(error, -errno, "cannot read %s without the page cache",
                          row->request.host_path);
    return STATUS_UNAVAILABLE;
}

static void on_claimed(struct drive_claim_call *call, struct drive_claim_reply *reply)
{
    struct drive_work *work = container_of(call, struct drive_work, claim);
    enum status_code status = judge(work, reply);

    work->result.is_taken = reply->outcome == DRIVE_CLAIM_TAKEN;
    work->result.disk = reply->disk;
    if (status == STATUS_OK) {
        drive_work_drop_disk(work);
        work->disk = take_fd(&reply->fd);
        work->claimed = reply->disk;
        work->backing = reply->backing;
    }
    drive_act_disk_done(work, status, &reply->error);
}

void drive_disk_claim(struct drive_work *work)
{
    open_disk(work, work->row.request.host_path,
              &work->drives->context->config->drives.host_prefixes, true, on_claimed);
}

const struct drive_work *drive_disk_find_claim(const struct drives *drives,
                                               const struct store_drive_mount_disk *disk)
{
    for (const struct drive_work *work = drives->works; work; work = work->next)
        if (work->disk >= 0 && work->row.drive_ref && is_same_block_device(&work->claimed, disk))
            return work;
    return NULL;
}

/* ---- whether it is free ---- */

static const struct config_list anywhere = {.count = 1, .text = "/"};

/* OBSERVED; OBSERVED_ABSENT, also if another disk has its number; or the reason why it is
 * unknown. */
static int find_by_number(const struct drive_work *work, struct observed_device *ret_device)
{
    const struct store_drive_mount_disk *disk = &work->row.disk;
    int r =
        observe_device_number(work->drives->context->sysfs, disk->major, disk->minor, ret_device);

    return r == OBSERVED && !may_have_diskseq(disk, ret_device->diskseq) ? OBSERVED_ABSENT : r;
}

/* The disk was opened by its path or, if that leads elsewhere, by the kernel's name. */
static void on_tried(struct drive_claim_call *call, struct drive_claim_reply *reply)
{
    struct drive_work *work = container_of(call, struct drive_work, claim);
    const struct store_drive_mount_disk *disk = &work->row.disk;
    const char *why = reply->error.text;
    struct observed_device device;
    struct error error = {0};
    int r;

    if (is_same_block_device(&reply->disk, disk) || reply->outcome == DRIVE_CLAIM_HANGS) {
        drive_act_disk_done(work,
                            reply->outcome == DRIVE_CLAIM_OPEN ||
                                    reply->outcome == DRIVE_CLAIM_UNSUITABLE /* opened, and empty */
                                ? STATUS_OK
                                : STATUS_UNAVAILABLE,
                            &reply->error);
        return;
    }
    r = find_by_number(work, &device);
    if (r == OBSERVED_ABSENT) {
        drive_act_disk_done(work, STATUS_OK, NULL);
    } else if (r == OBSERVED && !work->result.is_by_name) {
        work->result.is_by_name = true;
        open_disk(work, device.name, &anywhere, false, on_tried);
    } else {
        (void)error_set(&error, STATUS_UNAVAILABLE,
                        "%s does not lead to the disk any more, so whether that "
                        "(block device %u:%u) is free cannot be seen%s%s",
                        work->row.request.host_path, disk->major, disk->minor, why[0] ? ": " : "",
                        why);
        drive_act_disk_done(work, STATUS_UNAVAILABLE, &error);
    }
}

void drive_disk_check_free(struct drive_work *work)
{
    struct observed_device device;

    drive_work_drop_disk(work);
    if (find_by_number(work, &device) == OBSERVED_ABSENT)
        drive_act_disk_done(work, STATUS_OK, NULL);
    else
        open_disk(work, work->row.request.host_path, &anywhere, false, on_tried);
}

/* The number may belong to another disk by now. */
uint64_t drive_disk_growth(const struct drive_work *work)
{
    const struct context *context = work->drives->context;
    const struct store_drive_mount_disk *disk = &work->row.disk;
    struct observed_device device;

    if (context->config->resize.mode != RESIZE_GROW || disk->kind != DEVICE_KIND_BLOCK ||
        permit_find_forbidding(context->config, work->sandbox.hypervisor) ||
        observe_device_number(context->sysfs, disk->major, disk->minor, &device) != OBSERVED ||
        device.diskseq != disk->diskseq)
        return 0;
    return device.size_bytes > disk->size_bytes ? device.size_bytes : 0;
}
