/* SPDX-License-Identifier: Apache-2.0 */
/* guest_disk.c - the disks of drives: read from sysfs, waited for, opened, and listed with their
 * mounts.
 *
 * Sources: Documentation/ABI/testing/sysfs-block (serial, of virtio-blk), SPC-4 section 7.7 (VPD
 * page 0x80, of SCSI disks: four bytes of header, the last two of which are the length of the text
 * that follows).
 */
#include "guest-agent/guest_drive.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/mount_table.h"
#include "lib/text.h"

#define FIRST_PAUSE_NS   (2 * NSEC_PER_MSEC)
#define LONGEST_PAUSE_NS (50 * NSEC_PER_MSEC)
#define SCAN_PAUSE_NS    (1 * NSEC_PER_SEC)

enum {
    DISKS_LOOKED_AT = 16384, /* of any serial; no Kata guest has more */
    PAGE_BYTES = 256,        /* of VPD page 0x80: header and text */
    PAGE_HEADER_BYTES = 4,
};

/* ---- sysfs ---- */

enum reading {
    READ,
    NO_DRIVE, /* or it was removed */
    UNREADABLE,
};

/* What a failure means, or no failure and no serial: the disk may have no such attribute or page
 * (drivers/scsi/scsi_sysfs.c). */
static enum reading explain(ssize_t count)
{
    int failure = count < 0 ? (int)-count : 0;

    return failure == 0 || failure == ENOENT || failure == EINVAL || failure == ENODEV ||
                   failure == ENXIO
               ? NO_DRIVE
               : UNREADABLE;
}

/* Strips the blanks and the newline: SCSI serials may be padded. */
static bool take_serial(const char *text, char ret_serial[static DRIVE_SERIAL_BYTES])
{
    const char *start = text + strspn(text, " ");
    size_t length = strcspn(start, " \n");

    if (length >= DRIVE_SERIAL_BYTES || start[length + strspn(start + length, " \n")])
        return false;
    memcpy(ret_serial, start, length);
    ret_serial[length] = '\0';
    return drive_serial_is_valid(ret_serial);
}

/* Reads the serial of a SCSI disk. */
static enum reading read_page_serial(int disk, char ret_serial[static DRIVE_SERIAL_BYTES])
{
    char page[PAGE_BYTES];
    ssize_t count = device_read_attribute(disk, "device/vpd_pg80", page, sizeof(page));
    size_t length;

    if (count < PAGE_HEADER_BYTES || (unsigned char)page[1] != 0x80)
        return explain(count);
    length = (size_t)(unsigned char)page[2] << 8 | (unsigned char)page[3];
    if (length > (size_t)count - PAGE_HEADER_BYTES)
        return NO_DRIVE;
    page[PAGE_HEADER_BYTES + length] = '\0';
    return strlen(page + PAGE_HEADER_BYTES) == length &&
                   take_serial(page + PAGE_HEADER_BYTES, ret_serial)
               ? READ
               : NO_DRIVE;
}

static enum reading read_serial(int disk, char ret_serial[static DRIVE_SERIAL_BYTES])
{
    char text[64];
    ssize_t count = device_read_attribute(disk, "serial", text, sizeof(text));
    enum reading reading;

    if (count > 0 && take_serial(text, ret_serial))
        return READ;
    reading = read_page_serial(disk, ret_serial);
    return reading == NO_DRIVE ? explain(count) : reading;
}

static enum reading read_disk(const char *sysfs, const char *name, struct drive_disk *ret_disk)
{
    cleanup(fd_closep) int disk = -1;
    enum reading reading;
    uint64_t read_only = 0;
    char path[PATH_MAX];

    if (strlen(name) >= sizeof(ret_disk->name) ||
        snprintf(path, sizeof(path), "%s/block/%s", sysfs, name) >= (int)sizeof(path))
        return NO_DRIVE;
    strcpy(ret_disk->name, name);
    disk = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (disk < 0)
        return explain(-errno);
    reading = read_serial(disk, ret_disk->serial);
    if (reading == READ && (device_read_device(disk, "dev", &ret_disk->device) < 0 ||
                            device_read_size(disk, "size", &ret_disk->bytes) < 0 ||
                            device_read_number(disk, "ro", &read_only) < 0)) /* was it removed? */
        return faccessat(disk, "dev", F_OK, 0) == 0 ? UNREADABLE : NO_DRIVE;
    ret_disk->read_only = read_only != 0;
    return reading;
}

int drive_disks_read(const char *sysfs, struct drive_disks *ret_disks)
{
    cleanup(directory_names_done) struct directory_names names = {0};
    cleanup(freep) struct drive_disk *disks = calloc(DRIVE_LIST, sizeof(*disks));
    cleanup(dir_closep) DIR *listing = NULL;
    struct drive_disks read = {0};
    struct drive_disk disk;
    char path[PATH_MAX];
    int r;

    if (!disks)
        return -ENOMEM;
    if (snprintf(path, sizeof(path), "%s/block", sysfs) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    listing = opendir(path);
    if (!listing)
        return -errno;
    r = directory_read_names(listing, DISKS_LOOKED_AT, NULL, &names);
    if (r < 0)
        return r;
    read.incomplete = r == DIRECTORY_TOO_MANY;
    for (unsigned i = 0; i < names.count; i++) {
        enum reading reading = read_disk(sysfs, names.name[i], &disk);

        if (reading == UNREADABLE)
            strcpy(read.unreadable, disk.name);
        if (reading != READ)
            continue;
        if (read.count < DRIVE_LIST)
            disks[read.count++] = disk;
        else
            read.incomplete = true;
    }
    read.disks = take_pointer(&disks);
    *ret_disks = read;
    return 0;
}

void drive_disks_done(struct drive_disks *disks)
{
    free(disks->disks);
    *disks = (struct drive_disks){0};
}

enum status_code drive_disks_find(const struct drive_disks *disks, const char *serial,
                                  struct drive_disk *ret_disk, struct error *error)
{
    const struct drive_disk *found = NULL;
    unsigned count = 0;

    for (size_t i = 0; i < disks->count; i++) {
        if (strcmp(disks->disks[i].serial, serial) != 0)
            continue;
        found = &disks->disks[i];
        count++;
    }
    if (count > 1 || disks->incomplete) /* another disk may have the same serial */
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "several disks have the serial %s, or there are too many disks",
                            serial);
    if (!found && disks->unreadable[0])
        return drive_refuse(
            error, STATUS_INTERNAL,
            "whether a disk with the serial %s is there cannot be told: %s cannot be read in sysfs",
            serial, disks->unreadable);
    if (!found)
        return drive_refuse(error, STATUS_UNAVAILABLE, "no disk with the serial %s is there",
                            serial);
    *ret_disk = *found;
    return STATUS_OK;
}

/* ---- waiting ---- */

/* Has the PCI bus scan for disks, and every SCSI host. Errors are ignored: a bus may be missing or
 * unable to rescan. */
static void scan_buses(const char *sysfs, bool with_scsi)
{
    cleanup(dir_closep) DIR *hosts = NULL;
    char path[PATH_MAX];
    const char *name;

    if (with_scsi && snprintf(path, sizeof(path), "%s/class/scsi_host", sysfs) < (int)sizeof(path))
        hosts = opendir(path);
    while (hosts && (name = directory_next(hosts))) {
        if (snprintf(path, sizeof(path), "%s/class/scsi_host/%s/scan", sysfs, name) <
            (int)sizeof(path))
            (void)device_write_attribute(path, "- - -");
    }
    if (snprintf(path, sizeof(path), "%s/bus/pci/rescan", sysfs) < (int)sizeof(path))
        (void)device_write_attribute(path, "1");
}

enum status_code drive_find(const struct drive_setting *setting, const char *serial,
                            struct drive_disk *ret_disk, struct error *error)
{
    /* Polls sysfs. A uevent would be some milliseconds faster, but may get lost. */
    uint64_t now, pause_ns = FIRST_PAUSE_NS, scan_ns = clock_boottime() + SCAN_PAUSE_NS;

    if (setting->deadline_ns && drive_serial_is_of_vmm(serial))
        scan_buses(setting->sysfs, false);
    for (;;) {
        cleanup(drive_disks_done) struct drive_disks disks = {0};
        int r = drive_disks_read(setting->sysfs, &disks);
        enum status_code code =
            r < 0 ? drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot list the disks")
                  : drive_disks_find(&disks, serial, ret_disk, error);
        struct timespec pause = {.tv_nsec = (long)pause_ns};

        now = clock_boottime();
        if ((code != STATUS_UNAVAILABLE && code != STATUS_INTERNAL) || now >= setting->deadline_ns)
            return code;
        if (pause_ns > setting->deadline_ns - now)
            pause.tv_nsec = (long)(setting->deadline_ns - now);
        if (now >= scan_ns) {
            scan_buses(setting->sysfs, true);
            scan_ns = now + SCAN_PAUSE_NS;
        }
        (void)nanosleep(&pause, NULL);
        pause_ns = pause_ns * 2 < LONGEST_PAUSE_NS ? pause_ns * 2 : LONGEST_PAUSE_NS;
    }
}

/* ---- the device cgroup ---- */

/* From the line "N:CONTROLLER,…:/PATH": relative to the root of the hierarchy, which may be mounted
 * anywhere or nowhere. By /proc/self, because /proc may be that of another pid namespace. */
static int find_own_group(char ret_path[static PATH_MAX])
{
    cleanup(freep) char *line = NULL;
    FILE *file = fopen("/proc/self/cgroup", "re");
    char controllers[256];
    size_t size = 0;
    int length = -1;

    if (!file)
        return -errno;
    while (length < 0 && getline(&line, &size, file) > 0) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

        if (!path)
            continue;
        path[strcspn(path, "\n")] = '\0';
        *path++ = '\0';
        (void)snprintf(controllers, sizeof(controllers), ",%s,", list + 1);
        if (strstr(controllers, ",devices,"))
            length = snprintf(ret_path, PATH_MAX, ".%s/devices.allow", path);
    }
    (void)fclose(file);
    return length < 0 ? -ENOENT : length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int device_cgroup_allow(dev_t device)
{
    cleanup(fd_closep) int context = -1;
    cleanup(fd_closep) int hierarchy = -1;
    cleanup(fd_closep) int rules = -1;
    char path[PATH_MAX], rule[48];
    int length, r = find_own_group(path);

    if (r < 0)
        return r;
    context = fsopen("cgroup", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_SET_FLAG, "devices", NULL, 0) < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    hierarchy = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (hierarchy < 0)
        return -errno;
    rules = openat(hierarchy, path, O_WRONLY | O_CLOEXEC);
    length = snprintf(rule, sizeof(rule), "b %u:%u rw", major(device), minor(device));
    return rules < 0 || write(rules, rule, (size_t)length) < 0 ? -errno : 0;
}

/* ---- opening ---- */

static int open_node(const char *path, const struct drive_disk *disk, int flags, int *ret_fd)
{
    cleanup(fd_closep) int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat status;

    if (fd < 0 && errno == ENXIO)
        return DRIVE_FIND_ABSENT;
    if (fd < 0 || fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISBLK(status.st_mode) || status.st_rdev != disk->device)
        return DRIVE_FIND_ABSENT;
    *ret_fd = take_fd(&fd);
    return 0;
}

int drive_find_open(const struct drive_setting *setting, const struct drive_disk *disk, int flags,
                    int *ret_fd)
{
    char path[PATH_MAX];
    int r;

    if (snprintf(path, sizeof(path), "%s/%s", setting->devices, disk->name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    r = open_node(path, disk, flags, ret_fd);
    if (r == DRIVE_FIND_DENIED && setting->in_container && device_cgroup_allow(disk->device) == 0)
        r = open_node(path, disk, flags, ret_fd);
    return r;
}

/* ---- the list ---- */

dev_t drive_list_device(const struct mount_entry *mount)
{
    struct stat status;

    if (major(mount->device) == 0 && strcmp(mount->file_system, "btrfs") == 0 &&
        stat(mount->source, &status) == 0 && S_ISBLK(status.st_mode))
        return status.st_rdev;
    return mount->device;
}

/* A process in the guest may mount the disk at a path that is not UTF-8. The path is escaped, or
 * crustd would refuse the whole list. */
static void copy_text(const char *from, char *ret_text, size_t size)
{
    size_t length = strlen(from);

    if (length < size && text_is_utf8(from, length))
        memcpy(ret_text, from, length + 1);
    else
        text_clean(from, length, ret_text, size);
}

/* Of several mounts the first one of the whole file system counts, or else a bind mount of one of
 * its directories. */
static void note_mount(struct drive_guest_entry *entry, const struct mount_entry *mount,
                       bool *is_whole)
{
    bool whole = strcmp(mount->root, "/") == 0;

    if (entry->state == DRIVE_GUEST_MOUNTED && (*is_whole || !whole))
        return;
    *is_whole = whole;
    entry->state = DRIVE_GUEST_MOUNTED;
    copy_text(mount->mount_point, entry->vm_path, sizeof(entry->vm_path));
    copy_text(mount->file_system, entry->filesystem_type, sizeof(entry->filesystem_type));
}

int drive_list_make(const struct drive_disks *disks, char *mountinfo,
                    struct drive_guest_list *ret_list)
{
    cleanup(freep) bool *is_whole = calloc(disks->count + 1, sizeof(*is_whole));
    struct drive_guest_entry *entries = calloc(disks->count + 1, sizeof(*entries));
    struct mount_entry mount;

    if (!entries || !is_whole) {
        free(entries);
        return -ENOMEM;
    }
    for (size_t i = 0; i < disks->count; i++) {
        strcpy(entries[i].serial, disks->disks[i].serial);
        strcpy(entries[i].device, disks->disks[i].name);
        entries[i].bytes = disks->disks[i].bytes;
        entries[i].read_only = disks->disks[i].read_only;
    }
    while (mountinfo && mount_table_next(&mountinfo, &mount)) {
        dev_t device = disks->count ? drive_list_device(&mount) : 0;

        for (size_t i = 0; i < disks->count; i++) {
            if (disks->disks[i].device == device)
                note_mount(&entries[i], &mount, &is_whole[i]);
        }
    }
    *ret_list =
        (struct drive_guest_list){disks->count, entries, disks->incomplete || disks->unreadable[0]};
    return 0;
}

int drive_list_read(struct drive_guest_list *ret_list)
{
    cleanup(drive_disks_done) struct drive_disks disks = {0};
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    int r = drive_disks_read("/sys", &disks);

    if (r == 0)
        r = mount_table_read(&text);
    return r < 0 ? r : drive_list_make(&disks, text.data, ret_list);
}
