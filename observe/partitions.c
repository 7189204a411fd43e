/* SPDX-License-Identifier: Apache-2.0 */
/* partitions.c - the partitions of a disk.
 *
 * A disk's directory has other entries with device numbers, such as an NVMe disk's controller, so
 * what has no attribute `partition` is none. Most names are ruled out without a read, because the
 * kernel names a partition after its disk, followed by a number (block/partitions/core.c).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "observe/observe.h"
#include "observe/sysfs.h"

enum { NAMES = 512 };

/* dev/block/MAJOR:MINOR is a link to the disk's own directory. "" if it is not known. */
static void find_disk_name(int sysfs, const char *disk, char ret_name[static NAME_MAX + 1])
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(sysfs, disk, target, sizeof(target) - 1);
    const char *name;

    ret_name[0] = '\0';
    if (length <= 0)
        return;
    target[length] = '\0';
    name = strrchr(target, '/');
    (void)snprintf(ret_name, NAME_MAX + 1, "%.*s", NAME_MAX, name ? name + 1 : target);
}

/* false: it is none, or vanishes. */
static bool read_partition(int sysfs, const char *directory, uint32_t *ret_major,
                           uint32_t *ret_minor)
{
    char path[SYSFS_PATH_BYTES + NAME_MAX + sizeof("/partition")];
    uint64_t number;

    (void)snprintf(path, sizeof(path), "%s/partition", directory);
    if (sysfs_read_number(sysfs, path, &number) < 0)
        return false;
    (void)snprintf(path, sizeof(path), "%s/dev", directory);
    return sysfs_read_device_number(sysfs, path, ret_major, ret_minor) == 0;
}

int observe_each_partition(int sysfs, uint32_t major, uint32_t minor,
                           observe_partition_callback *visit, void *userdata)
{
    char disk[SYSFS_PATH_BYTES / 4], disk_name[NAME_MAX + 1];
    char directory[SYSFS_PATH_BYTES + NAME_MAX];
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r;

    (void)snprintf(disk, sizeof(disk), "dev/block/%u:%u", major, minor);
    r = directory_list_in_root(sysfs, disk, &names);
    if (r < 0)
        return path_is_missing(r) ? 0 : r;
    find_disk_name(sysfs, disk, disk_name);
    for (unsigned count = 0; r == 0 && (name = directory_next(names)); count++) {
        if (count == NAMES)
            return -E2BIG;
        if (strncmp(name, disk_name, strlen(disk_name)) != 0)
            continue;
        (void)snprintf(directory, sizeof(directory), "%s/%s", disk, name);
        if (read_partition(sysfs, directory, &major, &minor))
            r = visit(userdata, directory, major, minor);
    }
    return r == 0 ? -errno : r;
}
