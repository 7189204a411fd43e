/* SPDX-License-Identifier: Apache-2.0 */
/* holder.c - what holds a device on the host.
 *
 * The kernel lists in `holders` what has claimed a device: device-mapper, md, bcache. A volume may
 * be such a device itself (a logical volume, an open LUKS container); only holders of the device in
 * question count. A disk is held if any of its partitions is.
 */
#include <limits.h>
#include <stdio.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "observe/sysfs.h"

enum { NAMES = 512 };

/* For example "dm-3 (vg-data)" or "md0". */
static void describe(int sysfs, const char *directory, const char *name, char *ret_text,
                     size_t size)
{
    char path[SYSFS_PATH_BYTES + NAME_MAX], label[128];

    (void)snprintf(path, sizeof(path), "%s/%s/dm/name", directory, name);
    if (sysfs_read_text(sysfs, path, label, sizeof(label)) == 0)
        (void)snprintf(ret_text, size, "%s (%s)", name, label);
    else
        (void)snprintf(ret_text, size, "%s", name);
}

static int find_in(int sysfs, const char *directory, char *ret_text, size_t size)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list_in_root(sysfs, directory, &names);

    if (r < 0)
        return path_is_missing(r) ? OBSERVED_ABSENT : r;
    name = directory_next(names);
    if (!name)
        return OBSERVED_ABSENT;
    describe(sysfs, directory, name, ret_text, size);
    return OBSERVED;
}

int observe_holder(int sysfs, uint32_t major, uint32_t minor, char *ret_text, size_t size)
{
    char disk[SYSFS_PATH_BYTES / 4], path[SYSFS_PATH_BYTES + NAME_MAX];
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    uint64_t number;
    int r;

    (void)snprintf(disk, sizeof(disk), "dev/block/%u:%u", major, minor);
    (void)snprintf(path, sizeof(path), "%s/holders", disk);
    r = find_in(sysfs, path, ret_text, size);
    if (r == OBSERVED_ABSENT)
        (void)directory_list_in_root(sysfs, disk, &names);
    for (unsigned i = 0; names && r == OBSERVED_ABSENT && i < NAMES; i++) {
        name = directory_next(names);
        if (!name)
            break;
        (void)snprintf(path, sizeof(path), "%s/%s/partition", disk, name);
        if (sysfs_read_number(sysfs, path, &number) < 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s/holders", disk, name);
        r = find_in(sysfs, path, ret_text, size);
    }
    return r;
}
