/* SPDX-License-Identifier: Apache-2.0 */
/* process_mounts.c - which disks the host itself uses.
 *
 * The snapshot has one entry per block device in use, sorted by number, so its size and the cost of
 * a look-up depend on the host's mounts and not on the number of volumes. Looking up a disk
 * includes its partitions and the devices above it (dm, md, bcache: sysfs calls them holders), to a
 * bounded depth.
 *
 * A mount's device field is the number of the file system. If that is an anonymous number and the
 * file system is one on devices (btrfs, root's FUSE), its source is a path, and the number of that
 * path's device counts. For btrfs on several devices the source names one of them, and sysfs lists
 * all. Paths are resolved as process 1 sees them, because it is the mount table of process 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/mount_table.h"
#include "lib/path.h"
#include "observe/observe.h"

enum { STACK_DEPTH = 8, STACK_VISITS = 256, STACK_NAMES = 512, DEVICES_OF_FILE_SYSTEM = 4096 };

struct used_device {
    uint32_t major, minor;
    char *where;
};

struct observed_mounts {
    size_t count, capacity;
    struct used_device *used;
};

static int compare_used(const void *a, const void *b)
{
    const struct used_device *x = a, *y = b;

    if (x->major != y->major)
        return x->major < y->major ? -1 : 1;
    if (x->minor != y->minor)
        return x->minor < y->minor ? -1 : 1;
    return 0;
}

/* The list is unsorted while it is built: the table has few block devices and many other lines. */
static const struct used_device *find_unsorted(const struct observed_mounts *mounts, uint32_t major,
                                               uint32_t minor)
{
    for (size_t i = 0; i < mounts->count; i++)
        if (mounts->used[i].major == major && mounts->used[i].minor == minor)
            return &mounts->used[i];
    return NULL;
}

static int add_used(struct observed_mounts *mounts, uint32_t major, uint32_t minor,
                    const char *where)
{
    struct used_device device = {major, minor, NULL};

    if (find_unsorted(mounts, major, minor))
        return 0;
    if (mounts->count == mounts->capacity) {
        size_t capacity = mounts->capacity ? mounts->capacity * 2 : 16;
        struct used_device *used = reallocarray(mounts->used, capacity, sizeof(*used));

        if (!used)
            return -ENOMEM;
        mounts->used = used;
        mounts->capacity = capacity;
    }
    device.where = strdup(where);
    if (!device.where)
        return -ENOMEM;
    mounts->used[mounts->count++] = device;
    return 0;
}

/* ---- the mount table --------------------------------------------------------------------- */

static int add_path(struct observed_mounts *mounts, int root, const char *path, const char *where)
{
    struct stat st;
    int r = path[0] == '/' ? path_stat_in_root(root, path, &st) : PATH_MISSING;

    if (path_leads_nowhere(r) || r == PATH_FORBIDDEN || r == PATH_MAY_HANG)
        return 0; /* not a path, gone for process 1, or not looked up */
    if (r < 0)
        return r;
    if (!S_ISBLK(st.st_mode))
        return 0;
    return add_used(mounts, major(st.st_rdev), minor(st.st_rdev), where);
}

struct mounts_reading {
    struct observed_mounts *mounts;
    int sysfs;
    int root; /* of process 1 */
    int fd;   /* its mount table */
    struct mount_lines *lines;
};

/* Most lines of a table that is large are of no device, or of one that is listed already. Nothing
 * of those is unescaped or copied. */
static int add_mount_line(void *userdata, char *line)
{
    const struct mounts_reading *reading = userdata;
    struct mount_entry mount;
    bool has_device;

    if (!mount_table_split(line, &mount))
        return 0;
    has_device = major(mount.device) != 0;
    if (has_device
            ? find_unsorted(reading->mounts, major(mount.device), minor(mount.device)) != NULL
            : !mount_table_source_is_device(&mount))
        return 0;
    mount_table_unescape(mount.mount_point);
    if (has_device)
        return add_used(reading->mounts, major(mount.device), minor(mount.device),
                        mount.mount_point);
    mount_table_unescape(mount.source);
    return add_path(reading->mounts, reading->root, mount.source, mount.mount_point);
}

/* For example "/dev/sda2 partition 1000 0 -2", after a line of headings. */
static int add_swap_line(void *userdata, char *line)
{
    const struct mounts_reading *reading = userdata;

    line[strcspn(line, " \t")] = '\0';
    mount_table_unescape(line);
    return add_path(reading->mounts, reading->root, line, "swap");
}

/* ---- btrfs ------------------------------------------------------------------------------- */

/* Calls back with each name in a sysfs directory; a directory that does not exist has none. -E2BIG:
 * there are more than `most`, and those that were left out may be in use. */
static int for_each_name(int sysfs, const char *path, unsigned most,
                         int (*visit)(void *userdata, const char *name), void *userdata)
{
    cleanup(dir_closep) DIR *names = NULL;
    const char *name;
    int r = directory_list_in_root(sysfs, path, &names);

    for (unsigned count = 0; r == 0 && (name = directory_next(names)); count++)
        r = count < most ? visit(userdata, name) : -E2BIG;
    return path_is_missing(r) ? 0 : r;
}

struct file_system {
    struct observed_mounts *mounts;
    int sysfs;
    char directory[SYSFS_PATH_BYTES / 2];
};

static int add_btrfs_device(void *userdata, const char *name)
{
    struct file_system *file_system = userdata;
    char path[SYSFS_PATH_BYTES + NAME_MAX];
    uint32_t major, minor;

    (void)snprintf(path, sizeof(path), "%s/%s/dev", file_system->directory, name);
    if (sysfs_read_device_number(file_system->sysfs, path, &major, &minor) < 0)
        return 0;
    return add_used(file_system->mounts, major, minor, "btrfs");
}

/* fs/btrfs also contains `features`, which has no devices. */
static int add_btrfs(void *userdata, const char *uuid)
{
    struct file_system *file_system = userdata;
    int length = snprintf(file_system->directory, sizeof(file_system->directory),
                          "fs/btrfs/%s/devices", uuid);

    if (length >= (int)sizeof(file_system->directory))
        return 0;
    return for_each_name(file_system->sysfs, file_system->directory, DEVICES_OF_FILE_SYSTEM,
                         add_btrfs_device, file_system);
}

/* ---- the whole, in parts ------------------------------------------------------------------- */

int mounts_reading_new(int sysfs, struct mounts_reading **ret_reading)
{
    struct mounts_reading *reading = calloc(1, sizeof(*reading));
    int r;

    if (!reading)
        return -ENOMEM;
    reading->sysfs = sysfs;
    reading->root = reading->fd = -1;
    reading->mounts = calloc(1, sizeof(*reading->mounts));
    reading->root = open("/proc/1/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (reading->root < 0)
        reading->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (reading->root >= 0)
        reading->fd = open(mount_table_path(), O_RDONLY | O_CLOEXEC);
    r = !reading->mounts  ? -ENOMEM
        : reading->fd < 0 ? -errno
                          : mount_lines_new(reading->fd, add_mount_line, reading, &reading->lines);
    if (r < 0)
        (void)mounts_reading_free(reading);
    else
        *ret_reading = reading;
    return r;
}

struct mounts_reading *mounts_reading_free(struct mounts_reading *reading)
{
    if (!reading)
        return NULL;
    (void)mount_lines_free(reading->lines);
    (void)observed_mounts_free(reading->mounts);
    fd_close(reading->fd);
    fd_close(reading->root);
    free(reading);
    return NULL;
}

/* All of the table, however large: a disk whose line is left out would count as unused. */
int mounts_reading_go_on(struct mounts_reading *reading, uint64_t until_ns,
                         struct observed_mounts **ret_mounts)
{
    struct observed_mounts *mounts = reading->mounts;
    struct file_system btrfs = {.mounts = mounts, .sysfs = reading->sysfs};
    cleanup(fd_closep) int swaps = -1;
    int r = mount_lines_read(reading->lines, SIZE_MAX, until_ns);

    if (r != PROGRESS_DONE)
        return r;
    swaps = open("/proc/swaps", O_RDONLY | O_CLOEXEC);
    if (swaps >= 0)
        r = mount_table_each_line(swaps, SIZE_MAX, add_swap_line, reading);
    else if (errno != ENOENT) /* a kernel without swap support has no such table */
        r = -errno;
    if (r == 0)
        r = for_each_name(reading->sysfs, "fs/btrfs", DEVICES_OF_FILE_SYSTEM, add_btrfs, &btrfs);
    if (r < 0)
        return r;
    if (mounts->count)
        qsort(mounts->used, mounts->count, sizeof(mounts->used[0]), compare_used);
    *ret_mounts = mounts;
    reading->mounts = NULL;
    return PROGRESS_DONE;
}

int observe_mounts(int sysfs, struct observed_mounts **ret_mounts)
{
    struct mounts_reading *reading = NULL;
    int r = mounts_reading_new(sysfs, &reading);

    if (r == 0)
        r = mounts_reading_go_on(reading, UINT64_MAX, ret_mounts);
    (void)mounts_reading_free(reading);
    return r;
}

struct observed_mounts *observed_mounts_free(struct observed_mounts *mounts)
{
    if (!mounts)
        return NULL;
    for (size_t i = 0; i < mounts->count; i++)
        free(mounts->used[i].where);
    free(mounts->used);
    free(mounts);
    return NULL;
}

void observed_mounts_each_change(const struct observed_mounts *before,
                                 const struct observed_mounts *after,
                                 observe_device_callback *callback, void *userdata)
{
    size_t i = 0, j = 0;

    while (i < before->count || j < after->count) {
        int order = i == before->count  ? 1
                    : j == after->count ? -1
                                        : compare_used(&before->used[i], &after->used[j]);
        const struct used_device *one = order <= 0 ? &before->used[i] : &after->used[j];

        if (order != 0)
            callback(userdata, one->major, one->minor);
        i += order <= 0;
        j += order >= 0;
    }
}

/* ---- devices above a disk ---------------------------------------------------------------- */

/* Counts as in use if unknown, because the answer guards writes. */
#define CANNOT_TELL "(cannot tell)"

struct search {
    const struct observed_mounts *mounts;
    int sysfs;
    unsigned depth, visits;
    char holders[SYSFS_PATH_BYTES / 2]; /* the directory whose names are visited */
    const char *found;
};

static void search_device(struct search *search, uint32_t major, uint32_t minor);

/* 1 ends the walk. */
static int search_above(void *userdata, const char *directory, uint32_t major, uint32_t minor)
{
    struct search *search = userdata;
    struct search above = *search;

    (void)directory;
    search_device(&above, major, minor);
    search->visits = above.visits;
    search->found = above.found;
    return search->found ? 1 : 0;
}

static int search_holder(void *userdata, const char *name)
{
    struct search *search = userdata;
    char path[SYSFS_PATH_BYTES + NAME_MAX];
    uint32_t major, minor;

    (void)snprintf(path, sizeof(path), "%s/%s/dev", search->holders, name);
    if (sysfs_read_device_number(search->sysfs, path, &major, &minor) < 0)
        return 0;
    return search_above(search, path, major, minor);
}

static void search_device(struct search *search, uint32_t major, uint32_t minor)
{
    struct used_device wanted = {major, minor, NULL};
    const struct used_device *used = NULL;

    if (search->mounts->count)
        used = bsearch(&wanted, search->mounts->used, search->mounts->count, sizeof(wanted),
                       compare_used);
    if (used)
        search->found = used->where;
    else if (search->depth == STACK_DEPTH || search->visits == STACK_VISITS)
        search->found = CANNOT_TELL;
    if (search->found)
        return;
    search->depth++;
    search->visits++;
    (void)snprintf(search->holders, sizeof(search->holders), "dev/block/%u:%u/holders", major,
                   minor);
    if (for_each_name(search->sysfs, search->holders, STACK_NAMES, search_holder, search) < 0)
        search->found = CANNOT_TELL;
    if (!search->found &&
        observe_each_partition(search->sysfs, major, minor, search_above, search) < 0)
        search->found = CANNOT_TELL;
}

const char *observed_mounts_find(const struct observed_mounts *mounts, int sysfs, uint32_t major,
                                 uint32_t minor)
{
    struct search search = {.mounts = mounts, .sysfs = sysfs};

    search_device(&search, major, minor);
    return search.found;
}
