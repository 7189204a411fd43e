/* SPDX-License-Identifier: Apache-2.0 */
/* loops.c - see claim.h. */
#include "reconciler/drive/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "agent-client/drive_call.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/encode.h"
#include "lib/path.h"
#include "observe/observe.h"

#define DEVICES "/dev"

/* ---- loop devices above a disk --------------------------------------------------------------- */

struct loop_search {
    const struct drive_claim_request *request;
    const struct stat *disk;
    int spared; /* the number of a loop device that may stand on it; -1: none may */
    struct drive_relatives relatives; /* of a block device */
    char name[256];                   /* /dev/NAME, by the kernel's name */
};

/* A loop device waits for its file's storage before it answers, so those on a file system are not
 * asked about a block device: one dead one would keep every disk from being opened. What sysfs has
 * is the file's path, in a container without the mount point that the container does not have. */
static bool may_stand_on(const struct loop_search *search, const char *loop)
{
    char path[64], file[PATH_MAX];

    (void)snprintf(path, sizeof(path), "block/%s/loop/backing_file", loop);
    if (sysfs_read_text(search->request->sysfs, path, file, sizeof(file)) < 0)
        return false; /* it has none */
    return !S_ISBLK(search->disk->st_mode) || strncmp(file, DEVICES "/", sizeof(DEVICES)) == 0 ||
           strcmp(basename(file), basename(search->name)) == 0;
}

static bool stands_on(const struct loop_search *search, const struct loop_info64 *info)
{
    const struct stat *disk = search->disk;

    if (!S_ISBLK(disk->st_mode))
        return info->lo_device == disk->st_dev && info->lo_inode == disk->st_ino;
    return info->lo_rdevice == disk->st_rdev ||
           drive_relatives_include(&search->relatives, info->lo_rdevice);
}

/* Why a loop device does not name its backing. */
enum loop_failure {
    LOOP_EMPTY = -ENXIO,
    LOOP_NOT_PERMITTED = -EPERM, /* by the device cgroup */
    LOOP_DENIED = -EACCES,       /* by the node's mode */
};

/* 0 or -errno. */
static int open_loop(const struct drive_claim_request *request, const char *path,
                     struct loop_info64 *ret_info)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_file_in_root(request->root, path, &fd);

    return r == 0 && ioctl(fd, LOOP_GET_STATUS64, ret_info) < 0 ? -errno : r;
}

/* A loop device without a node, or without a file, has no backing. */
static int ask_loop(const struct loop_search *search, const char *loop, struct error *error)
{
    struct loop_info64 info = {0};
    char path[64];
    int r;

    (void)snprintf(path, sizeof(path), "dev/%s", loop);
    r = open_loop(search->request, path, &info);
    if (path_is_missing(r) || r == LOOP_EMPTY)
        return DRIVE_CLAIM_OPEN;
    if (r == LOOP_NOT_PERMITTED || r == LOOP_DENIED)
        return error_set(error, DRIVE_CLAIM_FORBIDDEN,
                         "crustd may not ask /dev/%s whether it stands on %s: drives need the "
                         "drop-in or overlay that allows block devices",
                         loop, search->request->host_path);
    if (r < 0)
        return error_set_errno(error, r, "cannot ask /dev/%s whether it stands on %s", loop,
                               search->request->host_path);
    if (!stands_on(search, &info) || (int64_t)info.lo_number == search->spared)
        return DRIVE_CLAIM_OPEN;
    return error_set(error, DRIVE_CLAIM_IN_USE,
                     search->spared >= 0 ? "what %s stands on backs /dev/%s as well"
                                         : "%s backs /dev/%s on the host",
                     search->request->host_path, loop);
}

static int find_loop(const struct loop_search *search, struct error *error)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list_in_root(search->request->sysfs, "block", &names);

    if (r < 0)
        return error_set_errno(error, r, "cannot list the block devices");
    while ((name = directory_next(names))) {
        if (strncmp(name, "loop", 4) != 0 || strlen(name) > 16 || !may_stand_on(search, name))
            continue;
        r = ask_loop(search, name, error);
        if (r != DRIVE_CLAIM_OPEN)
            return r;
    }
    return errno ? error_set_errno(error, -errno, "cannot list the block devices")
                 : DRIVE_CLAIM_OPEN;
}

/* Refuses a loop device that is backed by another one, also through a partition or a dm device. */
static int refuse_stacked(const struct drive_claim_request *request, dev_t lower,
                          struct error *error)
{
    const uint32_t major = major(lower), minor = minor(lower);
    struct drive_relatives below = {.device = {lower}, .count = 1};
    struct observed_device device;

    if (observe_device_number(request->sysfs, major, minor, &device) != OBSERVED ||
        !drive_relatives_add(request->sysfs, major, minor, &below))
        return error_set(error, -ENODEV, "cannot tell what block device %u:%u, below %s, stands on",
                         major, minor, request->host_path);
    for (unsigned i = 0; i < below.count; i++)
        if (major(below.device[i]) == LOOP_MAJOR)
            return error_set(error, DRIVE_CLAIM_UNSUITABLE,
                             "%s stands on loop devices that stand on each other: attach the "
                             "device itself",
                             request->host_path);
    return DRIVE_CLAIM_OPEN;
}

int drive_loops_refuse(const struct drive_claim_request *request, const struct stat *disk,
                       int spared, struct error *error)
{
    const uint32_t major = major(disk->st_rdev), minor = minor(disk->st_rdev);
    struct loop_search search = {.request = request, .disk = disk, .spared = spared};
    struct observed_device device = {0};
    int r;

    if (!S_ISBLK(disk->st_mode))
        return find_loop(&search, error);
    (void)observe_device_number(request->sysfs, major, minor, &device);
    (void)snprintf(search.name, sizeof(search.name), "%s", device.name);
    if (!drive_relatives_add(request->sysfs, major, minor, &search.relatives))
        return error_set(error, -EOVERFLOW,
                         "%s has more partitions or lower devices than are compared",
                         request->host_path);
    for (unsigned i = 0; request->is_new && i < search.relatives.count; i++) {
        struct observed_device lower = {.name = "a loop device"};
        struct loop_info64 info = {0};

        if (major(search.relatives.device[i]) != LOOP_MAJOR)
            continue;
        (void)observe_device_number(request->sysfs, LOOP_MAJOR, minor(search.relatives.device[i]),
                                    &lower);
        r = open_loop(request, lower.name, &info);
        if (r < 0)
            return error_set_errno(error, r, "cannot ask %s, on which %s stands, what it stands on",
                                   lower.name, request->host_path);
        r = info.lo_rdevice ? refuse_stacked(request, info.lo_rdevice, error) : DRIVE_CLAIM_OPEN;
        if (r != DRIVE_CLAIM_OPEN)
            return r;
    }
    return find_loop(&search, error);
}

int drive_loops_find_mount(const struct drive_claim_request *request, uint32_t major,
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

/* ---- the backing of a loop device ----------------------------------------------------------- */

/* What O_EXCL would say of a block device, if the loop device had opened it so. */
static int refuse_used_backing(const struct drive_claim_request *request,
                               const struct store_drive_mount_disk *backing, struct error *error)
{
    struct observed_device device = {.name = "a block device"};
    char use[ERROR_TEXT_BYTES] = "(cannot tell)";
    int r = drive_loops_find_mount(request, backing->major, backing->minor, use, sizeof(use));

    if (r == OBSERVED_ABSENT)
        r = observe_holder(request->sysfs, backing->major, backing->minor, use, sizeof(use));
    if (r == OBSERVED_ABSENT)
        return DRIVE_CLAIM_OPEN;
    (void)observe_device_number(request->sysfs, backing->major, backing->minor, &device);
    return error_set(error, DRIVE_CLAIM_IN_USE, "%s stands on %s, which the host uses: %s",
                     request->host_path, device.name, use);
}

int drive_loops_examine(const struct drive_claim_request *request, int fd,
                        const struct store_drive_mount_disk *disk,
                        struct store_drive_mount_disk *ret_backing, struct error *error)
{
    struct loop_info64 info = {0};
    struct stat below = {0};
    int r = DRIVE_CLAIM_OPEN;

    *ret_backing = (struct store_drive_mount_disk){.kind = DEVICE_KIND_OTHER};
    if (disk->kind != DEVICE_KIND_BLOCK || disk->major != LOOP_MAJOR)
        return r;
    if (ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
        return error_set_errno(error, -errno, "cannot ask %s what it stands on",
                               request->host_path);
    if (info.lo_rdevice) {
        ret_backing->kind = DEVICE_KIND_BLOCK;
        ret_backing->major = major(info.lo_rdevice);
        ret_backing->minor = minor(info.lo_rdevice);
    } else {
        ret_backing->kind = DEVICE_KIND_FILE;
        ret_backing->file_device = info.lo_device;
        ret_backing->inode = info.lo_inode;
    }
    if (!request->is_new)
        return r;
    if (info.lo_rdevice)
        r = refuse_stacked(request, info.lo_rdevice, error);
    if (r == DRIVE_CLAIM_OPEN && info.lo_rdevice)
        r = refuse_used_backing(request, ret_backing, error);
    if (r != DRIVE_CLAIM_OPEN)
        return r;
    /* Another loop device on the same file or block device. */
    below.st_mode = info.lo_rdevice ? S_IFBLK : S_IFREG;
    below.st_dev = info.lo_device;
    below.st_ino = info.lo_inode;
    below.st_rdev = info.lo_rdevice;
    return drive_loops_refuse(request, &below, (int)info.lo_number, error);
}

/* ---- relatives ------------------------------------------------------------------------------ */

static void add(void *userdata, uint32_t major, uint32_t minor)
{
    struct drive_relatives *relatives = userdata;
    dev_t device = makedev(major, minor);

    if (device == relatives->disk)
        return;
    if (relatives->count < DRIVE_RELATIVES)
        relatives->device[relatives->count++] = device;
    else
        relatives->is_cut = true;
}

static int add_partition(void *userdata, const char *directory, uint32_t major, uint32_t minor)
{
    (void)directory;
    add(userdata, major, minor);
    return 0;
}

bool drive_relatives_add(int sysfs, uint32_t major, uint32_t minor,
                         struct drive_relatives *relatives)
{
    relatives->disk = makedev(major, minor);
    return observe_each_lower_device(sysfs, major, minor, add, relatives) &&
           observe_each_partition(sysfs, major, minor, add_partition, relatives) == 0 &&
           !relatives->is_cut;
}

bool drive_relatives_include(const struct drive_relatives *relatives, dev_t device)
{
    for (unsigned i = 0; i < relatives->count; i++)
        if (relatives->device[i] == device)
            return true;
    return false;
}

/* ---- serial --------------------------------------------------------------------------------- */

/* Each part is hashed with its NUL, so different parts never give the same input. PART_BYTES: an id
 * of a sandbox has at most 128 characters. */
enum { PART_BYTES = 160, BITS_OF_HEX = 4, BITS_OF_CHARACTER = 5 };

void drive_serial_make(const char *boot_id, const char *sandbox_id, const char *drive_id,
                       char ret_serial[static DRIVE_SERIAL_CHARS + 1])
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
    const char *const part[] = {boot_id, drive_id, sandbox_id};
    char parts[array_length(part) * PART_BYTES], hex[SHA256_HEX_BYTES], *at = ret_serial;
    const char *next = hex;
    unsigned bits = 0, count = 0;
    size_t length = 0;

    for (size_t i = 0; i < array_length(part); i++) {
        const size_t bytes = strnlen(part[i], PART_BYTES - 1);

        memcpy(parts + length, part[i], bytes);
        length += bytes;
        parts[length++] = '\0';
    }
    sha256_hex(parts, length, hex);
    memcpy(at, DRIVE_SERIAL_PREFIX, strlen(DRIVE_SERIAL_PREFIX));
    for (at += strlen(DRIVE_SERIAL_PREFIX); at < ret_serial + DRIVE_SERIAL_CHARS; at++) {
        for (; count < BITS_OF_CHARACTER; count += BITS_OF_HEX, next++)
            bits = bits << BITS_OF_HEX | (unsigned)(*next <= '9' ? *next - '0' : *next - 'a' + 10);
        count -= BITS_OF_CHARACTER;
        *at = alphabet[bits >> count & 31];
        bits &= (1U << count) - 1;
    }
    *at = '\0';
}
