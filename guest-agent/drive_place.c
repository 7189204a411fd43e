/* SPDX-License-Identifier: Apache-2.0 */
/* drive_place.c - see drive_place.h. */
#include "guest-agent/drive_place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "guest-agent/drive_target.h"
#include "lib/cleanup.h"
#include "lib/mount_table.h"

/* A bind mount: a directory of a file system. */
struct bound {
    bool is_mounted;
    dev_t device;
    char root[PATH_MAX];
};

static void note_mount(const struct mount_entry *entry, const char *path, struct bound *bound)
{
    if (strcmp(entry->mount_point, path) != 0 || strlen(entry->root) >= sizeof(bound->root))
        return;
    bound->is_mounted = true;
    bound->device = entry->device;
    (void)strcpy(bound->root, entry->root);
}

/* Of several mounts on one path the last one is visible. */
static int read_bounds(const struct drive_place *place, struct bound *ret_place,
                       struct bound *ret_parent, struct bound *ret_agents, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct mount_entry entry;
    char *cursor;
    int r = mount_table_read(&text);

    if (r < 0)
        return error_set_errno(error, r, "cannot read mountinfo");
    cursor = text.data;
    while (cursor && mount_table_next(&cursor, &entry)) {
        note_mount(&entry, place->place, ret_place);
        note_mount(&entry, place->parent, ret_parent);
        note_mount(&entry, place->agents, ret_agents);
    }
    if (ret_place->is_mounted && ret_parent->is_mounted && ret_agents->is_mounted)
        return 0;
    return error_set(error, -EINVAL, "the place was not bound into the helper's container");
}

static bool is_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    if (strcmp(directory, "/") == 0)
        return true;
    return strncmp(path, directory, length) == 0 && (!path[length] || path[length] == '/');
}

static bool is_agents(const struct bound *bound, const struct bound *agents)
{
    return bound->device == agents->device && is_below(bound->root, agents->root);
}

/* /dev may not be a file system of its own; then only /dev itself is recognised. */
static int find_protected(const struct drive_place *place, const char *path, bool *ret_protected,
                          struct error *error)
{
    cleanup(fd_closep) int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat status, devices;

    if (fd < 0 || fstat(fd, &status) < 0 || stat(place->devices, &devices) < 0)
        return error_set_errno(error, -errno, "cannot look at what was bound");
    *ret_protected =
        drive_target_is_kernels(fd) || (status.st_dev == devices.st_dev &&
                                        (status.st_ino == devices.st_ino || devices.st_ino == 1));
    return 0;
}

/* vm_path exists: it must be a directory, not a link, and not a mount point. */
static int check_itself(const struct drive_place *place, const struct bound *bound,
                        const struct bound *parent, struct error *error)
{
    cleanup(fd_closep) int directory = open(place->parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char expected[PATH_MAX + NAME_MAX + 2];
    struct stat status;

    if (directory < 0 || fstatat(directory, place->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set(error, DRIVE_PLACE_UNREACHABLE, "vm_path lies behind a link");
    if (!S_ISDIR(status.st_mode))
        return error_set(error, DRIVE_PLACE_UNREACHABLE, "vm_path is %s",
                         S_ISLNK(status.st_mode) ? "a link" : "no directory");
    (void)snprintf(expected, sizeof(expected), "%s/%s",
                   strcmp(parent->root, "/") == 0 ? "" : parent->root, place->name);
    if (bound->device != parent->device || strcmp(bound->root, expected) != 0)
        return error_set(error, DRIVE_PLACE_TAKEN, "vm_path is a mount point already");
    return DRIVE_PLACE_FINE;
}

int drive_place_check(const struct drive_place *place, struct error *error)
{
    struct bound bound = {0}, parent = {0}, agents = {0};
    bool is_protected = false, is_in_protected = false;
    int r = read_bounds(place, &bound, &parent, &agents, error);

    if (r == 0)
        r = find_protected(place, place->place, &is_protected, error);
    if (r == 0)
        r = find_protected(place, place->parent, &is_in_protected, error);
    if (r < 0)
        return r;
    if (is_protected || is_in_protected || is_agents(&bound, &agents) ||
        is_agents(&parent, &agents))
        return error_set(error, DRIVE_PLACE_PROTECTED, "vm_path is or lies in a protected place");
    return place->name ? check_itself(place, &bound, &parent, error) : DRIVE_PLACE_FINE;
}
