/* SPDX-License-Identifier: Apache-2.0 */
/* claim.c - opens the host's disk of a drive mount.
 *
 * The path is resolved once, to an O_PATH descriptor below one of the allowed directories, and that
 * descriptor is checked and then reopened through /proc/self/fd, so a path that changes meanwhile
 * cannot lead elsewhere. The properties of the opened device (its number, size and write
 * protection) count, not its name.
 */
#include "reconciler/drive/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "observe/sysfs.h"
#include "reconciler/drive/loops.h"

#ifndef BLKGETDISKSEQ
#define BLKGETDISKSEQ _IOR(0x12, 128, uint64_t) /* since Linux 5.15 */
#endif

#define DEVICES "/dev"

/* ---- the path ------------------------------------------------------------------------------- */

/* The rest of an absolute path below the directory; NULL: the path is not below it. */
static const char *path_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    while (length && directory[length - 1] == '/')
        length--;
    if (strncmp(path, directory, length) != 0 || path[length] != '/')
        return NULL;
    path += length + strspn(path + length, "/");
    return *path ? path : NULL;
}

static int explain_path(const struct drive_claim_request *request, int r, struct error *error)
{
    const char *path = request->host_path;

    if (path_is_missing(r))
        return error_set(error, DRIVE_CLAIM_MISSING, "%s does not exist on the host", path);
    if (r == PATH_LEADS_OUT || r == PATH_BEHIND_A_LINK)
        return error_set(error, DRIVE_CLAIM_OUTSIDE,
                         "%s leads out of the directory that drives.host_prefixes allows", path);
    return error_set_errno(error, r, "cannot open %s", path);
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

/* Only the last component can be such a link; those before it are directories. */
static int read_absolute_link(int devices, const char *below, char ret_target[static PATH_MAX])
{
    cleanup(fd_closep) int link = -1;
    int r = path_open_below(devices, below, &link);
    ssize_t length = r < 0 ? -1 : readlinkat(link, "", ret_target, PATH_MAX - 1);

    if (length <= 0 || ret_target[0] != '/')
        return PATH_LEADS_OUT;
    ret_target[length] = '\0';
    return 0;
}

/* Follows one link, to a path below /dev that has no other absolute link. */
static int open_absolute_link(const struct drive_claim_request *request, int devices,
                              const char *below, int *ret_fd, struct error *error)
{
    char target[PATH_MAX];
    const char *rest;
    int r = read_absolute_link(devices, below, target);

    if (r < 0)
        return r;
    rest = path_below(target, DEVICES);
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
    const char *below = path_below(request->host_path, DEVICES);
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
        const char *below = path_below(request->host_path, request->prefixes[i]);
        cleanup(fd_closep) int prefix = -1;
        int r;

        if (!below)
            continue;
        r = path_open_directory_in_root(request->root, request->prefixes[i], &prefix);
        if (r == 0)
            r = path_open_within(prefix, below, ret_fd);
        if (r == PATH_LEADS_OUT)
            r = open_link_of_devices(request, ret_fd, error);
        return r < 0 ? explain_path(request, r, error) : r;
    }
    return error_set(error, DRIVE_CLAIM_OUTSIDE,
                     "%s is outside the directories of drives.host_prefixes", request->host_path);
}

/* ---- who uses the disk ---------------------------------------------------------------------- */

int drive_claim_find_mount(const struct drive_claim_request *request, uint32_t major,
                           uint32_t minor, char *ret_where, size_t size)
{
    struct observed_mounts *mounts = NULL;
    const char *where;
    int r = request->read_mounts(request->sysfs, &mounts);

    if (r < 0)
        return r;
    where = observed_mounts_find(mounts, request->sysfs, major, minor);
    if (where)
        (void)snprintf(ret_where, size, "%s", where);
    (void)observed_mounts_free(mounts);
    return where ? OBSERVED : OBSERVED_ABSENT;
}

static int say_in_use(const struct drive_claim_request *request, const struct stat *status,
                      struct error *error)
{
    uint32_t major = major(status->st_rdev), minor = minor(status->st_rdev);
    char mount[ERROR_TEXT_BYTES], holder[128];
    bool is_mounted =
        drive_claim_find_mount(request, major, minor, mount, sizeof(mount)) == OBSERVED;

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

static int judge_file(const struct drive_claim_request *request, const struct stat *status,
                      struct error *error)
{
    const char *what = NULL;

    if (status->st_uid != 0)
        what = "does not belong to root";
    else if (status->st_mode & 022)
        what = "can be written by users other than root";
    else if (status->st_nlink != 1)
        what = "has several hard links";
    if (what)
        return error_set(error, DRIVE_CLAIM_UNSUITABLE, "%s %s", request->host_path, what);
    return DRIVE_CLAIM_OPEN;
}

static int judge(const struct drive_claim_request *request, const struct stat *status,
                 struct error *error)
{
    int r = DRIVE_CLAIM_OPEN;

    if (S_ISREG(status->st_mode))
        r = judge_file(request, status, error);
    else if (!S_ISBLK(status->st_mode))
        r = error_set(error, DRIVE_CLAIM_UNSUITABLE, "%s is neither a block device nor a file",
                      request->host_path);
    return r == DRIVE_CLAIM_OPEN ? drive_loops_refuse(request, status, error) : r;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* The kernel refuses to open a write-protected device for writing with EACCES; a device cgroup
 * refuses with EPERM. */
static bool is_write_protected(const struct drive_claim_request *request, const struct stat *status)
{
    char path[64];
    uint64_t number = 0;

    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/ro", major(status->st_rdev),
                   minor(status->st_rdev));
    return request->writable && S_ISBLK(status->st_mode) &&
           sysfs_read_number(request->sysfs, path, &number) == 0 && number != 0;
}

static int explain_open(const struct drive_claim_request *request, const struct stat *status,
                        int failure, struct error *error)
{
    const char *path = request->host_path;

    if (failure == EROFS || is_write_protected(request, status))
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

static int read_block(int fd, struct store_drive_mount_disk *disk, bool *ret_read_only)
{
    struct stat status;
    int read_only = 0;

    if (fstat(fd, &status) < 0 || ioctl(fd, BLKGETSIZE64, &disk->size_bytes) < 0 ||
        ioctl(fd, BLKROGET, &read_only) < 0)
        return -errno;
    disk->kind = DEVICE_KIND_BLOCK;
    disk->major = major(status.st_rdev);
    disk->minor = minor(status.st_rdev);
    if (ioctl(fd, BLKGETDISKSEQ, &disk->diskseq) < 0)
        disk->diskseq = 0;
    *ret_read_only = read_only != 0;
    return 0;
}

static int read_file(int fd, struct store_drive_mount_disk *disk)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return -errno;
    disk->kind = DEVICE_KIND_FILE;
    disk->file_device = status.st_dev;
    disk->inode = status.st_ino;
    disk->size_bytes = (uint64_t)status.st_size;
    return 0;
}

/* Checks the opened descriptor. */
static int check_opened(const struct drive_claim_request *request, int fd, bool is_block,
                        struct store_drive_mount_disk *disk, struct error *error)
{
    bool read_only = false;
    int r = is_block ? read_block(fd, disk, &read_only) : read_file(fd, disk);

    if (r < 0)
        return error_set_errno(error, r, "cannot examine %s", request->host_path);
    if (read_only && request->writable)
        return error_set(error, DRIVE_CLAIM_READ_ONLY, "%s is read-only on the host",
                         request->host_path);
    if (disk->size_bytes == 0)
        return error_set(error, DRIVE_CLAIM_UNSUITABLE, "%s is empty", request->host_path);
    return DRIVE_CLAIM_OPEN;
}

/* Opens what was checked. */
static int reopen(int fd, bool is_block, bool writable)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, (writable ? O_RDWR : O_RDONLY) | (is_block ? O_EXCL : 0) | O_NONBLOCK |
                          O_NOCTTY | O_CLOEXEC);
}

/* Identifies a block device before it is opened. */
static struct store_drive_mount_disk identify(const struct drive_claim_request *request,
                                              const struct stat *status)
{
    struct observed_device device = {0};

    (void)observe_device_number(request->sysfs, major(status->st_rdev), minor(status->st_rdev),
                                &device);
    return (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_BLOCK,
        .major = major(status->st_rdev),
        .minor = minor(status->st_rdev),
        .diskseq = device.diskseq,
    };
}

int drive_claim(const struct drive_claim_request *request, int *ret_fd,
                struct store_drive_mount_disk *ret_disk, struct store_drive_mount_disk *ret_backing,
                struct error *error)
{
    struct store_drive_mount_disk disk = {0};
    cleanup(fd_closep) int found = -1, opened = -1;
    struct stat status;
    int r = open_path(request, &found, error);

    if (r != 0)
        return r;
    if (fstat(found, &status) < 0)
        return error_set_errno(error, -errno, "cannot examine %s", request->host_path);
    if (S_ISBLK(status.st_mode))
        *ret_disk = identify(request, &status);
    r = judge(request, &status, error);
    if (r != DRIVE_CLAIM_OPEN)
        return r;
    opened = reopen(found, S_ISBLK(status.st_mode), request->writable);
    if (opened < 0)
        return explain_open(request, &status, errno, error);
    r = check_opened(request, opened, S_ISBLK(status.st_mode), &disk, error);
    if (r == DRIVE_CLAIM_OPEN || S_ISBLK(status.st_mode))
        *ret_disk = disk;
    if (r == DRIVE_CLAIM_OPEN && ret_backing)
        r = drive_loops_examine(request, opened, &disk, ret_backing, error);
    if (r != DRIVE_CLAIM_OPEN)
        return r;
    *ret_fd = opened;
    opened = -1;
    return DRIVE_CLAIM_OPEN;
}
