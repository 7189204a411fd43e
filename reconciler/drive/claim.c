/* SPDX-License-Identifier: Apache-2.0 */
/* claim.c - opens the host's disk of a drive mount.
 *
 * The path is resolved once, to an O_PATH descriptor below one of the allowed directories, and that
 * descriptor is checked and then reopened, so a path that changes meanwhile
 * cannot lead elsewhere. The properties of the opened device (its number, size and write
 * protection) count, not its name.
 */
#include "reconciler/drive/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/workers.h"
#include "observe/observe.h"

#ifndef BLKGETDISKSEQ
#define BLKGETDISKSEQ _IOR(0x12, 128, uint64_t) /* since Linux 5.15 */
#endif

#define DEVICES "/dev"

/* ---- the path ------------------------------------------------------------------------------- */

const char *drive_path_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    while (length && directory[length - 1] == '/')
        length--;
    if (strncmp(path, directory, length) != 0 || path[length] != '/')
        return NULL;
    path += length + strspn(path + length, "/");
    return *path ? path : NULL;
}

/* Refuses a link that a user other than root may have made. */
static int require_roots(const struct drive_claim_request *request, const char *path,
                         struct error *error)
{
    char directory[PATH_MAX];
    struct error why = {0};
    int r;

    (void)snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(path, '/') - path), path);
    r = path_require_roots(request->root, directory, &why);
    if (r == PATH_ABSENT)
        return error_set(error, DRIVE_CLAIM_MISSING, "%s does not exist on the host: %s",
                         request->host_path, why.text);
    if (r == PATH_OK || r < 0)
        return r;
    return error_set(error, DRIVE_CLAIM_OUTSIDE, "%s is an absolute link, and not only root's: %s",
                     request->host_path, why.text);
}

/* Follows one link, to a path below /dev that has no other absolute link. Only the last component
 * can be such a link; those before it are directories. */
static int open_absolute_link(const struct drive_claim_request *request, int devices,
                              const char *below, int *ret_fd, struct error *error)
{
    cleanup(fd_closep) int link = -1;
    char target[PATH_MAX];
    const char *rest;
    int r = path_open_below(devices, below, &link);
    ssize_t length = r < 0 ? -1 : readlinkat(link, "", target, PATH_MAX - 1);

    if (length <= 0 || target[0] != '/')
        return PATH_LEADS_OUT;
    target[length] = '\0';
    rest = drive_path_below(target, DEVICES);
    if (!rest || !path_is_clean(target))
        return error_set(error, DRIVE_CLAIM_OUTSIDE, "%s is a link to %s, which is not below /dev",
                         request->host_path, target);
    r = require_roots(request, request->host_path, error);
    if (r == PATH_OK)
        r = require_roots(request, target, error);
    return r == PATH_OK ? path_open_on_mount(devices, rest, ret_fd) : r;
}

/* udev and LVM make links: /dev/VG/LV leads to ../dm-0, or, if LVM runs without udev, to
 * /dev/mapper/VG-LV. Only root makes names in devtmpfs, so there such a link may lead out of the
 * allowed directory. */
static int open_link_of_devices(const struct drive_claim_request *request, int *ret_fd,
                                struct error *error)
{
    const char *below = drive_path_below(request->host_path, DEVICES);
    cleanup(fd_closep) int devices = -1;
    int r;

    if (!below || !path_is_clean(request->host_path))
        return PATH_LEADS_OUT;
    r = path_open_directory_in_root(request->root, DEVICES, &devices);
    if (r == 0)
        r = path_open_on_mount(devices, below, ret_fd);
    return r == PATH_LEADS_OUT ? open_absolute_link(request, devices, below, ret_fd, error) : r;
}

static int open_path(const struct drive_claim_request *request, int *ret_fd, struct error *error)
{
    for (unsigned i = 0; i < request->prefix_count; i++) {
        const char *below = drive_path_below(request->host_path, request->prefixes[i]);
        cleanup(fd_closep) int prefix = -1;
        int r;

        if (!below)
            continue;
        r = path_open_directory_in_root(request->root, request->prefixes[i], &prefix);
        if (r == 0)
            r = path_open_within(prefix, below, ret_fd);
        if (r == PATH_LEADS_OUT)
            r = open_link_of_devices(request, ret_fd, error);
        if (path_is_missing(r))
            return error_set(error, DRIVE_CLAIM_MISSING, "%s does not exist on the host",
                             request->host_path);
        if (r == PATH_LEADS_OUT || r == PATH_BEHIND_A_LINK)
            return error_set(error, DRIVE_CLAIM_OUTSIDE,
                             "%s leads out of the directory that drives.host_prefixes allows",
                             request->host_path);
        return r < 0 ? error_set_errno(error, r, "cannot open %s", request->host_path) : r;
    }
    return error_set(error, DRIVE_CLAIM_OUTSIDE,
                     "%s is outside the directories of drives.host_prefixes", request->host_path);
}

/* ---- who uses the disk ---------------------------------------------------------------------- */

static int say_in_use(const struct drive_claim_request *request, const struct stat *status,
                      struct error *error)
{
    uint32_t major = major(status->st_rdev), minor = minor(status->st_rdev);
    char mount[ERROR_TEXT_BYTES], holder[128];
    bool is_mounted =
        drive_loops_find_mount(request, major, minor, mount, sizeof(mount)) == OBSERVED;

    if (is_mounted && strcmp(mount, "swap") == 0)
        return error_set(error, DRIVE_CLAIM_IN_USE, "%s is in use on the host as swap space",
                         request->host_path);
    if (is_mounted)
        return error_set(error, DRIVE_CLAIM_IN_USE, "%s is mounted on the host at %s",
                         request->host_path, mount);
    if (observe_holder(request->sysfs, major, minor, holder, sizeof(holder)) == OBSERVED)
        return error_set(error, DRIVE_CLAIM_IN_USE, "%s is held on the host by %s",
                         request->host_path, holder);
    return error_set(error, DRIVE_CLAIM_TAKEN,
                     "%s is open exclusively: another VM has it, or a program on the host",
                     request->host_path);
}

/* ---- checking the disk ---------------------------------------------------------------------- */

static int judge(const struct drive_claim_request *request, const struct stat *status,
                 struct error *error)
{
    const char *what = NULL;

    if (!S_ISREG(status->st_mode) && !S_ISBLK(status->st_mode))
        what = "is neither a block device nor a file";
    else if (S_ISREG(status->st_mode) && status->st_uid != 0)
        what = "does not belong to root";
    else if (S_ISREG(status->st_mode) && status->st_mode & 022)
        what = "can be written by users other than root";
    else if (S_ISREG(status->st_mode) && status->st_nlink != 1)
        what = "has several hard links";
    return what ? error_set(error, DRIVE_CLAIM_UNSUITABLE, "%s %s", request->host_path, what)
                : drive_loops_refuse(request, status, -1, error);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* The kernel refuses to open a write-protected device for writing with EACCES; a device cgroup
 * refuses with EPERM. */
static int explain_open(const struct drive_claim_request *request, const struct stat *status,
                        int failure, struct error *error)
{
    const char *path = request->host_path;
    char attribute[64];
    uint64_t is_protected = 0;

    (void)snprintf(attribute, sizeof(attribute), "dev/block/%u:%u/ro", major(status->st_rdev),
                   minor(status->st_rdev));
    if (request->writable && S_ISBLK(status->st_mode))
        (void)sysfs_read_number(request->sysfs, attribute, &is_protected);
    if (failure == EROFS || is_protected)
        return error_set(error, DRIVE_CLAIM_READ_ONLY, "%s is read-only on the host", path);
    switch (failure) {
    case EBUSY:
        return say_in_use(request, status, error);
    case EACCES:
    case EPERM:
        return error_set(error, DRIVE_CLAIM_FORBIDDEN,
                         "crustd may not open %s: drives need the drop-in or overlay that allows "
                         "block devices",
                         path);
    case ENXIO:
    case ENODEV:
    case ENOMEDIUM:
        return error_set(error, DRIVE_CLAIM_MISSING, "%s is a device node without a device", path);
    default:
        return error_set_errno(error, -failure, "cannot open %s", path);
    }
}

static int check_opened(const struct drive_claim_request *request, int fd,
                        struct store_drive_mount_disk *disk, struct error *error)
{
    struct stat status;
    int read_only = 0;
    bool is_file;

    if (fstat(fd, &status) < 0)
        return error_set_errno(error, -errno, "cannot examine %s", request->host_path);
    is_file = S_ISREG(status.st_mode);
    if (is_file)
        *disk = (struct store_drive_mount_disk){.kind = DEVICE_KIND_FILE,
                                                .file_device = status.st_dev,
                                                .inode = status.st_ino,
                                                .size_bytes = (uint64_t)status.st_size};
    else
        *disk = (struct store_drive_mount_disk){.kind = DEVICE_KIND_BLOCK,
                                                .major = major(status.st_rdev),
                                                .minor = minor(status.st_rdev)};
    if (!is_file &&
        (ioctl(fd, BLKGETSIZE64, &disk->size_bytes) < 0 || ioctl(fd, BLKROGET, &read_only) < 0))
        return error_set_errno(error, -errno, "cannot examine %s", request->host_path);
    if (!is_file && ioctl(fd, BLKGETDISKSEQ, &disk->diskseq) < 0)
        disk->diskseq = 0;
    if (read_only && request->writable)
        return error_set(error, DRIVE_CLAIM_READ_ONLY, "%s is read-only on the host",
                         request->host_path);
    if (disk->size_bytes == 0)
        return error_set(error, DRIVE_CLAIM_UNSUITABLE, "%s is empty", request->host_path);
    return DRIVE_CLAIM_OPEN;
}

int drive_claim(const struct drive_claim_request *request, int *ret_fd,
                struct store_drive_mount_disk *ret_disk, struct store_drive_mount_disk *ret_backing,
                struct error *error)
{
    struct store_drive_mount_disk disk = {0};
    struct observed_device device = {0};
    cleanup(fd_closep) int found = -1, opened = -1;
    struct stat status;
    bool is_block;
    int r = open_path(request, &found, error);

    if (r != 0)
        return r;
    if (fstat(found, &status) < 0)
        return error_set_errno(error, -errno, "cannot examine %s", request->host_path);
    is_block = S_ISBLK(status.st_mode);
    if (is_block) { /* identified before it is opened */
        (void)observe_device_number(request->sysfs, major(status.st_rdev), minor(status.st_rdev),
                                    &device);
        *ret_disk = (struct store_drive_mount_disk){
            .kind = DEVICE_KIND_BLOCK,
            .major = major(status.st_rdev),
            .minor = minor(status.st_rdev),
            .diskseq = device.diskseq,
        };
    }
    r = judge(request, &status, error);
    if (r != DRIVE_CLAIM_OPEN)
        return r;
    r = path_reopen(found,
                    (request->writable ? O_RDWR : O_RDONLY) | (is_block ? O_EXCL : 0) | O_NONBLOCK |
                        O_NOCTTY,
                    &opened);
    if (r < 0)
        return explain_open(request, &status, -r, error);
    r = check_opened(request, opened, &disk, error);
    if (r == DRIVE_CLAIM_OPEN || is_block)
        *ret_disk = disk;
    if (r == DRIVE_CLAIM_OPEN && ret_backing)
        r = drive_loops_examine(request, opened, &disk, ret_backing, error);
    if (r == DRIVE_CLAIM_OPEN)
        *ret_fd = take_fd(&opened);
    return r;
}

/* ---- claim call ----------------------------------------------------------------------------- */

static const struct job_texts texts[] = {
    {offsetof(struct drive_claim_request, host_path), 1},
    {offsetof(struct drive_claim_request, prefixes), CONFIG_LIST_ITEMS},
    {0, 0},
};

/* ---- in a worker ---- */

/* The sources of mounts are looked up, too. Where one of them lies in a file system that hangs,
 * this must not: the disk lies elsewhere. So there is a guard for as long. */
static int read_mounts(int sysfs, struct observed_mounts **ret_mounts)
{
    int r = path_guard_start(-1, NULL, 0);

    if (r == 0)
        r = observe_mounts(sysfs, ret_mounts);
    path_guard_stop();
    return r;
}

static void claim_act(const struct job_input *input, struct buffer *reply)
{
    struct drive_claim_reply answer = {.fd = -1};
    struct drive_claim_request request;

    job_read_message(input, texts, &request, sizeof(request));
    request.root = input->fds[0];
    request.sysfs = input->fds[1];
    request.read_mounts = read_mounts;
    answer.outcome = drive_claim(&request, &answer.fd, &answer.disk,
                                 request.keep ? &answer.backing : NULL, &answer.error);
    if (request.keep && answer.fd >= 0)
        (void)job_give(answer.fd);
    else
        fd_close(answer.fd);
    (void)buffer_append(reply, &answer, sizeof(answer));
}

/* ---- in crustd ---- */

/* Whether the descriptor is of the disk that the worker says it is. */
static bool is_of_disk(int fd, const struct store_drive_mount_disk *disk)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return false;
    if (S_ISBLK(status.st_mode))
        return disk->kind == DEVICE_KIND_BLOCK && disk->major == major(status.st_rdev) &&
               disk->minor == minor(status.st_rdev);
    return S_ISREG(status.st_mode) && disk->kind == DEVICE_KIND_FILE &&
           disk->file_device == status.st_dev && disk->inode == status.st_ino;
}

static void on_claimed(struct job *job, enum job_end end, const void *bytes, size_t length)
{
    struct drive_claim_call *call = container_of(job, struct drive_claim_call, job);
    struct drive_claim_reply reply = {.fd = -1};
    bool is_valid = end == JOB_ANSWERED && job_take_reply(bytes, length, &reply, sizeof(reply));

    reply.fd = end == JOB_ANSWERED ? job_take_given() : -1;
    is_valid =
        is_valid && reply.outcome <= DRIVE_CLAIM_FORBIDDEN &&
        (unsigned)reply.disk.kind <= DEVICE_KIND_OTHER &&
        (unsigned)reply.backing.kind <= DEVICE_KIND_OTHER && job_is_error(&reply.error) &&
        (reply.outcome != DRIVE_CLAIM_OPEN || !call->keep || is_of_disk(reply.fd, &reply.disk));
    if (end == JOB_LATE) {
        reply.outcome =
            error_set(&reply.error, DRIVE_CLAIM_HANGS,
                      "%s cannot be opened: its storage has not answered for %" PRIu64 " s",
                      call->name, call->patience_ns / NSEC_PER_SEC);
    } else if (!is_valid) {
        fd_close(reply.fd);
        reply = (struct drive_claim_reply){.fd = -1};
        reply.outcome = error_set(&reply.error, -EIO, "%s cannot be opened: %s", call->name,
                                  job_fault_text(end));
    }
    call->done(call, &reply);
    fd_close(reply.fd);
}

/* Identifies the disk whatever path leads to it, if that needs no waiting for storage. */
static uint64_t identify(const struct drive_claim_request *request)
{
    struct stat status;

    if (path_stat_in_root(request->root, request->host_path, &status) == 0 &&
        S_ISBLK(status.st_mode))
        return status.st_rdev;
    return child_subject(request->host_path);
}

int drive_claim_start(struct drive_claim_call *call, const struct drive_claim_request *request,
                      const char *name, uint64_t patience_ns, drive_claim_done *done)
{
    call->keep = request->keep;
    call->patience_ns = patience_ns;
    call->done = done;
    call->name = name;
    return job_start_message(&call->job,
                             &(struct job_message){request, sizeof(*request), texts, NULL, 0},
                             (struct job_request){.act = claim_act,
                                                  .fds = {request->root, request->sysfs},
                                                  .allowed_ns = patience_ns,
                                                  .subject = identify(request),
                                                  .done = on_claimed});
}

void drive_claim_stop(struct drive_claim_call *call)
{
    job_cancel(&call->job);
}
