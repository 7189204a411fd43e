/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - what a device path leads to, without ever opening the device.
 *
 * stat(2) yields the identity, sysfs the size. Opening a block device has side effects (it can load
 * a module, wait for media, delay a removal) and needs privileges that observing does not.
 *
 * `size` counts 512-byte sectors whatever the device's block size is
 * (Documentation/ABI/stable/sysfs-block). `diskseq` belongs to the disk and is new for each disk
 * that ever uses the number (Linux 5.15); a partition has its disk's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/path.h"
#include "observe/observe.h"
#include "observe/sysfs.h"

enum { SECTOR_BYTES = 512 };

/* Yields 0 if the kernel provides none. */
static int read_diskseq(int sysfs, const char *directory, const char *uevent, uint64_t *ret_diskseq)
{
    char path[SYSFS_PATH_BYTES], type[16];
    bool is_partition =
        sysfs_uevent_value(uevent, "DEVTYPE", type, sizeof(type)) && strcmp(type, "partition") == 0;
    int r;

    (void)snprintf(path, sizeof(path), "%s/%sdiskseq", directory, is_partition ? "../" : "");
    r = sysfs_read_number(sysfs, path, ret_diskseq);
    if (r == SYSFS_MISSING) {
        *ret_diskseq = 0;
        return 0;
    }
    return r;
}

static int read_size(int sysfs, const char *directory, uint64_t *ret_bytes)
{
    char path[SYSFS_PATH_BYTES];
    uint64_t sectors;
    int r;

    (void)snprintf(path, sizeof(path), "%s/size", directory);
    r = sysfs_read_number(sysfs, path, &sectors);
    if (r < 0)
        return r;
    return __builtin_mul_overflow(sectors, SECTOR_BYTES, ret_bytes) ? -EBADMSG : 0;
}

/* "/dev/" and the kernel's name, which may contain a directory ("cciss/c0d0"). */
static void name_device(const char *uevent, struct observed_device *device)
{
    char name[sizeof(device->name) - sizeof("/dev/")];

    if (sysfs_uevent_value(uevent, "DEVNAME", name, sizeof(name)))
        (void)snprintf(device->name, sizeof(device->name), "/dev/%s", name);
    else
        (void)snprintf(device->name, sizeof(device->name), "/dev/block/%u:%u", device->major,
                       device->minor);
}

static int read_uevent(int sysfs, const char *path, char ret_text[static SYSFS_TEXT_BYTES])
{
    int r = sysfs_read_text(sysfs, path, ret_text, SYSFS_TEXT_BYTES);

    if (r == SYSFS_MISSING)
        ret_text[0] = '\0';
    return r == SYSFS_MISSING ? 0 : r;
}

int observe_device_number(int sysfs, uint32_t major, uint32_t minor,
                          struct observed_device *ret_device)
{
    struct observed_device device = {.kind = DEVICE_KIND_BLOCK, .major = major, .minor = minor};
    char directory[SYSFS_PATH_BYTES / 2], path[SYSFS_PATH_BYTES], uevent[SYSFS_TEXT_BYTES];
    int r;

    (void)snprintf(directory, sizeof(directory), "dev/block/%u:%u", major, minor);
    (void)snprintf(path, sizeof(path), "%s/uevent", directory);
    r = read_size(sysfs, directory, &device.size_bytes);
    if (r == 0)
        r = read_uevent(sysfs, path, uevent);
    if (r == 0)
        r = read_diskseq(sysfs, directory, uevent, &device.diskseq);
    if (r == SYSFS_MISSING)
        return OBSERVED_ABSENT;
    if (r < 0)
        return r;
    name_device(uevent, &device);
    *ret_device = device;
    return OBSERVED;
}

static int observe_file(const char *path, const struct stat *st, enum device_kind kind,
                        struct observed_device *ret_device)
{
    *ret_device = (struct observed_device){
        .kind = kind,
        .file_device = st->st_dev,
        .inode = st->st_ino,
        .size_bytes = kind == DEVICE_KIND_FILE ? (uint64_t)st->st_size : 0,
    };
    (void)snprintf(ret_device->name, sizeof(ret_device->name), "%s", path);
    return OBSERVED;
}

int observe_device_path(int root, int sysfs, const char *path, struct observed_device *ret_device)
{
    struct stat st;
    int r = path_stat_in_root(root, path, &st);

    if (path_leads_nowhere(r) || r == PATH_MAY_HANG)
        return OBSERVED_ABSENT;
    if (r < 0)
        return r;
    if (S_ISBLK(st.st_mode))
        return observe_device_number(sysfs, major(st.st_rdev), minor(st.st_rdev), ret_device);
    return observe_file(path, &st, S_ISREG(st.st_mode) ? DEVICE_KIND_FILE : DEVICE_KIND_OTHER,
                        ret_device);
}

int observe_open_sysfs(int root, const char *path, int *ret_fd)
{
    int r = path_open_directory_in_root(root, path, ret_fd);
    int fd;

    if (r != PATH_MISSING)
        return r;
    fd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}
