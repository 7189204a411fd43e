/* SPDX-License-Identifier: Apache-2.0 */
/* drive_place.c - see drive_place.h. */
#include "guest-agent/drive_place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/mount_table.h"
#include "lib/path.h"

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

/* ---- drive target --------------------------------------------------------------------------- */

/* Checks every directory on the way before it creates anything in it. */

/* Not in linux/magic.h: fs/configfs/mount.c, ipc/mqueue.c. */
#define CONFIGFS_TYPE 0x62656570
#define MQUEUE_TYPE   0x19800202

bool drive_target_is_kernels(int fd)
{
    static const unsigned long kinds[] = {
        PROC_SUPER_MAGIC,   SYSFS_MAGIC,     CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
        DEVPTS_SUPER_MAGIC, DEBUGFS_MAGIC,   TRACEFS_MAGIC,      SECURITYFS_MAGIC,
        SELINUX_MAGIC,      BPF_FS_MAGIC,    PSTOREFS_MAGIC,     EFIVARFS_MAGIC,
        NSFS_MAGIC,         HUGETLBFS_MAGIC, CONFIGFS_TYPE,      MQUEUE_TYPE,
    };
    struct statfs status;

    if (fstatfs(fd, &status) < 0)
        return true; /* unknown: treated as protected */
    for (size_t i = 0; i < array_length(kinds); i++) {
        if ((unsigned long)status.f_type == kinds[i])
            return true;
    }
    return false;
}

/* If /dev is not a file system of its own, it is recognised by its inode. */
static bool is_protected(int fd)
{
    static const struct {
        const char *path;
        bool has_super_block; /* its own, usually */
    } places[] = {{"/dev", true}, {"/dev/shm", true}, {"/run/kata-containers", false}};
    struct stat status, root, place;

    if (drive_target_is_kernels(fd) || fstat(fd, &status) < 0 || stat("/", &root) < 0)
        return true;
    for (size_t i = 0; i < array_length(places); i++) {
        if (stat(places[i].path, &place) < 0)
            continue;
        if (status.st_dev == place.st_dev && status.st_ino == place.st_ino)
            return true;
        if (places[i].has_super_block && place.st_dev != root.st_dev &&
            status.st_dev == place.st_dev)
            return true;
    }
    return false;
}

static int refuse_protected(const char *path, struct error *error)
{
    return error_set(error, DRIVE_TARGET_PROTECTED, "%s is or lies in a protected place", path);
}

/* Opens the next directory, and creates it if it is missing. 0 or -errno. */
static int step_into(int directory, const char *name, int *ret_fd)
{
    cleanup(fd_closep) int fd = -1;
    struct stat status;
    int r = path_open_unlinked(directory, name, &fd);

    if (r == PATH_MISSING) {
        if (mkdirat(directory, name, 0755) < 0 && errno != EEXIST)
            return -errno;
        r = path_open_unlinked(directory, name, &fd);
    }
    if (r < 0)
        return r;
    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISDIR(status.st_mode))
        return PATH_BELOW_A_FILE;
    *ret_fd = take_fd(&fd);
    return 0;
}

int drive_target_find_mount_root(int fd, bool *ret_is_root)
{
    struct statx status;

    if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_TYPE, &status) < 0)
        return -errno;
    if (!(status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT))
        return -ENOTSUP; /* before Linux 5.8 */
    *ret_is_root = status.stx_attributes & STATX_ATTR_MOUNT_ROOT;
    return 0;
}

static int check_target(const char *path, int fd, struct error *error)
{
    bool is_mount_root = false;
    int r = drive_target_find_mount_root(fd, &is_mount_root);

    if (r < 0)
        return error_set_errno(error, r, "cannot tell whether %s is a mount point", path);
    if (is_mount_root)
        return error_set(error, DRIVE_TARGET_TAKEN, "%s is a mount point already", path);
    return DRIVE_TARGET_OPEN;
}

int drive_target_open(const char *path, int *ret_fd, struct error *error)
{
    cleanup(fd_closep) int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *part = path + strspn(path, "/");
    char name[NAME_MAX + 1];
    int r;

    if (fd < 0)
        return error_set_errno(error, -errno, "cannot open /");
    if (!*part)
        return refuse_protected(path, error);
    while (*part) {
        size_t length = strcspn(part, "/");
        int next = -1;

        if (length >= sizeof(name))
            return error_set(error, DRIVE_TARGET_UNREACHABLE, "%s has a name that is too long",
                             path);
        memcpy(name, part, length);
        name[length] = '\0';
        r = step_into(fd, name, &next);
        if (r < 0) {
            (void)error_set_errno(error, r, "cannot reach %s, at %s", path, name);
            return result_is_shortage(r) ? r : DRIVE_TARGET_UNREACHABLE;
        }
        fd_close(fd);
        fd = next;
        if (is_protected(fd))
            return refuse_protected(path, error);
        part += length + strspn(part + length, "/");
    }
    r = check_target(path, fd, error);
    if (r == DRIVE_TARGET_OPEN)
        *ret_fd = take_fd(&fd);
    return r;
}

/* ---- drive find ----------------------------------------------------------------------------- */

/* Polls sysfs. A uevent would be some milliseconds faster, but may get lost. */

#define FIRST_PAUSE_NS   (2 * NSEC_PER_MSEC)
#define LONGEST_PAUSE_NS (50 * NSEC_PER_MSEC)
#define SCAN_PAUSE_NS    (1 * NSEC_PER_SEC)

static void write_attribute(const char *path, const char *text)
{
    cleanup(fd_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, text, strlen(text));
}

/* Errors are ignored, here and below: the bus may be missing or unable to rescan. */
static void scan_pci(const char *sysfs)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/bus/pci/rescan", sysfs) < (int)sizeof(path))
        write_attribute(path, "1");
}

/* Has every SCSI host and the PCI bus scan for disks. */
static void scan_buses(const char *sysfs)
{
    cleanup(dir_closep) DIR *hosts = NULL;
    char path[PATH_MAX];
    const char *name;

    if (snprintf(path, sizeof(path), "%s/class/scsi_host", sysfs) < (int)sizeof(path))
        hosts = opendir(path);
    while (hosts && (name = directory_next(hosts))) {
        if (snprintf(path, sizeof(path), "%s/class/scsi_host/%s/scan", sysfs, name) <
            (int)sizeof(path))
            write_attribute(path, "- - -");
    }
    scan_pci(sysfs);
}

static enum status_code find_once(const struct drive_find_request *request,
                                  struct drive_disk *ret_disk, struct error *error)
{
    cleanup(drive_disks_done) struct drive_disks disks = {0};
    const struct drive_disk *disk;
    int r = drive_disks_read(request->sysfs, &disks);

    if (r < 0) {
        (void)error_set_errno(error, r, "cannot list the disks");
        return STATUS_INTERNAL;
    }
    switch (drive_disks_find(&disks, request->serial, &disk)) {
    case DRIVE_DISK_FOUND:
        *ret_disk = *disk;
        return STATUS_OK;
    case DRIVE_DISK_AMBIGUOUS:
        (void)error_set(error, STATUS_FAILED_PRECONDITION,
                        "several disks have the serial %s, or there are too many disks",
                        request->serial);
        return STATUS_FAILED_PRECONDITION;
    case DRIVE_DISK_UNREADABLE:
        (void)error_set(error, STATUS_INTERNAL,
                        "whether a disk with the serial %s is there cannot be told: %s cannot be "
                        "read in sysfs",
                        request->serial, disks.unreadable);
        return STATUS_INTERNAL;
    case DRIVE_DISK_ABSENT:
    default:
        (void)error_set(error, STATUS_UNAVAILABLE, "no disk with the serial %s is there",
                        request->serial);
        return STATUS_UNAVAILABLE;
    }
}

enum status_code drive_find(const struct drive_find_request *request, struct drive_disk *ret_disk,
                            struct error *error)
{
    uint64_t pause_ns = FIRST_PAUSE_NS, scan_ns = clock_boottime() + SCAN_PAUSE_NS;
    enum status_code code;

    if (request->deadline_ns && drive_serial_is_of_vmm(request->serial))
        scan_pci(request->sysfs);
    code = find_once(request, ret_disk, error);
    while ((code == STATUS_UNAVAILABLE || code == STATUS_INTERNAL) &&
           clock_boottime() < request->deadline_ns) {
        const struct timespec pause = {.tv_nsec = (long)pause_ns};

        if (clock_boottime() >= scan_ns) {
            scan_buses(request->sysfs);
            scan_ns = clock_boottime() + SCAN_PAUSE_NS;
        }
        (void)nanosleep(&pause, NULL);
        pause_ns = pause_ns * 2 < LONGEST_PAUSE_NS ? pause_ns * 2 : LONGEST_PAUSE_NS;
        code = find_once(request, ret_disk, error);
    }
    return code;
}

enum status_code drive_find_check(const struct drive_disk *disk, uint64_t bytes, bool read_only,
                                  struct error *error)
{
    if (disk->bytes != bytes) {
        (void)error_set(error, STATUS_FAILED_PRECONDITION,
                        "%s has %" PRIu64 " bytes and not %" PRIu64, disk->name, disk->bytes,
                        bytes);
        return STATUS_FAILED_PRECONDITION;
    }
    if (disk->read_only != read_only) {
        (void)error_set(error, STATUS_FAILED_PRECONDITION, "%s is %s", disk->name,
                        disk->read_only ? "read-only" : "writable");
        return STATUS_FAILED_PRECONDITION;
    }
    return STATUS_OK;
}

int drive_find_open_node(const char *path, const struct drive_disk *disk, int flags, int *ret_fd)
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

int drive_find_open(const struct drive_find_request *request, const struct drive_disk *disk,
                    int flags, int *ret_fd)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%s", request->devices, disk->name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    return drive_find_open_node(path, disk, flags, ret_fd);
}
