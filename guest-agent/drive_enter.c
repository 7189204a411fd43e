/* SPDX-License-Identifier: Apache-2.0 */
/* drive_enter.c - opens what is needed of its own mount namespace, then enters the container's.
 */
#include "guest-agent/drive_enter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest-agent/container_find.h"
#include "guest-agent/drive_place.h"
#include "guest-agent/volume.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"
#include "lib/path.h"

enum { SECONDS = 20, LEAST_SECONDS = 5 };

#define refuse(error, code, ...) ((enum status_code)error_set((error), (int)(code), __VA_ARGS__))

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

/* A container that is being created has the guest's root until its own replaces that, and would
 * lose the mount. */
static enum status_code check_root(const struct stat *guest, struct error *error)
{
    struct stat root;

    if (stat("/", &root) < 0) {
        (void)error_set_errno(error, -errno, "cannot tell what its root is");
        return STATUS_INTERNAL;
    }
    if (root.st_dev == guest->st_dev && root.st_ino == guest->st_ino)
        return refuse(error, STATUS_UNAVAILABLE,
                      "it is still being made: the guest's root is its root");
    return STATUS_OK;
}

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

static enum status_code go_there(int namespace, const struct visit *visit, struct error *error)
{
    enum status_code code;
    struct stat guest;

    if (stat("/", &guest) < 0 || setns(namespace, CLONE_NEWNS) < 0) {
        (void)error_set_errno(error, -errno, "cannot enter its mount namespace");
        return STATUS_INTERNAL;
    }
    if (visit->proc >= 0 && !may_be_there(visit))
        return STATUS_OK;
    code = check_root(&guest, error);
    return code == STATUS_OK ? visit->function(visit, error) : code;
}

static unsigned seconds_of(const struct visit *visit)
{
    uint64_t now = clock_boottime();
    uint64_t left = visit->deadline_ns > now ? (visit->deadline_ns - now) / NSEC_PER_SEC : 0;

    return left < LEAST_SECONDS ? LEAST_SECONDS : left > SECONDS ? SECONDS : (unsigned)left;
}

static _Noreturn void enter(int namespace, const struct visit *visit, struct report *report)
{
    (void)alarm(seconds_of(visit)); /* this process has the default action for all signals */
    report->code = go_there(namespace, visit, &report->error);
    _exit(0);
}

static enum status_code run(int namespace, const struct visit *visit, struct report *report,
                            struct error *error)
{
    pid_t pid = fork();
    int status = 0;

    if (pid < 0) {
        (void)error_set_errno(error, -errno, "cannot start a process");
        return STATUS_INTERNAL;
    }
    if (pid == 0)
        enter(namespace, visit, report);
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return refuse(error, STATUS_INTERNAL, "the process that entered it is lost");
    }
    if (!WIFEXITED(status))
        return refuse(error, STATUS_UNAVAILABLE,
                      "a file system on the way to %s did not answer in time",
                      visit->container->path);
    *error = report->error;
    return report->code;
}

static enum status_code run_there(const struct container_place *place, const struct visit *visit,
                                  struct error *error)
{
    cleanup(fd_closep) int namespace = openat(place->process, "ns/mnt", O_RDONLY | O_CLOEXEC);
    void *shared;
    enum status_code code;

    if (namespace < 0) /* the process has ended */
        return refuse(error, STATUS_FAILED_PRECONDITION, "it has just ended");
    shared = mmap(NULL, sizeof(struct report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    if (shared == MAP_FAILED)
        return refuse(error, STATUS_RESOURCE_EXHAUSTED, "out of memory");
    code = run(namespace, visit, shared, error);
    (void)munmap(shared, sizeof(struct report));
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
        r = drive_target_find_mount_root(fd, &is_root);
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

/* A process in the container may have made or remounted this mount. */
static enum status_code restrict_mounted(const struct visit *visit, int mounted,
                                         struct error *error)
{
    struct mount_attr attributes = {.attr_set = attributes_of(visit->container)};

    if (mount_setattr(mounted, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) == 0)
        return STATUS_OK;
    (void)error_set_errno(error, -errno, "the drive is mounted on %s, and cannot be made %s",
                          visit->container->path,
                          visit->container->read_only ? "read-only" : "nodev and nosuid");
    return STATUS_FAILED_PRECONDITION;
}

static enum status_code mount_there(const struct visit *visit, struct error *error)
{
    cleanup(fd_closep) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int target = -1;

    if (root >= 0 && open_mounted(visit, root, visit->container->path + 1, true, &target) == 0)
        return restrict_mounted(visit, target, error);
    switch (drive_target_open(visit->container->path, &target, error)) {
    case DRIVE_TARGET_OPEN:
        break;
    case DRIVE_TARGET_PROTECTED:
    case DRIVE_TARGET_TAKEN:
    case DRIVE_TARGET_UNREACHABLE:
        return STATUS_FAILED_PRECONDITION;
    default:
        return STATUS_INTERNAL;
    }
    if (move_mount(visit->tree, "", target, "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0)
        return STATUS_OK;
    (void)error_set_errno(error, -errno, "cannot mount on %s", visit->container->path);
    return STATUS_FAILED_PRECONDITION;
}

/* Opens the directory of the drive that the container gets. */
static enum status_code open_part(int volume, const struct drive_container *container,
                                  struct visit *visit, int *ret_part, struct error *error)
{
    cleanup(fd_closep) int part = -1;
    struct stat status, whole;
    int r = path_open_below(volume, container->sub_path[0] ? container->sub_path : ".", &part);

    if (r == 0 && (fstat(part, &status) < 0 || fstat(volume, &whole) < 0))
        r = -errno;
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot open sub_path %s in the drive",
                              container->sub_path);
        return STATUS_FAILED_PRECONDITION;
    }
    if (!S_ISDIR(status.st_mode))
        return refuse(error, STATUS_FAILED_PRECONDITION, "sub_path %s is no directory",
                      container->sub_path);
    if (status.st_dev != whole.st_dev)
        return refuse(error, STATUS_FAILED_PRECONDITION, "sub_path %s lies in another subvolume",
                      container->sub_path);
    visit->files = status.st_dev;
    visit->root = status.st_ino;
    *ret_part = take_fd(&part);
    return STATUS_OK;
}

static enum status_code clone_part(int part, const struct drive_container *container, int *ret_tree,
                                   struct error *error)
{
    struct mount_attr attributes = {.attr_set = attributes_of(container),
                                    .propagation = MS_PRIVATE};
    cleanup(fd_closep) int tree =
        open_tree(part, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) < 0) {
        (void)error_set_errno(error, -errno, "cannot clone the drive's mount");
        return STATUS_INTERNAL;
    }
    *ret_tree = take_fd(&tree);
    return STATUS_OK;
}

static enum status_code mount_part(const struct container_place *place, uint64_t deadline_ns,
                                   int volume, const struct drive_container *container,
                                   struct error *error)
{
    struct visit visit = {.container = container,
                          .tree = -1,
                          .proc = -1,
                          .deadline_ns = deadline_ns,
                          .function = mount_there};
    cleanup(fd_closep) int part = -1, tree = -1;
    enum status_code code = open_part(volume, container, &visit, &part, error);

    if (code == STATUS_OK)
        code = clone_part(part, container, &tree, error);
    visit.tree = tree;
    return code == STATUS_OK ? run_there(place, &visit, error) : code;
}

static enum status_code name_container(enum status_code code,
                                       const struct drive_container *container, struct error *error)
{
    if (code != STATUS_OK)
        (void)error_prefix(error, "container %s: ", container->container_id);
    return code;
}

static enum status_code find(const char *proc, const struct drive_container *container,
                             struct container_place *ret_place, bool *ret_is_found,
                             struct error *error)
{
    int r = container_find(proc, container->container_id, ret_place);

    *ret_is_found = r == CONTAINER_FOUND;
    if (r == CONTAINER_AMBIGUOUS)
        return refuse(error, STATUS_FAILED_PRECONDITION,
                      "processes of several containers are in a cgroup of its name");
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot look for its processes");
        return STATUS_INTERNAL;
    }
    return STATUS_OK;
}

enum status_code drive_enter(const struct drive_visits *visits, int volume,
                             const struct drive_container *container, struct error *error)
{
    struct container_place place = {.process = -1};
    bool is_found = false;
    enum status_code code = find(visits->proc, container, &place, &is_found, error);

    if (code == STATUS_OK && !is_found)
        code = refuse(error, STATUS_FAILED_PRECONDITION, "it does not run in this guest");
    if (code == STATUS_OK)
        code = mount_part(&place, visits->deadline_ns, volume, container, error);
    fd_close(place.process);
    return name_container(code, container, error);
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
    bool is_busy;
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
    is_busy = errno == EBUSY;
    (void)error_set_errno(error, -errno, "cannot unmount %s", visit->container->path);
    return is_busy ? STATUS_FAILED_PRECONDITION : STATUS_INTERNAL;
}

enum status_code drive_leave(const struct drive_visits *visits, dev_t files, dev_t mounts,
                             const struct drive_container *container, struct error *error)
{
    cleanup(fd_closep) int proc = open(visits->proc, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct visit visit = {.container = container,
                                .files = files,
                                .mounts = mounts,
                                .tree = -1,
                                .proc = proc,
                                .deadline_ns = visits->deadline_ns,
                                .function = unmount_there};
    struct container_place place = {.process = -1};
    bool is_found = false;
    enum status_code code = find(visits->proc, container, &place, &is_found, error);

    if (code == STATUS_OK && is_found)
        code = run_there(&place, &visit, error);
    fd_close(place.process);
    return name_container(code, container, error);
}
