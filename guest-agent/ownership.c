/* SPDX-License-Identifier: Apache-2.0 */
/* ownership.c - a walk without recursion and without paths.
 *
 * The directories of the first levels stay open, each with its place in the listing. Below them one
 * slot serves: on the way down a level's identity and its offset are noted, and on the way up ".."
 * is opened and must be that very directory. If it is not, somebody has moved it, and the walk goes
 * on with the deepest directory that is still open.
 */
#include "guest-agent/ownership.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/text.h"

enum { HELD = 16, SHOWN_PATH_BYTES = 160 };

struct level {
    dev_t device;
    ino_t inode;
    off_t resume; /* of a level that is not held: its place in the listing */
};

struct walk {
    const struct ownership_request *request;
    struct ownership_result *result;
    struct directory_reader readers[HELD + 1]; /* the last is that of the level in progress */
    struct level *levels;                      /* owned */
    size_t depth, capacity;                    /* levels in progress; the root is the first */
    unsigned unreported;
    uint64_t reported_at;
    bool incomplete, cancelled;
};

/* ---- the rule ---- */

static mode_t mode_wanted(mode_t mode, bool read_only)
{
    if (S_ISLNK(mode))
        return 0;
    return (read_only ? 0440U : 0660U) | (S_ISDIR(mode) ? S_ISGID | 0110U : 0U);
}

static bool is_right(const struct ownership_request *request, gid_t group, mode_t mode)
{
    mode_t wanted = mode_wanted(mode, request->read_only);

    return group == request->group && (mode & wanted) == wanted;
}

/* chmod(2) of a descriptor that may be O_PATH: such a link leads to the very file. */
static int change_mode(int fd, mode_t mode)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(fd)];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return chmod(path, mode) < 0 ? -errno : 0;
}

/* The mode is the one from before the chown, which clears setuid and setgid. As in the kubelet, a
 * chown that fails does not prevent the chmod. 0 or -errno. */
static int change_entry(const struct ownership_request *request, int fd, const struct stat *status)
{
    mode_t wanted = mode_wanted(status->st_mode, request->read_only);
    bool changes_group = status->st_gid != request->group;
    int r = 0, s = 0;

    if (changes_group && fchownat(fd, "", (uid_t)-1, request->group, AT_EMPTY_PATH) < 0)
        r = -errno;
    if (wanted && (changes_group || (status->st_mode & wanted) != wanted))
        s = change_mode(fd, (status->st_mode & 07777) | wanted);
    return r < 0 ? r : s;
}

/* ---- what is counted ---- */

static struct directory_reader *reader_at(struct walk *walk, size_t depth)
{
    return &walk->readers[depth < HELD ? depth : HELD];
}

static struct directory_reader *reader_in_progress(struct walk *walk)
{
    return reader_at(walk, walk->depth - 1);
}

/* The path of an open directory as the kernel has it: only to be shown. */
static void describe(int fd, const char *name, char ret_text[static SHOWN_PATH_BYTES])
{
    char link[sizeof("/proc/self/fd/") + 3 * sizeof(fd)], path[PATH_MAX + NAME_MAX + 2];
    ssize_t length;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, PATH_MAX);
    if (length < 0)
        length = 0;
    (void)snprintf(path + length, sizeof(path) - (size_t)length, "%s%s",
                   *name && (length == 0 || path[length - 1] != '/') ? "/" : "", name);
    text_clean(path, strlen(path), ret_text, SHOWN_PATH_BYTES);
}

/* name: in the directory of fd; "" is the directory itself. */
static void count_failure(struct walk *walk, int fd, const char *name, const char *what, int r)
{
    struct ownership_result *result = walk->result;
    char path[SHOWN_PATH_BYTES];

    result->count.failed++;
    if (result->error_count == OWNERSHIP_ERRORS)
        return;
    describe(fd, name, path);
    (void)error_set_errno(&result->errors[result->error_count++], r, "cannot %s %s", what, path);
}

static void note_progress(struct walk *walk)
{
    const struct ownership_request *request = walk->request;
    unsigned entries = request->report_entries ? request->report_entries : OWNERSHIP_REPORT_ENTRIES;
    uint64_t now = clock_boottime();

    walk->unreported++;
    if (!request->report || (walk->unreported < entries &&
                             now < walk->reported_at + OWNERSHIP_REPORT_MS * NSEC_PER_MSEC))
        return;
    walk->unreported = 0;
    walk->reported_at = now;
    walk->cancelled = !request->report(&walk->result->count, request->userdata);
}

/* An open entry. parent and name are for the text alone. */
static void treat(struct walk *walk, int fd, int parent, const char *name)
{
    struct stat status;
    int r = fstat(fd, &status) < 0 ? -errno : 0;

    if (r == 0 && is_right(walk->request, status.st_gid, status.st_mode)) {
        walk->result->count.skipped++;
        return;
    }
    if (r == 0)
        r = change_entry(walk->request, fd, &status);
    if (r == 0)
        walk->result->count.changed++;
    else
        count_failure(walk, parent, name, "give the group to", r);
}

/* ---- the walk ---- */

/* Takes the descriptor, also when it fails. 0 or -errno. */
static int descend(struct walk *walk, int fd)
{
    struct directory_reader *reader;
    struct stat status;
    int r = 0;

    if (walk->depth == walk->capacity) {
        size_t capacity = walk->capacity ? 2 * walk->capacity : 64;
        struct level *levels = walk->depth < OWNERSHIP_DEPTH
                                   ? reallocarray(walk->levels, capacity, sizeof(*levels))
                                   : NULL;

        if (levels) {
            walk->levels = levels;
            walk->capacity = capacity;
        } else {
            r = walk->depth < OWNERSHIP_DEPTH ? -ENOMEM : -ENAMETOOLONG;
        }
    }
    if (r == 0 && fstat(fd, &status) < 0)
        r = -errno;
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    reader = reader_at(walk, walk->depth);
    if (walk->depth > HELD) { /* the one above is in the slot */
        walk->levels[walk->depth - 1].resume = reader->resume;
        fd_close(reader->fd);
    }
    *reader = (struct directory_reader){.fd = fd};
    walk->levels[walk->depth++] = (struct level){status.st_dev, status.st_ino, 0};
    return 0;
}

/* The directory above, by its "..". 0 or -errno. */
static int open_parent(int fd, const struct level *level, int *ret_fd)
{
    cleanup(fd_closep) int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;

    if (parent < 0 || fstat(parent, &status) < 0)
        return -errno;
    if (status.st_dev != level->device || status.st_ino != level->inode)
        return -ESTALE;
    if (lseek(parent, level->resume, SEEK_SET) < 0)
        return -errno;
    *ret_fd = take_fd(&parent);
    return 0;
}

/* Leaves the directory in progress, whose entries are done or given up. */
static void ascend(struct walk *walk)
{
    struct directory_reader *reader = reader_in_progress(walk);
    int fd = reader->fd, parent = -1, r;

    walk->depth--;
    reader->fd = -1;
    if (walk->depth <= HELD) { /* the one above is held */
        fd_close(fd);
        return;
    }
    r = open_parent(fd, &walk->levels[walk->depth - 1], &parent);
    if (r == 0) {
        *reader =
            (struct directory_reader){.fd = parent, .resume = walk->levels[walk->depth - 1].resume};
    } else {
        count_failure(walk, fd, "", "go back from", r);
        walk->incomplete = true;
        walk->depth = HELD;
    }
    fd_close(fd);
}

static void enter(struct walk *walk, const char *name)
{
    int parent = reader_in_progress(walk)->fd, fd = -1;
    int r = path_open_directory_below(parent, name, &fd);

    if (r == 0)
        r = descend(walk, fd);
    if (r < 0 && !path_is_missing(r)) {
        count_failure(walk, parent, name, "read", r);
        walk->incomplete = true;
    }
}

/* One name of the directory in progress. What is gone meanwhile is nobody's failure. */
static void visit(struct walk *walk, const char *name)
{
    cleanup(fd_closep) int fd = -1;
    int parent = reader_in_progress(walk)->fd, r;
    struct statx status;

    if (statx(parent, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
              STATX_TYPE | STATX_MODE | STATX_GID, &status) < 0) {
        if (!path_is_missing(-errno))
            count_failure(walk, parent, name, "examine", -errno);
        return;
    }
    if (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
        count_failure(walk, parent, name, "leave the file system at", PATH_LEADS_OUT);
        return;
    }
    if (S_ISDIR(status.stx_mode)) {
        enter(walk, name);
        return;
    }
    if (is_right(walk->request, status.stx_gid, status.stx_mode)) {
        walk->result->count.skipped++;
        return;
    }
    r = path_open_below(parent, name, &fd);
    if (r == 0)
        treat(walk, fd, parent, name);
    else if (!path_is_missing(r))
        count_failure(walk, parent, name, "open", r);
}

/* The directory in progress is listed to its end: it is treated itself, and left. */
static void finish_directory(struct walk *walk, int listing)
{
    int fd = reader_in_progress(walk)->fd;

    if (listing < 0 && !path_is_missing(listing)) {
        count_failure(walk, fd, "", "list", listing);
        walk->incomplete = true;
    } else if (listing == 0 && (walk->depth > 1 || !walk->incomplete)) {
        treat(walk, fd, fd, "");
    }
    ascend(walk);
}

static int walk_tree(struct walk *walk)
{
    int r, fd = openat(walk->request->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    r = descend(walk, fd);
    if (r < 0)
        return r;
    while (walk->depth > 0 && !walk->cancelled) {
        const char *name = directory_read_next(reader_in_progress(walk));

        if (name)
            visit(walk, name);
        else
            finish_directory(walk, -errno);
        note_progress(walk);
    }
    if (walk->cancelled && walk->depth > 0)
        return OWNERSHIP_CANCELLED;
    return walk->incomplete ? OWNERSHIP_INCOMPLETE : OWNERSHIP_APPLIED;
}

static void walk_done(struct walk *walk)
{
    for (size_t i = 0; i < array_length(walk->readers); i++)
        fd_close(walk->readers[i].fd);
    free(walk->levels);
}

int ownership_apply(const struct ownership_request *request, struct ownership_result *ret_result)
{
    struct walk walk = {.request = request, .result = ret_result, .reported_at = clock_boottime()};
    struct statvfs file_system;
    struct stat status;
    int r;

    *ret_result = (struct ownership_result){0};
    if (fstat(request->directory, &status) < 0 || fstatvfs(request->directory, &file_system) < 0)
        return -errno;
    if (request->policy == DRIVE_GROUP_ON_ROOT_MISMATCH &&
        is_right(request, status.st_gid, status.st_mode))
        return OWNERSHIP_LEFT_ALONE;
    if (file_system.f_flag & ST_RDONLY)
        return OWNERSHIP_READ_ONLY;
    for (size_t i = 0; i < array_length(walk.readers); i++)
        walk.readers[i].fd = -1;
    r = walk_tree(&walk);
    walk_done(&walk);
    return r;
}

enum status_code ownership_set_group(const struct ownership_request *request,
                                     struct drive_walk_count *ret_count, struct error *error)
{
    struct ownership_result result;
    int r = ownership_apply(request, &result);

    *ret_count = result.count;
    if (r == OWNERSHIP_APPLIED || r == OWNERSHIP_LEFT_ALONE)
        return STATUS_OK;
    if (r < 0) {
        (void)error_set_errno(error, r, "cannot set the group %u on the file system",
                              request->group);
        return STATUS_INTERNAL;
    }
    (void)error_set(error, STATUS_FAILED_PRECONDITION,
                    "the group %u was not set on the whole file system: %s", request->group,
                    result.error_count ? result.errors[0].text : "it is read-only");
    return STATUS_FAILED_PRECONDITION;
}
