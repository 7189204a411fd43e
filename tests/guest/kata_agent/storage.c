/* SPDX-License-Identifier: Apache-2.0 */
/* storage.c - field numbers of Kata's agent.proto, the same from 2.5.0 to 4.1.0. */
#include "storage.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "files.h"

#define DISKS "/sys/bus/scsi/devices"
#define SLOTS "/sys/devices/pci0000:00/0000:00:%s.0/virtio*/block/*"

enum { WAIT_STEPS = 500, WAIT_STEP_NS = 10 * 1000 * 1000, MOUNT_POINTS = 64 };

/* As in the real one, which goes by the spelling: a mount point with users is not mounted again,
 * and is unmounted with the last of them. */
static struct mount_point {
    char path[PATH_BYTES];
    unsigned users;
} mount_points[MOUNT_POINTS];

/* The one that is spelled so, or one without users; NULL: there is none. */
static struct mount_point *find_mount_point(const char *path)
{
    struct mount_point *unused = NULL;

    for (int i = 0; i < MOUNT_POINTS; i++) {
        if (!mount_points[i].users)
            unused = &mount_points[i];
        else if (strcmp(mount_points[i].path, path) == 0)
            return &mount_points[i];
    }
    return unused;
}

static void parse_group(struct bytes message, struct container_storage *storage)
{
    struct field field;

    storage->has_group = true;
    while (wire_next(&message, &field)) {
        if (field.number == 2)
            storage->group = (uint32_t)field.value;
    }
}

void storage_parse(struct bytes message, struct container_storage *storage)
{
    struct field field;

    while (wire_next(&message, &field)) {
        if (field.number == 1)
            wire_text(field.bytes, storage->driver, sizeof(storage->driver));
        if (field.number == 3)
            wire_text(field.bytes, storage->source, sizeof(storage->source));
        if (field.number == 4)
            wire_text(field.bytes, storage->mount.type, sizeof(storage->mount.type));
        if (field.number == 5 && storage->mount.option_count < OPTIONS)
            wire_text(field.bytes, storage->mount.options[storage->mount.option_count++],
                      sizeof(storage->mount.options[0]));
        if (field.number == 6)
            wire_text(field.bytes, storage->mount.destination, sizeof(storage->mount.destination));
        if (field.number == 7)
            parse_group(field.bytes, storage);
    }
}

/* The first name in a directory that ends so. */
static bool find_name(const char *directory, const char *end, char *ret_name, size_t size)
{
    DIR *names = opendir(directory);
    struct dirent *entry;
    bool found = false;

    while (names && !found && (entry = readdir(names))) {
        size_t length = strlen(entry->d_name), tail = strlen(end);

        found = entry->d_name[0] != '.' && length >= tail &&
                strcmp(entry->d_name + length - tail, end) == 0;
        if (found)
            (void)snprintf(ret_name, size, "%s", entry->d_name);
    }
    if (names)
        closedir(names);
    return found;
}

/* Of the disk in a slot of the first PCI bus. */
static bool find_slot_node(const char *slot, char *ret_node, size_t size)
{
    char pattern[256];
    glob_t found = {0};
    bool is_found;

    (void)snprintf(pattern, sizeof(pattern), SLOTS, slot);
    is_found = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1;
    if (is_found)
        (void)snprintf(ret_node, size, "/dev/%s", strrchr(found.gl_pathv[0], '/') + 1);
    globfree(&found);
    return is_found && access(ret_node, F_OK) == 0;
}

/* Of the disk at "ID:LUN". */
static bool find_scsi_node(const char *address, char *ret_node, size_t size)
{
    char end[64], device[256], path[512], name[256];

    (void)snprintf(end, sizeof(end), ":0:%s", address);
    if (!find_name(DISKS, end, device, sizeof(device)))
        return false;
    (void)snprintf(path, sizeof(path), DISKS "/%s/block", device);
    if (!find_name(path, "", name, sizeof(name)))
        return false;
    (void)snprintf(ret_node, size, "/dev/%s", name);
    return access(ret_node, F_OK) == 0;
}

static void apply_group(const struct container_storage *storage)
{
    (void)chown(storage->mount.destination, (uid_t)-1, storage->group);
    (void)chmod(storage->mount.destination, 02775);
}

/* As the real one: what is mounted there, with this type, is taken for the storage. */
static bool is_mounted(const char *path, const char *type)
{
    FILE *table = setmntent("/proc/self/mounts", "r");
    const struct mntent *entry;
    bool found = false;

    while (table && !found && (entry = getmntent(table)))
        found = strcmp(entry->mnt_dir, path) == 0 && strcmp(entry->mnt_type, type) == 0;
    if (table)
        (void)endmntent(table);
    return found;
}

static bool find_node(const struct container_storage *storage, char *ret_node, size_t size)
{
    return strcmp(storage->driver, "blk") == 0 ? find_slot_node(storage->source, ret_node, size)
                                               : find_scsi_node(storage->source, ret_node, size);
}

static bool mount_disk(const struct container_storage *storage, char *ret_text)
{
    const struct timespec step = {.tv_nsec = WAIT_STEP_NS};
    char node[512], data[PATH_BYTES];
    unsigned long flags;
    int number = 0;

    if (strcmp(storage->driver, "scsi") != 0 && strcmp(storage->driver, "blk") != 0) {
        (void)snprintf(ret_text, TEXT_BYTES, "Failed to find the storage handler %s",
                       storage->driver);
        return false;
    }
    for (int i = 0; !find_node(storage, node, sizeof(node)); i++) {
        if (i == WAIT_STEPS) {
            (void)snprintf(ret_text, TEXT_BYTES, "Timeout after 5s waiting for uevent");
            return false;
        }
        (void)nanosleep(&step, NULL);
    }
    container_split_options(&storage->mount, &flags, data, sizeof(data));
    if (make_directories(storage->mount.destination) < 0 ||
        (!is_mounted(storage->mount.destination, storage->mount.type) &&
         mount(node, storage->mount.destination, storage->mount.type, flags, data) < 0))
        number = errno;
    if (number)
        (void)snprintf(ret_text, TEXT_BYTES, "failed to mount %.100s to %.100s, with error: %s",
                       node, storage->mount.destination, strerror(number));
    else if (storage->has_group)
        apply_group(storage);
    return !number;
}

bool storage_mount(const struct container_storage *storage, char *ret_text)
{
    const char *path = storage->mount.destination;
    struct mount_point *point = find_mount_point(path);

    if (!point) {
        (void)snprintf(ret_text, TEXT_BYTES, "the stand-in has no room for another mount point");
        return false;
    }
    if (!point->users && !mount_disk(storage, ret_text))
        return false;
    strcpy(point->path, path);
    point->users++;
    return true;
}

/* A busy one stays, and is forgotten, as by the real one. */
void storage_unmount(const char *path)
{
    struct mount_point *point = path[0] ? find_mount_point(path) : NULL;

    if (point && point->users && --point->users == 0)
        (void)umount2(path, 0);
}
