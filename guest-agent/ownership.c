/* SPDX-License-Identifier: Apache-2.0 */
/* ownership.c - a walk without recursion and without paths.
 *
 * The directories of the first levels stay open, each with its place in the listing. Below them one
 * slot serves: on the way down a level's identity and its offset are noted, and on the way up ".."
 * is opened and must be that very directory. If it is not, somebody has moved it, and the walk goes
 * on with the deepest directory that is still open.
 */
#include "guest-agent/guest_drive.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/text.h"

enum { HELD = 16, SHOWN_PATH_BYTES = 160, FD_PATH_BYTES = 32 };

struct level {
    dev_t device;
    ino_t inode;
    off_t resume; /* of a level that is not held: its place in the listing */
};

struct walk {
    gid_t group;
    struct drive_walk_count *count;
    struct error first;                        /* failure; "" so far none */
    struct directory_reader readers[HELD + 1]; /* the last is that of the level in progress */
    struct level *levels;                      /* owned */
    size_t depth, capacity;                    /* levels in progress; the root is the first */
    bool incomplete;
};

/* ---- the rule ---- */

static mode_t mode_wanted(mode_t mode)
{
    return S_ISLNK(mode) ? 0 : 0660U | (S_ISDIR(mode) ? S_ISGID | 0110U : 0U);
}

static bool is_right(gid_t wanted_group, gid_t group, mode_t mode)
{
    mode_t wanted = mode_wanted(mode);

    return group == wanted_group && (mode & wanted) == wanted;
}

/* The mode is the one from before the chown, which clears setuid and setgid. As in the kubelet, a
 * chown that fails does not prevent the chmod. 0 or -errno. */
static int change_entry(gid_t group, int fd, const struct stat *status)
{
    mode_t wanted = mode_wanted(status->st_mode);
    bool changes_group = status->st_gid != group;
    char path[FD_PATH_BYTES];
    int r = 0;

    if (changes_group && fchownat(fd, "", (uid_t)-1, group, AT_EMPTY_PATH) < 0)
        r = -errno;
    if (!wanted || (!changes_group && (status->st_mode & wanted) == wanted))
        return r;
    /* The descriptor may be O_PATH: this link leads to the very file. */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return chmod(path, (status->st_mode & 07777) | wanted) < 0 && r == 0 ? -errno : r;
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

/* name: in the directory of fd; "" is the directory itself. The text of the first failure has the
 * path that the kernel has for it: only to be shown. */
static void count_failure(struct walk *walk, int fd, const char *name, const char *what, int r)
{
    char link[FD_PATH_BYTES], path[PATH_MAX + NAME_MAX + 2], shown[SHOWN_PATH_BYTES];
    ssize_t length;

    if (walk->count->failed++)
        return;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, PATH_MAX);
    if (length < 0)
        length = 0;
    (void)snprintf(path + length, sizeof(path) - (size_t)length, "%s%s",
                   *name && (length == 0 || path[length - 1] != '/') ? "/" : "", name);
    text_clean(path, strlen(path), shown, sizeof(shown));
    (void)error_set_errno(&walk->first, r, "cannot %s %s", what, shown);
}

/* An open entry. parent and name are for the text alone. */
static void treat(struct walk *walk, int fd, int parent, const char *name)
{
    struct stat status;
    int r = fstat(fd, &status) < 0 ? -errno : 0;

    if (r == 0 && is_right(walk->group, status.st_gid, status.st_mode)) {
        walk->count->skipped++;
        return;
    }
    if (r == 0)
        r = change_entry(walk->group, fd, &status);
    if (r == 0)
        walk->count->changed++;
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
    if (is_right(walk->group, status.stx_gid, status.stx_mode)) {
        walk->count->skipped++;
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

/* 0 or -errno. */
static int walk_tree(struct walk *walk, int directory)
{
    int r, fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    r = descend(walk, fd);
    if (r < 0)
        return r;
    while (walk->depth > 0) {
        const char *name = directory_read_next(reader_in_progress(walk));

        if (name)
            visit(walk, name);
        else
            finish_directory(walk, -errno);
    }
    return 0;
}

enum status_code ownership_set_group(int directory, gid_t group, enum drive_group_policy policy,
                                     struct drive_walk_count *count, struct error *error)
{
    struct walk walk = {.group = group, .count = count};
    struct statvfs file_system;
    struct stat status;
    int r = 0;

    *count = (struct drive_walk_count){0};
    if (fstat(directory, &status) < 0 || fstatvfs(directory, &file_system) < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, -errno,
                                  "cannot set the group %u on the file system", group);
    if (policy == DRIVE_GROUP_ON_ROOT_MISMATCH && is_right(group, status.st_gid, status.st_mode))
        return STATUS_OK;
    if (file_system.f_flag & ST_RDONLY)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "the group %u was not set on the whole file system: it is read-only",
                            group);
    for (size_t i = 0; i < array_length(walk.readers); i++)
        walk.readers[i].fd = -1;
    r = walk_tree(&walk, directory);
    for (size_t i = 0; i < array_length(walk.readers); i++)
        fd_close(walk.readers[i].fd);
    free(walk.levels);
    if (r < 0)
        return drive_refuse_errno(error, STATUS_INTERNAL, r,
                                  "cannot set the group %u on the file system", group);
    return walk.incomplete ? drive_refuse(error, STATUS_FAILED_PRECONDITION,
                                          "the group %u was not set on the whole file system: %s",
                                          group, walk.first.text)
                           : STATUS_OK;
}
