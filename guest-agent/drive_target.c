/* SPDX-License-Identifier: Apache-2.0 */
/* drive_target.c - checks every directory on the way before it creates anything in it. */
#include "guest-agent/drive_target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "lib/cleanup.h"
#include "lib/path.h"

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
