/* SPDX-License-Identifier: Apache-2.0 */
/* path_guard.c - see path.h.
 *
 * Every step of a walk is an openat2(2) that must stay on its mount. For a mount point it fails
 * with EXDEV before the mounted file system is asked anything; its name, as the kernel has it, and
 * then its number are looked up in the list of mounts that may hang. Links are read and followed
 * here. ".." leads to the directory that the walk came from, because the walked path has no links.
 *
 * poll(2) tells before each walk whether the table has changed. A mount that is made during the
 * walk is not seen. A table that has changed is read when a walk comes to a mount point that is not
 * on the way to a trusted name: users could change it without end, and few walks do. It is also
 * read where no mount was known and many walks would have been spared, unless it is large. Of one
 * that could not be read to its end every mount point is refused: a mount that may hang could be on
 * any of them.
 */
#include "lib/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/mount_table.h"

enum {
    LINKS = 40,  /* as the kernel's */
    STEPS = 512, /* of one walk: less than 2 ms of processor time */
    CROSSING_STEPS = 8,
    MOUNTS = 128 * 1024, /* more than a mount namespace may have: sysctl fs.mount-max is 100,000 */
    TRUSTED = 4096,
    WALKS = 32, /* take as long as reading most tables */
    /* Once the table was larger, the mounts are listed instead, which is cheaper then. Where the
     * kernel does not offer that, a larger one still is read, which takes it 2 ms a megabyte. */
    SMALL_TABLE_BYTES = 1024 * 1024,
    OWN_TABLE_BYTES = 16 * 1024 * 1024,
};

/* A mount that may hang. */
struct mounted {
    uint64_t id;
    char *point; /* NULL: it is known by its number alone */
};

struct mounts {
    struct mounted *list;
    size_t count, capacity;
    bool distrusted; /* on trusted names too: other processes may mount there in their namespace */
    bool unknown;    /* the table could not be read to its end: any mount may hang */
};

/* Names of the administrator's directories and files. */
struct trusted {
    char **names;
    size_t count;
};

static struct {
    int mountinfo; /* open while guarding */
    bool started, lists;
    struct mounts mounts;
    bool is_outdated; /* they have changed */
    unsigned walks;   /* since then, that only a current list could have spared */
    struct trusted trusted;
} guard = {.mountinfo = -1};

/* ---- which mounts -------------------------------------------------------------------------- */

bool path_guard_may_hang(const char *file_system)
{
    static const char *const types[] = {
        "9p",   "afs",  "autofs", "beegfs", "ceph", "cifs",  "coda",     "fuse", "fuseblk",
        "gfs2", "gpfs", "lustre", "nfs",    "nfs4", "ocfs2", "orangefs", "smb3",
    };

    for (size_t i = 0; i < array_length(types); i++)
        if (strcmp(file_system, types[i]) == 0)
            return true;
    return strncmp(file_system, "fuse.", strlen("fuse.")) == 0;
}

static void mounts_done(struct mounts *mounts)
{
    for (size_t i = 0; i < mounts->count; i++)
        free(mounts->list[i].point);
    free(mounts->list);
    *mounts = (struct mounts){.distrusted = mounts->distrusted};
}

static bool lies_below(const char *path, const char *directory)
{
    size_t length = strcmp(directory, "/") == 0 ? 0 : strlen(directory);

    return strncmp(path, directory, length) == 0 && (!path[length] || path[length] == '/');
}

static bool is_trusted(const struct mounts *mounts, const char *point)
{
    for (size_t i = 0; !mounts->distrusted && i < guard.trusted.count; i++)
        if (lies_below(guard.trusted.names[i], point))
            return true;
    return false;
}

/* Of several mounts on one point the last is on top, but the others may become visible again. */
static int add_mount(struct mounts *mounts, uint64_t id, const char *point)
{
    if (point && is_trusted(mounts, point))
        return 0;
    if (mounts->count == mounts->capacity) {
        size_t capacity = mounts->capacity ? mounts->capacity * 2 : 16;
        struct mounted *list =
            capacity > MOUNTS ? NULL : reallocarray(mounts->list, capacity, sizeof(*list));

        if (!list)
            return -ENOMEM;
        mounts->list = list;
        mounts->capacity = capacity;
    }
    mounts->list[mounts->count] = (struct mounted){id, point ? strdup(point) : NULL};
    if (point && !mounts->list[mounts->count].point)
        return -ENOMEM;
    mounts->count++;
    return 0;
}

static bool trusted_add(struct trusted *trusted, const char *name)
{
    char **longer = trusted->count == TRUSTED
                        ? NULL
                        : reallocarray(trusted->names, trusted->count + 1, sizeof(*longer));

    if (!longer)
        return false;
    trusted->names = longer;
    longer[trusted->count] = strdup(name);
    return longer[trusted->count] && ++trusted->count;
}

/* ---- the list of the mounts ---------------------------------------------------------------- */

/* By listmount(2) and statmount(2), which Linux has since 6.8. A mount costs 2 us if its name is
 * not wanted, however long that is.
 *
 * Source: include/uapi/linux/mount.h, which older headers lack. The numbers of the system calls are
 * the same on all architectures that crustd is built for.
 */

#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif

#define ROOT      UINT64_MAX     /* LSMT_ROOT */
#define OF_MOUNT  UINT64_C(0x2)  /* STATMOUNT_MNT_BASIC */
#define OF_POINT  UINT64_C(0x10) /* STATMOUNT_MNT_POINT */
#define OF_SYSTEM UINT64_C(0x20) /* STATMOUNT_FS_TYPE */

enum { BATCH = 256 };

/* What the two fail with. */
enum list_failure {
    LIST_UNKNOWN = -ENOSYS,  /* to the kernel */
    LIST_FORBIDDEN = -EPERM, /* by a filter of system calls */
    STATUS_GONE = -ENOENT,
    STATUS_TOO_LONG = -EOVERFLOW,      /* for `text` */
    STATUS_TOO_LONG_FOR_ALL = -EAGAIN, /* for the kernel's own buffer */
};

/* Processor time. A name of 3.5 KiB takes 40 us; others' mounts are renamed to any length. */
static const uint64_t LISTING_NS = 100 * NSEC_PER_MSEC;

struct request {
    uint32_t size, spare;
    uint64_t mount, param;
};

/* struct statmount. Strings are offsets into the text. */
struct status {
    uint32_t size, options;
    uint64_t mask;
    uint32_t super_block[2];
    uint64_t magic;
    uint32_t flags, file_system;
    uint64_t unique_id, unique_parent;
    uint32_t id, parent; /* as mountinfo has them */
    uint64_t attributes[5];
    uint32_t root, point;
    uint64_t spare[50];
    char text[PATH_MAX + NAME_MAX + 64];
};

_Static_assert(offsetof(struct status, text) == 512, "struct statmount of the kernel");

/* The kernel ends each string that it gives with a NUL. */
static const char *text_of(const struct status *status, uint64_t what, uint32_t offset)
{
    return (status->mask & what) && offset < sizeof(status->text) ? status->text + offset : "";
}

static int read_status(uint64_t mount, uint64_t what, struct status *ret_status)
{
    const struct request request = {.size = sizeof(request), .mount = mount, .param = what};

    return syscall(SYS_statmount, &request, ret_status, sizeof(*ret_status), 0) < 0 ? -errno : 0;
}

/* A mount may be gone by now. That FUSE, which users may mount, needs no name says
 * is_root_guarded(). */
static int list_mount(uint64_t mount, uint64_t until_ns)
{
    struct status status;
    const char *file_system, *point;
    uint64_t id;
    int r = read_status(mount, OF_MOUNT | OF_SYSTEM, &status);

    if (r < 0)
        return r == STATUS_GONE ? 0 : r;
    id = status.id;
    file_system = text_of(&status, OF_SYSTEM, status.file_system);
    if (!path_guard_may_hang(file_system))
        return 0;
    if (strncmp(file_system, "fuse", strlen("fuse")) == 0)
        return add_mount(&guard.mounts, id, NULL);
    if (clock_processor() > until_ns)
        return -ETIME;
    r = read_status(mount, OF_POINT, &status);
    if (r == STATUS_TOO_LONG || r == STATUS_TOO_LONG_FOR_ALL) /* for any path */
        return add_mount(&guard.mounts, id, NULL);
    if (r < 0)
        return r == STATUS_GONE ? 0 : r;
    point = text_of(&status, OF_POINT, status.point);
    /* One that the table would not list has no name. */
    return point[0] ? add_mount(&guard.mounts, id, point) : 0;
}

static int list_own_mounts(void)
{
    const uint64_t until_ns = clock_processor() + LISTING_NS;
    struct request request = {.size = sizeof(request), .mount = ROOT};
    uint64_t mounts[BATCH];

    for (unsigned batch = 0; batch < MOUNTS / BATCH; batch++) {
        long count = syscall(SYS_listmount, &request, mounts, BATCH, 0);

        if (count <= 0)
            return count < 0 ? -errno : 0;
        for (long i = 0; i < count; i++) {
            int r = list_mount(mounts[i], until_ns);

            if (r < 0)
                return r;
        }
        request.param = mounts[count - 1];
    }
    return BUFFER_FULL;
}

/* ---- the table of the mounts --------------------------------------------------------------- */

static int read_line(void *userdata, char *line)
{
    struct mount_entry mount;

    if (!mount_table_split(line, &mount) || !path_guard_may_hang(mount.file_system))
        return 0;
    mount_table_unescape(mount.mount_point);
    return add_mount(userdata, mount.id, mount.mount_point);
}

static bool mounts_have_point(const struct mounts *mounts, const char *point)
{
    for (size_t i = 0; i < mounts->count; i++)
        if (mounts->list[i].point && strcmp(mounts->list[i].point, point) == 0)
            return true;
    return mounts->unknown;
}

static int read_table(int fd, size_t most, struct mounts *ret_mounts)
{
    int r;

    mounts_done(ret_mounts);
    r = mount_table_each_line(fd, most, read_line, ret_mounts);
    ret_mounts->unknown = r < 0;
    return r;
}

static void read_own_mounts(void)
{
    int r = 0;

    guard.is_outdated = false;
    guard.walks = 0;
    if (!guard.lists)
        guard.lists = read_table(guard.mountinfo, SMALL_TABLE_BYTES, &guard.mounts) == BUFFER_FULL;
    if (guard.lists) {
        mounts_done(&guard.mounts);
        r = list_own_mounts();
        guard.mounts.unknown = r < 0;
    }
    if (r == LIST_UNKNOWN || r == LIST_FORBIDDEN)
        (void)read_table(guard.mountinfo, OWN_TABLE_BYTES, &guard.mounts);
}

/* ---- a walk -------------------------------------------------------------------------------- */

struct walk {
    const struct mounts *mounts;
    bool is_own;     /* these are this process' own */
    const char *top; /* the name of the root that the mount points are named from; "" is "/" */
    int root;
    int directory;     /* where the walk is: `root` itself, or owned */
    char at[PATH_MAX]; /* its name below the root, without links */
    char rest[2 * PATH_MAX];
    unsigned links, steps;
};

enum step { STEP_ON, STEP_END, STEP_MAY_HANG };

static int open_on(int directory, const char *name, uint64_t resolve, int *ret_fd)
{
    struct open_how how = {
        .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_NO_MAGICLINKS | resolve,
    };
    long fd = syscall(SYS_openat2, directory, name, &how, sizeof(how));

    if (fd < 0)
        return -errno;
    *ret_fd = (int)fd;
    return 0;
}

static void walk_to(struct walk *walk, int directory)
{
    if (walk->directory != walk->root)
        fd_close(walk->directory);
    walk->directory = directory;
}

static void walk_to_root(struct walk *walk)
{
    walk_to(walk, walk->root);
    walk->at[0] = '\0';
}

/* Only at the root of a mount the directory above it has to be looked up by its name. Each name of
 * that counts as a step, so that a long name does not make the walk a long one. */
static enum step walk_up(struct walk *walk)
{
    char *last = strrchr(walk->at, '/');
    int fd = -1, r;

    if (!last || last == walk->at) {
        walk_to_root(walk);
        return STEP_ON;
    }
    *last = '\0';
    r = open_on(walk->directory, "..", RESOLVE_NO_XDEV, &fd);
    if (r == PATH_LEADS_OUT) {
        for (const char *at = walk->at; *at; at++)
            walk->steps += *at == '/';
        r = open_on(walk->root, walk->at + 1, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, &fd);
    }
    if (r < 0)
        return STEP_END;
    walk_to(walk, fd);
    return STEP_ON;
}

/* The name that a link of /proc has for a directory, "" for "/". False: it has none, or one that is
 * too long for a path. */
static bool read_name(const char *link, char ret_name[static PATH_MAX])
{
    ssize_t length = readlink(link, ret_name, PATH_MAX);

    if (length <= 0 || length == PATH_MAX)
        return false;
    ret_name[length - (ret_name[length - 1] == '/')] = '\0';
    return true;
}

static bool name_of_fd(int fd, char ret_name[static PATH_MAX])
{
    char link[32];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return read_name(link, ret_name);
}

/* Whether a descriptor of a mount's root is of a mount that may hang. The names in the list are
 * those of when a mount was last made or removed, but a directory above a mount may be renamed by
 * its owner, and no event tells of that. To open the root of FUSE with O_PATH asks nobody, and
 * neither does this statx(2), so that FUSE, which users may mount, needs no name at all. Others may
 * be asked; but only root mounts them, in a directory which nobody else had better rename. Linux
 * before 5.8 does not tell the number; it does not list mounts without their names either. */
static bool is_root_guarded(const struct walk *walk, int fd)
{
    struct statx x;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &x) < 0)
        return true;
    for (size_t i = 0; (x.stx_mask & STATX_MNT_ID) && i < walk->mounts->count; i++)
        if (walk->mounts->list[i].id == x.stx_mnt_id)
            return true;
    return false;
}

static enum step cross(struct walk *walk, const char *name, int *ret_fd)
{
    cleanup(fd_closep) int fd = -1;
    char directory[PATH_MAX], point[PATH_MAX + NAME_MAX + 2];
    bool trusted;

    walk->steps += CROSSING_STEPS;
    if (!name_of_fd(walk->directory, directory) || !lies_below(directory, walk->top))
        return STEP_MAY_HANG; /* what the list calls the mount point cannot be told */
    (void)snprintf(point, sizeof(point), "%s/%s", directory + strlen(walk->top), name);
    trusted = is_trusted(walk->mounts, point);
    if (!trusted && walk->is_own && guard.is_outdated)
        read_own_mounts();
    if (!trusted && mounts_have_point(walk->mounts, point))
        return STEP_MAY_HANG;
    if (open_on(walk->directory, name, 0, &fd) < 0)
        return STEP_END;
    if (!trusted && is_root_guarded(walk, fd))
        return STEP_MAY_HANG;
    *ret_fd = take_fd(&fd);
    return STEP_ON;
}

/* Continues with the link's target, followed by the rest of the path. A path that is longer than
 * the kernel takes cannot be opened, so there is nothing to guard. */
static enum step follow(struct walk *walk, const char *target)
{
    char rest[sizeof(walk->rest)];

    if (++walk->links > LINKS ||
        snprintf(rest, sizeof(rest), "%s/%s", target, walk->rest) >= (int)sizeof(rest))
        return STEP_END;
    memcpy(walk->rest, rest, sizeof(rest));
    if (target[0] == '/')
        walk_to_root(walk);
    return STEP_ON;
}

static enum step take_step(struct walk *walk, const char *name)
{
    char target[PATH_MAX];
    enum step step;
    size_t length = strlen(walk->at);
    ssize_t count;
    int fd = -1, r;

    if (strcmp(name, ".") == 0)
        return STEP_ON;
    if (strcmp(name, "..") == 0)
        return walk_up(walk);
    r = open_on(walk->directory, name, RESOLVE_NO_XDEV, &fd);
    step = r < 0 ? STEP_END : STEP_ON;
    if (r == PATH_LEADS_OUT)
        step = cross(walk, name, &fd);
    if (step != STEP_ON)
        return step;
    count = readlinkat(fd, "", target, sizeof(target));
    if (count >= 0) {
        fd_close(fd);
        if (count == sizeof(target))
            return STEP_END;
        target[count] = '\0';
        return follow(walk, target);
    }
    walk_to(walk, fd);
    return snprintf(walk->at + length, sizeof(walk->at) - length, "/%s", name) <
                   (int)(sizeof(walk->at) - length)
               ? STEP_ON
               : STEP_END;
}

/* Takes the next name from the rest. False: there is none, or it is too long for one. */
static bool next_name(struct walk *walk, char ret_name[static NAME_MAX + 1])
{
    size_t slashes = strspn(walk->rest, "/"), length = strcspn(walk->rest + slashes, "/");

    if (!length || length > NAME_MAX)
        return false;
    memcpy(ret_name, walk->rest + slashes, length);
    ret_name[length] = '\0';
    memmove(walk->rest, walk->rest + slashes + length, strlen(walk->rest + slashes + length) + 1);
    return true;
}

static int take_walk(struct walk *walk, const char *path)
{
    enum step step = STEP_ON;
    char name[NAME_MAX + 1];

    if (strlen(path) >= PATH_MAX)
        return 0;
    (void)snprintf(walk->rest, sizeof(walk->rest), "%s", path);
    while (step == STEP_ON && next_name(walk, name))
        step = walk->steps++ < STEPS ? take_step(walk, name) : STEP_MAY_HANG;
    walk_to_root(walk);
    return step == STEP_MAY_HANG ? PATH_MAY_HANG : 0;
}

static bool may_any_hang(const struct mounts *mounts)
{
    return mounts->count || mounts->unknown;
}

static int take_own_walk(int root, const char *path)
{
    struct walk walk = {
        .mounts = &guard.mounts, .is_own = true, .top = "", .root = root, .directory = root};

    return take_walk(&walk, path);
}

int path_guard_check(int root, const char *path)
{
    struct pollfd changed = {.fd = guard.mountinfo, .events = POLLPRI};

    if (!guard.started)
        return 0;
    if (poll(&changed, 1, 0) > 0) /* the kernel tells of a change once */
        guard.is_outdated = true;
    if (guard.is_outdated && !may_any_hang(&guard.mounts) && !guard.lists && ++guard.walks > WALKS)
        read_own_mounts();
    return may_any_hang(&guard.mounts) || guard.is_outdated ? take_own_walk(root, path) : 0;
}

/* ---- other processes ----------------------------------------------------------------------- */

static bool has_own_mounts(pid_t pid)
{
    struct stat own, other;
    char name[48];

    (void)snprintf(name, sizeof(name), "/proc/%d/ns/mnt", (int)pid);
    return stat("/proc/self/ns/mnt", &own) < 0 || stat(name, &other) < 0 ||
           own.st_ino != other.st_ino || own.st_dev != other.st_dev;
}

/* Its table names mount points from its own root, which may be another than its namespace's. */
int path_guard_check_process(pid_t pid, int root, const char *path)
{
    cleanup(mounts_done) struct mounts mounts = {.distrusted = true};
    cleanup(fd_closep) int fd = -1;
    char name[48], top[PATH_MAX];
    struct walk walk = {.mounts = &mounts, .top = top, .root = root, .directory = root};

    if (!has_own_mounts(pid))
        return 0; /* path.h checks it */
    (void)snprintf(name, sizeof(name), "/proc/%d/mountinfo", (int)pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)snprintf(name, sizeof(name), "/proc/%d/root", (int)pid);
    if (!read_name(name, top))
        return PATH_MAY_HANG;
    (void)read_table(fd, MOUNT_TABLE_BYTES, &mounts);
    return may_any_hang(&mounts) ? take_walk(&walk, path) : 0;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Trusts the name and, if links lead elsewhere, the place that they lead to, unless that may
 * hang. */
static bool trust(int root, const char *path)
{
    cleanup(fd_closep) int fd = -1;
    char name[2 * PATH_MAX], place[PATH_MAX];

    if (!name_of_fd(root, place))
        return false;
    (void)snprintf(name, sizeof(name), "%s/%s", place, path + strspn(path, "/"));
    if (!trusted_add(&guard.trusted, name))
        return false;
    if (path_open_in_root(root, path, &fd) < 0)
        return true;
    return name_of_fd(fd, place) && trusted_add(&guard.trusted, place);
}

/* Guards at once and trusts no name until all are resolved, because resolving them must not enter a
 * file system that may hang. */
int path_guard_start(int root, const char *const *trusted, size_t count)
{
    guard.mountinfo = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (guard.mountinfo < 0)
        return -errno;
    guard.mounts.distrusted = true;
    guard.started = true;
    read_own_mounts();
    for (size_t i = 0; i < count; i++)
        if (!trust(root, trusted[i])) {
            path_guard_stop();
            return -ENOMEM;
        }
    guard.mounts.distrusted = false;
    read_own_mounts();
    return 0;
}

void path_guard_stop(void)
{
    mounts_done(&guard.mounts);
    for (size_t i = 0; i < guard.trusted.count; i++)
        free(guard.trusted.names[i]);
    free(guard.trusted.names);
    guard.trusted = (struct trusted){0};
    fd_close(take_fd(&guard.mountinfo));
    guard.started = guard.lists = guard.is_outdated = false;
}
