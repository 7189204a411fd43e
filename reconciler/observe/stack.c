/* stack.c - what a device stands on: the disk of a partition, the slaves of a dm, md or bcache
 * device.
 *
 * mounts.c asks the other way round (what stands on a disk). Here the question is whom a change of
 * this device may touch.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>

#include "lib/cleanup.h"
#include "reconciler/observe/observe.h"
#include "reconciler/observe/sysfs.h"

enum { STACK_DEPTH = 8, STACK_NAMES = 64 };

static void visit(int sysfs, uint32_t major, uint32_t minor, unsigned depth,
                  observe_device_callback *callback, void *userdata);

static void visit_path(int sysfs, const char *path, unsigned depth,
                       observe_device_callback *callback, void *userdata)
{
    uint32_t major, minor;

    if (sysfs_read_device_number(sysfs, path, &major, &minor) == 0)
        visit(sysfs, major, minor, depth + 1, callback, userdata);
}

static void visit_slaves(int sysfs, const char *directory, unsigned depth,
                         observe_device_callback *callback, void *userdata)
{
    cleanup(dir_closep) DIR *names = sysfs_open_directory(sysfs, directory);
    char path[SYSFS_PATH_BYTES * 2 + NAME_MAX];
    const struct dirent *name;

    for (unsigned count = 0; names && count < STACK_NAMES && (name = readdir(names)); count++) {
        if (name->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s/dev", directory, name->d_name);
        visit_path(sysfs, path, depth, callback, userdata);
    }
}

static void visit(int sysfs, uint32_t major, uint32_t minor, unsigned depth,
                  observe_device_callback *callback, void *userdata)
{
    char path[SYSFS_PATH_BYTES];
    uint64_t number;

    callback(userdata, major, minor);
    if (depth == STACK_DEPTH)
        return;
    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/partition", major, minor);
    if (sysfs_read_number(sysfs, path, &number) == 0) {
        (void)snprintf(path, sizeof(path), "dev/block/%u:%u/../dev", major, minor);
        visit_path(sysfs, path, depth, callback, userdata);
        return;
    }
    (void)snprintf(path, sizeof(path), "dev/block/%u:%u/slaves", major, minor);
    visit_slaves(sysfs, path, depth, callback, userdata);
}

void observe_each_beneath(int sysfs, uint32_t major, uint32_t minor,
                          observe_device_callback *callback, void *userdata)
{
    visit(sysfs, major, minor, 0, callback, userdata);
}
