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

struct search {
    int sysfs;
    char *ret_text;
    size_t size;
};

/* ABSENT, for which the walk goes on, has to be 0 here. */
enum { GO_ON = 0, FOUND = 1 };

static int find_on_partition(void *userdata, const char *directory, uint32_t major, uint32_t minor)
{
    const struct search *search = userdata;
    char path[SYSFS_PATH_BYTES + NAME_MAX + sizeof("/holders")];
    int r;

    (void)major;
    (void)minor;
    (void)snprintf(path, sizeof(path), "%s/holders", directory);
    r = find_in(search->sysfs, path, search->ret_text, search->size);
    return r == OBSERVED ? FOUND : r == OBSERVED_ABSENT ? GO_ON : r;
}

int observe_holder(int sysfs, uint32_t major, uint32_t minor, char *ret_text, size_t size)
{
    struct search search = {.sysfs = sysfs, .ret_text = ret_text, .size = size};
    char path[SYSFS_PATH_BYTES];
    int r;

    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/holders", major, minor);
    r = find_in(sysfs, path, ret_text, size);
    if (r != OBSERVED_ABSENT)
        return r;
    r = observe_each_partition(sysfs, major, minor, find_on_partition, &search);
    return r == FOUND ? OBSERVED : r == GO_ON ? OBSERVED_ABSENT : r;
}
