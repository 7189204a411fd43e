/* SPDX-License-Identifier: Apache-2.0 */
/* drive_enter.c - opens what is needed of its own mount namespace, then enters the container's.
 */
#include "guest-agent/guest_drive.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest-agent/guest_volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"
#include "lib/path.h"

/* Not in linux/magic.h: fs/configfs/mount.c, ipc/mqueue.c. */
#define CONFIGFS_TYPE 0x62656570
#define MQUEUE_TYPE   0x19800202

/* What cannot be looked at is. If /dev is not a file system of its own, it is recognised by its
 * inode. */
static bool is_protected(int fd)
{
    static const unsigned long kernels[] = {
        PROC_SUPER_MAGIC,   SYSFS_MAGIC,     CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
        DEVPTS_SUPER_MAGIC, DEBUGFS_MAGIC,   TRACEFS_MAGIC,      SECURITYFS_MAGIC,
        SELINUX_MAGIC,      BPF_FS_MAGIC,    PSTOREFS_MAGIC,     EFIVARFS_MAGIC,
        NSFS_MAGIC,         HUGETLBFS_MAGIC, CONFIGFS_TYPE,      MQUEUE_TYPE,
    };
    static const struct {
        const char *path;
        bool has_super_block; /* its own, usually */
    } places[] = {{"/dev", true}, {"/dev/shm", true}, {"/run/kata-containers", false}};
    struct statfs file_system;
    struct stat status, root, place;

    if (fstatfs(fd, &file_system) < 0 || fstat(fd, &status) < 0 || stat("/", &root) < 0)
        return true;
    for (size_t i = 0; i < array_length(kernels); i++) {
        if ((unsigned long)file_system.f_type == kernels[i])
            return true;
    }
    for (size_t i = 0; i < array_length(places); i++) {
        if (stat(places[i].path, &place) < 0)
            continue;
        if (status.st_dev == place.st_dev &&
            (status.st_ino == place.st_ino ||
             (places[i].has_super_block && place.st_dev != root.st_dev)))
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

/* Whether the directory is a mount point. 0 or -errno. */
static int find_mount_root(int fd, bool *ret_is_root)
{
    struct statx status;

    if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_TYPE, &status) < 0)
        return -errno;
    if (!(status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT))
        return -ENOTSUP; /* before Linux 5.8 */
    *ret_is_root = status.stx_attributes & STATX_ATTR_MOUNT_ROOT;
    return 0;
}

enum status_code drive_target_open(const char *path, int *ret_fd, struct error *error)
{
    cleanup(fd_closep) int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *part = path + strspn(path, "/");
    bool is_mount_root = false;
    char name[NAME_MAX + 1];
    int r;

    if (fd < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno, "cannot open /");
    if (!*part)
        return refuse_protected(path, error);
    while (*part) {
        size_t length = strcspn(part, "/");
        int next = -1;

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
    r = find_mount_root(fd, &is_mount_root);
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r,
                                  "cannot tell whether %s is a mount point", path);
    if (is_mount_root)
        return drive_refuse(error, STATUS_ALREADY_EXISTS, "%s is a mount point already", path);
    *ret_fd = take_fd(&fd);
    return STATUS_OK;
}

enum { SECONDS = 20, LEAST_SECONDS = 5 };

/* ---- the container's mount namespace ---- */

/* What to do there, and what that needs. */
struct visit {
    const struct drive_container *container;
    dev_t files;
    ino_t root;   /* in: the inode of sub_path */
    int tree;     /* in: the clone */
    dev_t mounts; /* out: its device in mountinfo */
    int proc;     /* out: /proc of this guest */
    uint64_t deadline_ns;
    enum status_code (*function)(const struct visit *visit, struct error *error);
};

/* Shared with the process that enters the namespace. */
struct report {
    enum status_code code;
    struct error error;
};

/* Whether the drive may be mounted at the path: mountinfo has it, or cannot be read. */
static bool may_be_there(const struct visit *visit)
{
    cleanup(fd_closep) int fd = openat(visit->proc, "self/mountinfo", O_RDONLY | O_CLOEXEC);
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(MOUNT_TABLE_BYTES);
    struct mount_entry mount;
    char *cursor;

    if (fd < 0 || buffer_read_all(&text, fd) < 0)
        return true;
    cursor = text.data;
    while (cursor && mount_table_next(&cursor, &mount)) {
        if (mount.device == visit->mounts && strcmp(mount.mount_point, visit->container->path) == 0)
            return true;
    }
    return false;
}

/* A container that is being created has the guest's root until its own replaces that, and would
 * lose the mount. */
static enum status_code go_there(int namespace, const struct visit *visit, struct error *error)
{
    struct stat guest, root;

    if (stat("/", &guest) < 0 || setns(namespace, CLONE_NEWNS) < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno,
                                  "cannot enter its mount namespace");
    if (visit->proc >= 0 && !may_be_there(visit))
        return STATUS_OK;
    if (stat("/", &root) < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno, "cannot tell what its root is");
    if (root.st_dev == guest.st_dev && root.st_ino == guest.st_ino)
        return drive_refuse(error, STATUS_UNAVAILABLE,
                            "it is still being made: the guest's root is its root");
    return visit->function(visit, error);
}

/* In a process of its own, until the deadline, or for a few seconds even after it. */
static enum status_code run_there(int namespace, const struct visit *visit, struct report *report,
                                  struct error *error)
{
    uint64_t now = clock_boottime();
    uint64_t left = visit->deadline_ns > now ? (visit->deadline_ns - now) / NSEC_PER_SEC : 0;
    pid_t pid = fork();
    int status = 0;

    if (pid < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno, "cannot start a process");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* This process has the default action for all signals. */
        (void)alarm(left < LEAST_SECONDS ? LEAST_SECONDS
                    : left > SECONDS     ? SECONDS
                                         : (unsigned)left);
        report->code = go_there(namespace, visit, &report->error);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return drive_refuse(error, STATUS_INTERNAL, "the process that entered it is lost");
    }
    if (!WIFEXITED(status))
        return drive_refuse(error, STATUS_UNAVAILABLE,
                            "a file system on the way to %s did not answer in time",
                            visit->container->path);
    *error = report->error;
    return report->code;
}

/* code: whether the visit was prepared; if not, the error says why. A container that does not run
 * has lost what it was to give back. */
static enum status_code visit_container(enum status_code code, const struct drive_setting *setting,
                                        const struct visit *visit, struct error *error)
{
    cleanup(fd_closep) int namespace = -1;
    struct container_place place = {.process = -1};
    const char *id = visit->container->container_id;
    int r = container_find(setting->proc, id, &place);
    void *shared = mmap(NULL, sizeof(struct report), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (code == STATUS_OK && r == CONTAINER_FOUND) {
        namespace = openat(place.process, "ns/mnt", O_RDONLY | O_CLOEXEC);
        if (namespace < 0)
            code = drive_refuse(error, STATUS_FAILED_PRECONDITION, "it has just ended");
        else if (shared == MAP_FAILED)
            code = drive_refuse(error, STATUS_RESOURCE_EXHAUSTED, "out of memory");
        else
            code = run_there(namespace, visit, shared, error);
    } else if (code == STATUS_OK && r == CONTAINER_AMBIGUOUS) {
        code = drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "processes of several containers are in a cgroup of its name");
    } else if (code == STATUS_OK && r < 0) {
        code = drive_refuse_errno(error, STATUS_INTERNAL, r, "cannot look for its processes");
    } else if (code == STATUS_OK && visit->tree >= 0) {
        code = drive_refuse(error, STATUS_FAILED_PRECONDITION, "it does not run in this guest");
    }
    if (shared != MAP_FAILED)
        (void)munmap(shared, sizeof(struct report));
    fd_close(place.process);
    if (code != STATUS_OK)
        (void)error_prefix(error, "container %s: ", id);
    return code;
}

/* Opens the directory if exactly this is mounted at the path. 0 or -errno. */
static int open_mounted(const struct visit *visit, int directory, const char *name, bool is_exact,
                        int *ret_fd)
{
    cleanup(fd_closep) int fd = -1;
    bool is_root = false;
    struct stat status;
    int r = path_open_unlinked(directory, name, &fd);

    if (r == 0)
        r = find_mount_root(fd, &is_root);
    if (r == 0 && fstat(fd, &status) < 0)
        r = -errno;
    if (r < 0)
        return r;
    if (!is_root || status.st_dev != visit->files || (is_exact && status.st_ino != visit->root))
        return -ENOENT;
    *ret_fd = take_fd(&fd);
    return 0;
}

/* ---- mounting ---- */

static uint64_t attributes_of(const struct drive_container *container)
{
    return MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | (container->read_only ? MOUNT_ATTR_RDONLY : 0U);
}

/* A process in the container may have made or remounted a mount of the drive that is there. */
static enum status_code mount_there(const struct visit *visit, struct error *error)
{
    const struct drive_container *container = visit->container;
    struct mount_attr attributes = {.attr_set = attributes_of(container)};
    cleanup(fd_closep) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int target = -1;
    enum status_code code;

    if (root >= 0 && open_mounted(visit, root, container->path + 1, true, &target) == 0)
        return mount_setattr(target, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) == 0
                   ? STATUS_OK
                   : drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno,
                                        "the drive is mounted on %s, and cannot be made %s",
                                        container->path,
                                        container->read_only ? "read-only" : "nodev and nosuid");
    code = drive_target_open(container->path, &target, error);
    if (code != STATUS_OK)
        return code == STATUS_INTERNAL ? code : STATUS_FAILED_PRECONDITION;
    if (move_mount(visit->tree, "", target, "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0)
        return STATUS_OK;
    return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, -errno, "cannot mount on %s",
                              container->path);
}

/* Clones the directory of the drive that the container gets. */
static enum status_code clone_part(int volume, struct visit *visit, struct error *error)
{
    const struct drive_container *container = visit->container;
    struct mount_attr attributes = {.attr_set = attributes_of(container),
                                    .propagation = MS_PRIVATE};
    cleanup(fd_closep) int part = -1;
    struct stat status, whole;
    int r = path_open_below(volume, container->sub_path[0] ? container->sub_path : ".", &part);

    if (r == 0 && (fstat(part, &status) < 0 || fstat(volume, &whole) < 0))
        r = -errno;
    if (r < 0)
        return drive_refuse_errno(error, STATUS_FAILED_PRECONDITION, r,
                                  "cannot open sub_path %s in the drive", container->sub_path);
    if (!S_ISDIR(status.st_mode))
        return drive_refuse(error, STATUS_FAILED_PRECONDITION, "sub_path %s is no directory",
                            container->sub_path);
    if (status.st_dev != whole.st_dev)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "sub_path %s lies in another subvolume", container->sub_path);
    visit->files = status.st_dev;
    visit->root = status.st_ino;
    visit->tree = open_tree(part, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (visit->tree < 0 ||
        mount_setattr(visit->tree, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno, "cannot clone the drive's mount");
    return STATUS_OK;
}

enum status_code drive_enter(const struct drive_setting *setting, int volume,
                             const struct drive_container *container, struct error *error)
{
    struct visit visit = {.container = container,
                          .tree = -1,
                          .proc = -1,
                          .deadline_ns = setting->deadline_ns,
                          .function = mount_there};
    enum status_code code = clone_part(volume, &visit, error);

    code = visit_container(code, setting, &visit, error);
    fd_close(visit.tree);
    return code;
}

/* ---- unmounting ---- */

/* Unmounts by name in a directory that is open, so nobody can replace what is unmounted: a mount
 * point cannot be renamed. */
static enum status_code unmount_there(const struct visit *visit, struct error *error)
{
    const char *path = visit->container->path + 1, *name = strrchr(visit->container->path, '/') + 1;
    char parent[DRIVE_PATH_BYTES];
    cleanup(fd_closep) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int directory = -1, mounted = -1;
    int r;

    (void)snprintf(parent, sizeof(parent), "%.*s", (int)(name - path), path);
    if (root < 0 || path_open_unlinked(root, parent[0] ? parent : ".", &directory) < 0)
        return STATUS_OK;
    r = open_mounted(visit, directory, name, false, &mounted);
    if (r < 0 && !volume_fails_as_shut_down(-r)) /* of that, mountinfo has to do */
        return STATUS_OK;
    fd_close(mounted); /* it would keep the mount busy */
    mounted = -1;
    if (fchdir(directory) == 0 && umount2(name, UMOUNT_NOFOLLOW) == 0)
        return STATUS_OK;
    return drive_refuse_errno(error, errno == EBUSY ? STATUS_FAILED_PRECONDITION : STATUS_INTERNAL,
                              -errno, "cannot unmount %s", visit->container->path);
}

enum status_code drive_leave(const struct drive_setting *setting, dev_t files, dev_t mounts,
                             const struct drive_container *container, struct error *error)
{
    cleanup(fd_closep) int proc = open(setting->proc, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct visit visit = {.container = container,
                                .files = files,
                                .mounts = mounts,
                                .tree = -1,
                                .proc = proc,
                                .deadline_ns = setting->deadline_ns,
                                .function = unmount_there};

    return visit_container(STATUS_OK, setting, &visit, error);
}
