/* SPDX-License-Identifier: Apache-2.0 */
/* drive_disk.c - the host's disk of a drive: claimed for it, and in the end found to be free.
 *
 * A disk that was claimed once is the drive's for good: after a restart of crustd the path must
 * lead to the same disk. The last check, before a drive counts as removed, is that an exclusive
 * open of that very disk succeeds: that is what a driver relies on that attaches the disk elsewhere
 * next. Where its path leads elsewhere by then, it is found by its number; where the node does not
 * have it any more, nobody can open it. What cannot be seen is not taken for free.
 */
#include <fcntl.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "observe/observe.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drive_work.h"

static const enum status_code codes[] = {
    [DRIVE_CLAIM_OPEN] = STATUS_OK,
    [DRIVE_CLAIM_OUTSIDE] = STATUS_PERMISSION_DENIED,
    [DRIVE_CLAIM_MISSING] = STATUS_NOT_FOUND,
    [DRIVE_CLAIM_UNSUITABLE] = STATUS_FAILED_PRECONDITION,
    [DRIVE_CLAIM_READ_ONLY] = STATUS_FAILED_PRECONDITION,
    [DRIVE_CLAIM_IN_USE] = STATUS_FAILED_PRECONDITION,
    [DRIVE_CLAIM_TAKEN] = STATUS_FAILED_PRECONDITION,
    [DRIVE_CLAIM_FORBIDDEN] = STATUS_FAILED_PRECONDITION,
};

static bool is_same(const struct store_drive_mount_disk *a, const struct store_drive_mount_disk *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == DEVICE_KIND_BLOCK
               ? a->major == b->major && a->minor == b->minor && a->diskseq == b->diskseq
               : a->file_device == b->file_device && a->inode == b->inode;
}

/* A kernel before 5.15 numbers no disks. */
static bool is_numbered_so(const struct store_drive_mount_disk *disk, uint64_t diskseq)
{
    return disk->diskseq == 0 || diskseq == 0 || disk->diskseq == diskseq;
}

static bool is_block_device(const struct store_drive_mount_disk *a,
                            const struct store_drive_mount_disk *b)
{
    return a->kind == DEVICE_KIND_BLOCK && b->kind == DEVICE_KIND_BLOCK && a->major == b->major &&
           a->minor == b->minor && is_numbered_so(a, b->diskseq);
}

static void mountsp(struct observed_mounts **mounts)
{
    (void)observed_mounts_free(*mounts);
}

static int open_disk(const struct drive_work *work, const char *path,
                     const struct config_list *prefixes, bool writable, int *ret_fd,
                     struct store_drive_mount_disk *ret_disk, struct error *error)
{
    const struct context *context = work->drives->context;
    cleanup(mountsp) struct observed_mounts *mounts = NULL;
    const char *names[CONFIG_LIST_ITEMS];
    struct drive_claim_request request = {
        .root = context->root,
        .sysfs = context->sysfs,
        .host_path = path,
        .prefixes = names,
        .prefix_count = prefixes->count,
        .writable = writable,
    };

    for (unsigned i = 0; i < prefixes->count; i++)
        names[i] = prefixes->item[i];
    if (observe_mounts(context->sysfs, &mounts) == 0)
        request.mounts = mounts;
    else
        mounts = NULL;
    return drive_claim(&request, ret_fd, ret_disk, error);
}

/* Past the host's cache, so that what another node wrote to the disk is seen. A file may be on a
 * file system without it. */
static int set_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) < 0 ? -errno : 0;
}

enum status_code drive_disk_claim(struct drive_work *work, struct store_drive_mount_disk *ret_disk,
                                  struct error *error)
{
    const struct store_drive_mount *row = &work->row;
    cleanup(fd_closep) int fd = -1;
    int r = open_disk(work, row->request.host_path,
                      &work->drives->context->config->drives.host_prefixes, row->request.writable,
                      &fd, ret_disk, error);

    work->result.is_taken = r == DRIVE_CLAIM_TAKEN;
    if (r < 0)
        return STATUS_UNAVAILABLE;
    if (r != DRIVE_CLAIM_OPEN)
        return codes[r];
    if (row->has_disk && !is_same(&row->disk, ret_disk))
        return (enum status_code)error_set(error, STATUS_FAILED_PRECONDITION,
                                           "%s is another disk than the one that was claimed",
                                           row->request.host_path);
    r = ret_disk->kind == DEVICE_KIND_BLOCK ? set_direct(fd) : 0;
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot use %s past the cache", row->request.host_path);
        return STATUS_UNAVAILABLE;
    }
    drive_work_drop_disk(work);
    work->disk = take_fd(&fd);
    work->claimed = *ret_disk;
    return STATUS_OK;
}

const struct drive_work *drive_disk_find_claim(const struct drives *drives,
                                               const struct store_drive_mount_disk *disk)
{
    for (const struct drive_work *work = drives->works; work; work = work->next)
        if (work->disk >= 0 && work->row.drive_ref && is_block_device(&work->claimed, disk))
            return work;
    return NULL;
}

/* Whether the path leads to the drive's disk; then ret_free says whether nobody has it. */
static bool try_path(const struct drive_work *work, const char *path, bool *ret_free,
                     struct error *error)
{
    static const struct config_list anywhere = {.count = 1, .item = {"/"}};
    struct store_drive_mount_disk found = {.kind = DEVICE_KIND_OTHER};
    cleanup(fd_closep) int fd = -1;
    int r = open_disk(work, path, &anywhere, false, &fd, &found, error);

    if (!is_block_device(&found, &work->row.disk))
        return false;
    *ret_free = r == DRIVE_CLAIM_OPEN || r == DRIVE_CLAIM_UNSUITABLE; /* opened, and empty */
    return true;
}

enum status_code drive_disk_check_free(const struct drive_work *work, struct error *error)
{
    const struct store_drive_mount_disk *disk = &work->row.disk;
    struct observed_device device;
    bool is_free = false;
    int r;

    if (!work->row.has_disk || disk->kind != DEVICE_KIND_BLOCK)
        return STATUS_OK;
    if (try_path(work, work->row.request.host_path, &is_free, error))
        return is_free ? STATUS_OK : STATUS_UNAVAILABLE;
    r = observe_device_number(work->drives->context->sysfs, disk->major, disk->minor, &device);
    if (r == OBSERVED_ABSENT || (r == OBSERVED && !is_numbered_so(disk, device.diskseq)))
        return STATUS_OK;
    if (r == OBSERVED && try_path(work, device.name, &is_free, error))
        return is_free ? STATUS_OK : STATUS_UNAVAILABLE;
    return (enum status_code)error_set(error, STATUS_UNAVAILABLE,
                                       "%s does not lead to the disk any more, so whether that "
                                       "(block device %u:%u) is free cannot be seen",
                                       work->row.request.host_path, disk->major, disk->minor);
}

/* Another disk may have the number by now. */
uint64_t drive_disk_growth(const struct drive_work *work)
{
    const struct context *context = work->drives->context;
    const struct store_drive_mount_disk *disk = &work->row.disk;
    struct observed_device device;

    if (context->config->resize.mode != RESIZE_GROW || disk->kind != DEVICE_KIND_BLOCK ||
        observe_device_number(context->sysfs, disk->major, disk->minor, &device) != OBSERVED ||
        device.diskseq != disk->diskseq)
        return 0;
    return device.size_bytes > disk->size_bytes ? device.size_bytes : 0;
}
