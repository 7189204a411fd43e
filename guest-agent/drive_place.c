/* SPDX-License-Identifier: Apache-2.0 */
/* drive_place.c - see drive_mount.h. */
#include "guest-agent/drive_mount.h"

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
#include "lib/path.h"

/* Not in linux/magic.h: fs/configfs/mount.c, ipc/mqueue.c. */
#define CONFIGFS_TYPE 0x62656570
#define MQUEUE_TYPE   0x19800202

static bool is_kernels(int fd)
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

    if (is_kernels(fd) || fstat(fd, &status) < 0 || stat("/", &root) < 0)
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

static enum status_code refuse_protected(const char *path, struct error *error)
{
    return drive_refuse(error, STATUS_INVALID_ARGUMENT, "%s is or lies in a protected place", path);
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

static enum status_code check_target(const char *path, int fd, struct error *error)
{
    bool is_mount_root = false;
    int r = drive_target_find_mount_root(fd, &is_mount_root);

    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r,
                                  "cannot tell whether %s is a mount point", path);
    return is_mount_root
               ? drive_refuse(error, STATUS_ALREADY_EXISTS, "%s is a mount point already", path)
               : STATUS_OK;
}

enum status_code drive_target_open(const char *path, int *ret_fd, struct error *error)
{
    cleanup(fd_closep) int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *part = path + strspn(path, "/");
    enum status_code code;
    char name[NAME_MAX + 1];

    if (fd < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno, "cannot open /");
    if (!*part)
        return refuse_protected(path, error);
    while (*part) {
        size_t length = strcspn(part, "/");
        int r, next = -1;

        if (length >= sizeof(name))
            return drive_refuse(error, STATUS_FAILED_PRECONDITION, "%s has a name that is too long",
                                path);
        memcpy(name, part, length);
        name[length] = '\0';
        r = step_into(fd, name, &next);
        if (r < 0)
            return drive_refuse_errno(
                error, result_is_shortage(r) ? STATUS_INTERNAL : STATUS_FAILED_PRECONDITION, r,
                "cannot reach %s, at %s", path, name);
        fd_close(fd);
        fd = next;
        if (is_protected(fd))
            return refuse_protected(path, error);
        part += length + strspn(part + length, "/");
    }
    code = check_target(path, fd, error);
    if (code == STATUS_OK)
        *ret_fd = take_fd(&fd);
    return code;
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

static enum status_code find_once(const char *sysfs, const char *serial,
                                  struct drive_disk *ret_disk, struct error *error)
{
    cleanup(drive_disks_done) struct drive_disks disks = {0};
    int r = drive_disks_read(sysfs, &disks);

    return r < 0 ? drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot list the disks")
                 : drive_disks_find(&disks, serial, ret_disk, error);
}

enum status_code drive_find(const struct drive_setting *setting, const char *serial,
                            struct drive_disk *ret_disk, struct error *error)
{
    uint64_t now, pause_ns = FIRST_PAUSE_NS, scan_ns = clock_boottime() + SCAN_PAUSE_NS;
    enum status_code code;

    if (setting->deadline_ns && drive_serial_is_of_vmm(serial))
        scan_pci(setting->sysfs);
    for (code = find_once(setting->sysfs, serial, ret_disk, error);
         (code == STATUS_UNAVAILABLE || code == STATUS_INTERNAL) &&
         (now = clock_boottime()) < setting->deadline_ns;
         code = find_once(setting->sysfs, serial, ret_disk, error)) {
        const uint64_t left_ns = setting->deadline_ns - now;
        const struct timespec pause = {.tv_nsec = (long)(pause_ns < left_ns ? pause_ns : left_ns)};

        if (now >= scan_ns) {
            scan_buses(setting->sysfs);
            scan_ns = now + SCAN_PAUSE_NS;
        }
        (void)nanosleep(&pause, NULL);
        pause_ns = pause_ns * 2 < LONGEST_PAUSE_NS ? pause_ns * 2 : LONGEST_PAUSE_NS;
    }
    return code;
}

enum status_code drive_find_check(const struct drive_disk *disk, uint64_t bytes, bool read_only,
                                  struct error *error)
{
    if (disk->bytes != bytes)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "%s has %" PRIu64 " bytes and not %" PRIu64, disk->name, disk->bytes,
                            bytes);
    if (disk->read_only != read_only)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION, "%s is %s", disk->name,
                            disk->read_only ? "read-only" : "writable");
    return STATUS_OK;
}

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
