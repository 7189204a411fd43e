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
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
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

/* A mount that may hang. Its point is the hash of what this process' kernel calls it. A point that
 * is none of them and has the same hash is refused; nobody who lacks the key can bring that about.
 */
struct mounted {
    uint64_t id, point;
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
    uint64_t key[2];
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
    free(mounts->list);
    *mounts = (struct mounts){.distrusted = mounts->distrusted};
}

static bool mounts_add(struct mounts *mounts, struct mounted mounted)
{
    if (mounts->count == mounts->capacity) {
        size_t capacity = mounts->capacity ? mounts->capacity * 2 : 16;
        struct mounted *list =
            capacity > MOUNTS ? NULL : reallocarray(mounts->list, capacity, sizeof(*list));

        if (!list)
            return false;
        mounts->list = list;
        mounts->capacity = capacity;
    }
    mounts->list[mounts->count++] = mounted;
    return true;
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

/* Modulo 2^61 - 1, or that and a few more. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
    const uint64_t prime = (UINT64_C(1) << 61) - 1;
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t sum = (uint64_t)(product & prime) + (uint64_t)(product >> 61);

    return (sum & prime) + (sum >> 61);
}

/* A polynomial in the key modulo 2^61 - 1, whose coefficients are the name, four bytes each, and
 * its length: two names have the same in one of 2^50 keys. */
static uint64_t hash_point(const char *name, size_t length)
{
    uint64_t hash = guard.key[0] >> 3, key = guard.key[1] >> 3;

    for (size_t at = 0; at <= length; at += sizeof(uint32_t)) {
        uint32_t word = 0;

        memcpy(&word, name + at, length - at < sizeof(word) ? length - at : sizeof(word));
        hash = multiply(hash + word, key);
    }
    return hash + length;
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
static enum mount_list_want want_mount(const char *file_system)
{
    if (!path_guard_may_hang(file_system))
        return MOUNT_LIST_NOTHING;
    return strncmp(file_system, "fuse", strlen("fuse")) == 0 ? MOUNT_LIST_ID : MOUNT_LIST_NAME;
}

static int add_mount(void *userdata, uint64_t id, const char *point)
{
    struct mounted mounted = {.id = id, .point = point ? hash_point(point, strlen(point)) : 0};

    return (point && is_trusted(userdata, point)) || mounts_add(userdata, mounted) ? 0 : -ENOMEM;
}

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
    uint64_t hash = hash_point(point, strlen(point));

    for (size_t i = 0; i < mounts->count; i++)
        if (mounts->list[i].point == hash)
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
        r = mount_list_each(want_mount, add_mount, &guard.mounts);
        guard.mounts.unknown = r < 0;
    }
    if (r == MOUNT_LIST_UNKNOWN || r == MOUNT_LIST_FORBIDDEN)
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
    bool all;

    guard.mountinfo = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (guard.mountinfo < 0)
        return -errno;
    guard.mounts.distrusted = true;
    guard.started = getrandom(guard.key, sizeof(guard.key), 0) == sizeof(guard.key);
    read_own_mounts();
    all = guard.started;
    for (size_t i = 0; all && i < count; i++)
        all = trust(root, trusted[i]);
    if (!all) {
        int r = guard.started ? -ENOMEM : -EIO;

        path_guard_stop();
        return r;
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
