/* SPDX-License-Identifier: Apache-2.0 */
/* path.c - openat2(2), twice: strictly below a directory, or freely inside a root.
 *
 * Invariants: no descriptor from here was reached by leaving `directory` or `root`. Nothing is
 * opened for I/O before fstat(2) on an O_PATH descriptor has shown that it is a regular file, so no
 * device node is ever opened; sysfs is exempt, because it has none. The file that is read is the
 * one that was checked, because it is reopened through /proc/self/fd. glibc 2.36 has no wrapper for
 * openat2.
 *
 * The bytes are read once, up to a bound, and accepted only if size and times of the file are the
 * same before and after, because writers of the watched files write in place.
 */
#include "lib/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define BELOW   (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)
#define IN_ROOT (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

/* The kernel gives up with EAGAIN when a rename anywhere races with "..": an attempt is cheap. */
enum { OPEN_ATTEMPTS = 32 };

static int open_resolved(int directory, const char *path, int flags, uint64_t resolve, int *ret_fd)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = resolve};

    for (int attempt = 0;; attempt++) {
        long fd = syscall(SYS_openat2, directory, path, &how, sizeof(how));

        if (fd >= 0) {
            *ret_fd = (int)fd;
            return 0;
        }
        if ((errno != EAGAIN && errno != EINTR) || attempt == OPEN_ATTEMPTS)
            return -errno;
    }
}

static int open_in_root(int root, const char *path, int flags, int *ret_fd)
{
    int r = path_guard_check(root, path);

    return r < 0 ? r : open_resolved(root, path, flags, IN_ROOT, ret_fd);
}

int path_open_root(const char *root, int *ret_fd)
{
    int fd = open(root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int path_open_directory_below(int directory, const char *name, int *ret_fd)
{
    return open_resolved(directory, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, BELOW, ret_fd);
}

int path_open_below(int directory, const char *name, int *ret_fd)
{
    return open_resolved(directory, name, O_PATH | O_NOFOLLOW, BELOW, ret_fd);
}

int path_open_unlinked(int directory, const char *name, int *ret_fd)
{
    return open_resolved(directory, name, O_PATH, BELOW & ~(uint64_t)RESOLVE_NO_XDEV, ret_fd);
}

int path_open_within(int directory, const char *name, int *ret_fd)
{
    return open_resolved(directory, name, O_PATH, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS, ret_fd);
}

int path_open_on_mount(int directory, const char *name, int *ret_fd)
{
    return open_resolved(directory, name, O_PATH,
                         RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV, ret_fd);
}

int path_open_directory_in_root(int root, const char *path, int *ret_fd)
{
    return open_in_root(root, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, ret_fd);
}

int path_reopen(int handle, int flags, int *ret_fd)
{
    char link[32];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", handle);
    return open_resolved(AT_FDCWD, link, flags, 0, ret_fd);
}

int path_open_file_in_root(int root, const char *path, int *ret_fd)
{
    return open_in_root(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, ret_fd);
}

int path_open_in_root(int root, const char *path, int *ret_fd)
{
    return open_in_root(root, path, O_PATH, ret_fd);
}

int path_stat_in_root(int root, const char *path, struct stat *ret_stat)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_in_root(root, path, &fd);

    if (r < 0)
        return r;
    return fstat(fd, ret_stat) < 0 ? -errno : 0;
}

static struct timespec timespec_of(struct statx_timestamp stamp)
{
    return (struct timespec){.tv_sec = stamp.tv_sec, .tv_nsec = (long)stamp.tv_nsec};
}

int path_identify(int fd, struct path_identity *ret_identity)
{
    struct statx x;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &x) < 0)
        return -errno;
    *ret_identity = (struct path_identity){
        .device = makedev(x.stx_dev_major, x.stx_dev_minor),
        .inode = x.stx_ino,
        .owner = x.stx_uid,
        .mode = x.stx_mode,
        .links = x.stx_nlink,
        .size = (off_t)x.stx_size,
        .modified = timespec_of(x.stx_mtime),
        .changed = timespec_of(x.stx_ctime),
    };
    if (x.stx_mask & STATX_BTIME)
        ret_identity->born = timespec_of(x.stx_btime);
    return 0;
}

static bool timespec_equal(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool path_identity_equal(const struct path_identity *a, const struct path_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           timespec_equal(a->modified, b->modified) && timespec_equal(a->changed, b->changed) &&
           timespec_equal(a->born, b->born);
}

bool path_is_no_directory(int r)
{
    return r == PATH_BELOW_A_FILE || r == PATH_BEHIND_A_LINK || r == PATH_LEADS_OUT;
}

bool path_is_clean(const char *path)
{
    while (*path == '/') {
        size_t length = strcspn(++path, "/");

        if (length == 0 || (length == 1 && path[0] == '.') ||
            (length == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += length;
    }
    return true;
}

bool path_leads_nowhere(int r)
{
    return path_is_missing(r) || r == PATH_BEHIND_A_LINK || r == PATH_NAME_TOO_LONG;
}

bool path_is_missing(int r)
{
    return r == PATH_MISSING || r == PATH_BELOW_A_FILE;
}

/* What a failed openat2(2) means for a file that is to be read. */
static int classify_open(int r, const char *name, struct error *error)
{
    switch (r) {
    case PATH_MISSING:
        return error_set(error, PATH_ABSENT, "%s: no such file", name);
    case PATH_BEHIND_A_LINK:
        return error_set(error, PATH_UNSAFE, "%s: is or lies behind a symbolic link", name);
    case PATH_LEADS_OUT:
        return error_set(error, PATH_UNSAFE, "%s: leads out of its directory or mount", name);
    case PATH_BELOW_A_FILE:
        return error_set(error, PATH_UNSAFE, "%s: lies below a file", name);
    default:
        return error_set_errno(error, r, "%s: cannot open", name);
    }
}

/* The mode of a file counts for nothing in a directory that only its owner can enter. */
enum trust { TRUST_NONE, TRUST_DIRECTORY, TRUST_FILE };

/* Below a watched directory. The daemon's own user counts as root: it runs as root, tests need not.
 */
static int require_trusted(const struct path_identity *file, const char *name, enum trust trust,
                           struct error *error)
{
    if (file->links == 0)
        return error_set(error, PATH_ABSENT, "%s: was removed", name);
    if (file->links > 1)
        return error_set(error, PATH_UNSAFE, "%s: has several hard links", name);
    if (file->owner != 0 && file->owner != geteuid())
        return error_set(error, PATH_UNSAFE, "%s: belongs to uid %u", name, file->owner);
    if (trust == TRUST_NONE && file->mode & (S_IWGRP | S_IWOTH))
        return error_set(error, PATH_UNSAFE, "%s: is writable by others than its owner", name);
    return PATH_OK;
}

static int require_roots_directory(int directory, int length, const char *path, struct error *error)
{
    struct stat st;

    if (fstat(directory, &st) < 0)
        return error_set_errno(error, -errno, "%.*s: cannot stat", length, path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return error_set(error, PATH_UNSAFE, "%.*s: belongs to uid %u", length, path, st.st_uid);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(error, PATH_UNSAFE, "%.*s: is writable by others than its owner", length,
                         path);
    return PATH_OK;
}

int path_require_roots(int root, const char *path, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    const char *end = path;
    int r = path_guard_check(root, path);

    if (r < 0)
        return classify_open(r, path, error);
    r = PATH_OK;

    while (r == PATH_OK && *(end += strspn(end, "/"))) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(end, "/");
        int next;

        if (length >= sizeof(name))
            return error_set(error, PATH_UNSAFE, "%s: a name is too long", path);
        memcpy(name, end, length);
        name[length] = '\0';
        end += length;
        r = open_resolved(directory < 0 ? root : directory, name, O_PATH | O_DIRECTORY,
                          BELOW & ~(uint64_t)RESOLVE_NO_XDEV, &next);
        if (r < 0)
            return classify_open(r, path, error);
        fd_close(directory);
        directory = next;
        r = require_roots_directory(directory, (int)(end - path), path, error);
    }
    return r;
}

/* Reads the file and checks that nobody has written to it since it was checked. */
static int read_unchanged(int fd, const struct path_identity *before, const char *name,
                          struct buffer *ret_text, struct path_identity *ret_identity,
                          struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(ret_text->limit);
    struct path_identity after;
    int r = buffer_read_all(&text, fd);

    if (r == 0)
        r = path_identify(fd, &after);
    if (r == BUFFER_FULL)
        return error_set(error, PATH_TOO_BIG, "%s: more than %zu bytes", name, ret_text->limit);
    if (r < 0)
        return error_set_errno(error, r, "%s: cannot read", name);
    if (!path_identity_equal(before, &after))
        return error_set(error, PATH_CHANGING, "%s: changed while it was read", name);
    buffer_done(ret_text);
    *ret_text = text;
    text.data = NULL;
    if (ret_identity)
        *ret_identity = after;
    return PATH_OK;
}

static int read_handle(int handle, const char *name, enum trust trust, struct buffer *ret_text,
                       struct path_identity *ret_identity, struct error *error)
{
    cleanup(fd_closep) int fd = -1;
    struct path_identity before;
    int r = path_identify(handle, &before);

    if (r < 0)
        return error_set_errno(error, r, "%s: cannot stat", name);
    if (!S_ISREG(before.mode))
        return error_set(error, PATH_UNSAFE, "%s: not a regular file", name);
    r = trust == TRUST_FILE ? PATH_OK : require_trusted(&before, name, trust, error);
    if (r != PATH_OK)
        return r;
    r = path_reopen(handle, O_RDONLY | O_NONBLOCK | O_NOCTTY, &fd);
    if (r < 0)
        return error_set_errno(error, r, "%s: cannot open for reading", name);
    return read_unchanged(fd, &before, name, ret_text, ret_identity, error);
}

static int read_below(int directory, const char *name, enum trust trust, struct buffer *ret_text,
                      struct path_identity *ret_identity, struct error *error)
{
    cleanup(fd_closep) int handle = -1;
    int r = open_resolved(directory, name, O_PATH, BELOW, &handle);

    if (r < 0)
        return classify_open(r, name, error);
    return read_handle(handle, name, trust, ret_text, ret_identity, error);
}

int path_read_below(int directory, const char *name, struct buffer *ret_text,
                    struct path_identity *ret_identity, struct error *error)
{
    return read_below(directory, name, TRUST_NONE, ret_text, ret_identity, error);
}

int path_read_in_private(int directory, const char *name, struct buffer *ret_text,
                         struct error *error)
{
    struct stat st;
    bool is_private = fstat(directory, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) &&
                      !(st.st_mode & (S_IRWXG | S_IRWXO));

    return read_below(directory, name, is_private ? TRUST_DIRECTORY : TRUST_NONE, ret_text, NULL,
                      error);
}

int path_read_in_root(int root, const char *path, struct buffer *ret_text, struct error *error)
{
    cleanup(fd_closep) int handle = -1;
    int r = path_open_in_root(root, path, &handle);

    if (r < 0)
        return classify_open(r, path, error);
    return read_handle(handle, path, TRUST_FILE, ret_text, NULL, error);
}

int path_write(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        text += written;
        length -= (size_t)written;
    }
    return 0;
}

int path_write_below(int directory, const char *name, int flags, mode_t mode, const char *text,
                     size_t length)
{
    cleanup(fd_closep) int fd =
        openat(directory, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, mode);
    int r = fd < 0 ? -errno : path_write(fd, text, length);

    return r == 0 && fsync(fd) < 0 ? -errno : r;
}

/* Opens directory/name, making it first if it is not there. */
static int enter_or_make(int root, int directory, const char *prefix, const char *name, mode_t mode,
                         int *ret_fd)
{
    int r = open_in_root(root, prefix, O_PATH | O_DIRECTORY, ret_fd);

    if (r != PATH_MISSING)
        return r;
    if (mkdirat(directory, name, mode) < 0 && errno != EEXIST)
        return -errno;
    return open_in_root(root, prefix, O_PATH | O_DIRECTORY, ret_fd);
}

static int name_of_descriptor(int fd, char ret_path[static PATH_MAX])
{
    char link[32];
    ssize_t length;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, ret_path, PATH_MAX - 1);
    if (length < 0)
        return -errno;
    ret_path[length] = '\0';
    return 0;
}

/* The descriptor's path; -EXDEV if that is another file from here. */
static int path_of_descriptor(int fd, char ret_path[static PATH_MAX])
{
    struct stat there, here;
    int r = name_of_descriptor(fd, ret_path);

    if (r < 0)
        return r;
    if (fstat(fd, &there) < 0)
        return -errno;
    if (stat(ret_path, &here) < 0 || there.st_dev != here.st_dev || there.st_ino != here.st_ino)
        return -EXDEV;
    return 0;
}

static int join(const char *directory, const char *name, char ret_path[static PATH_MAX])
{
    int length =
        snprintf(ret_path, PATH_MAX, "%s%s", strcmp(directory, "/") == 0 ? "" : directory, name);

    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* The path of what is there, or of its directory and its name. */
static int resolve(int root, const char *path, char ret_path[static PATH_MAX])
{
    cleanup(fd_closep) int fd = -1;
    char directory[PATH_MAX], real[PATH_MAX];
    const char *name = strrchr(path, '/');
    int r = path_open_in_root(root, path, &fd);

    if (r == 0)
        return path_of_descriptor(fd, ret_path);
    if (r != PATH_MISSING || !name)
        return r;
    if (snprintf(directory, sizeof(directory), "%.*s/", (int)(name - path), path) >= PATH_MAX)
        return -ENAMETOOLONG;
    r = path_open_in_root(root, directory, &fd);
    if (r == 0)
        r = path_of_descriptor(fd, real);
    return r < 0 ? r : join(real, name, ret_path);
}

int path_resolve(int root, const char *root_name, const char *path, char ret_path[static PATH_MAX])
{
    int r = resolve(root, path, ret_path);

    return r == PATH_LEADS_OUT ? join(root_name, path, ret_path) : r;
}

int path_real_in_root(int root, const char *path, char ret_path[static PATH_MAX])
{
    cleanup(fd_closep) int fd = -1;
    char top[PATH_MAX], real[PATH_MAX];
    struct stat meant, found;
    size_t length;
    int r = path_open_in_root(root, path, &fd);

    if (r == 0)
        r = name_of_descriptor(root, top);
    if (r == 0)
        r = name_of_descriptor(fd, real);
    if (r < 0)
        return r;
    length = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(real, top, length) != 0 || real[length] != '/')
        return -EXDEV;
    (void)snprintf(ret_path, PATH_MAX, "%s", real + length);
    r = path_stat_in_root(root, ret_path, &found);
    if (r < 0 || fstat(fd, &meant) < 0)
        return r < 0 ? r : -errno;
    return meant.st_dev == found.st_dev && meant.st_ino == found.st_ino ? 0 : -EXDEV;
}

int path_make_directories(int root, const char *path, mode_t mode)
{
    cleanup(fd_closep) int directory = -1;
    char prefix[PATH_MAX];
    size_t length = strlen(path), start = 0;
    int r;

    if (length >= sizeof(prefix))
        return -ENAMETOOLONG;
    r = open_resolved(root, "/", O_PATH | O_DIRECTORY, IN_ROOT, &directory);
    while (r == 0 && start < length) {
        size_t end = start + strcspn(path + start, "/");
        int next = -1;

        if (end > start) {
            bool is_last = !path[end + strspn(path + end, "/")];

            memcpy(prefix, path, end);
            prefix[end] = '\0';
            r = enter_or_make(root, directory, prefix, prefix + start, is_last ? mode : 0755,
                              &next);
            if (r == 0) {
                fd_close(directory);
                directory = next;
            }
        }
        start = end + 1;
    }
    return r;
}
