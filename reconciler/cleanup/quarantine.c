/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine.c - a removal that can be undone.
 *
 * Writers of metadata (Kata's volume.Add: stat, mkdir, open with O_TRUNC, write, close) use no
 * lock. Unlinking the files under them would lose what they have just written, however late the
 * last check is. A rename loses nothing: a writer that comes by path afterwards finds nothing and
 * writes anew; a writer that has the file open goes on writing into the directory in the trash,
 * where the change is detected and the directory is put back. If the name has been made anew by
 * then, the new directory stays.
 *
 * RENAME_NOREPLACE is used in both directions, so that nothing that exists is ever overwritten.
 */
#include "reconciler/cleanup/cleanup_pass.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "observe/observe.h"

enum { ANCESTORS = 64 };

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* 0: not known. */
static uint64_t mount_of(int fd)
{
    struct statx x;

    return statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) == 0 && (x.stx_mask & STATX_MNT_ID)
               ? x.stx_mnt_id
               : 0;
}

/* Whether `directory` is the one at `place`, or lies in it. */
static int lies_in(int directory, const struct stat *place, bool *ret_inside)
{
    cleanup(fd_closep) int fd = openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat here, before = {0};

    *ret_inside = false;
    for (unsigned i = 0; i < ANCESTORS; i++) {
        int parent;

        if (fd < 0 || fstat(fd, &here) < 0)
            return -errno;
        *ret_inside = is_same(&here, place);
        if (*ret_inside || is_same(&here, &before))
            return 0;
        parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd_close(fd);
        fd = parent;
        before = here;
    }
    return 0;
}

static int check_outside(int root, int trash_fd, const char *trash, const char *const *watched,
                         struct error *error)
{
    for (; *watched; watched++) {
        cleanup(fd_closep) int fd = -1;
        struct stat place;
        bool inside = false;
        int r = path_open_directory_in_root(root, *watched, &fd);

        if (r == PATH_MISSING)
            continue;
        if (r == 0 && fstat(fd, &place) < 0)
            r = -errno;
        if (r == 0)
            r = lies_in(trash_fd, &place, &inside);
        if (r < 0)
            return error_set_errno(error, r, "%s", *watched);
        if (inside)
            return error_set(error, QUARANTINE_UNFIT,
                             "the trash %s lies in %s, which is watched: set "
                             "paths.kata_trash and paths.crust_trash to places beside it",
                             trash, *watched);
    }
    return QUARANTINE_READY;
}

static int check_trash(const struct quarantine *quarantine, const char *path, struct error *error)
{
    struct stat volumes, trash;

    if (fstat(quarantine->volumes, &volumes) < 0 || fstat(quarantine->trash, &trash) < 0)
        return error_set_errno(error, -errno, "%s", path);
    if (trash.st_uid != 0 && trash.st_uid != geteuid())
        return error_set(error, QUARANTINE_UNFIT, "the trash %s belongs to uid %u, not to root",
                         path, trash.st_uid);
    if (trash.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(error, QUARANTINE_UNFIT,
                         "the trash %s is writable by others than root: chmod 0700 it", path);
    if (trash.st_dev != volumes.st_dev ||
        mount_of(quarantine->trash) != mount_of(quarantine->volumes))
        return error_set(error, QUARANTINE_UNFIT,
                         "the trash %s is not on the same mount as the volumes, so nothing can be "
                         "renamed to it: set paths.kata_trash or paths.crust_trash to a place "
                         "beside them",
                         path);
    return QUARANTINE_READY;
}

int quarantine_open(int root, const char *volumes, const char *trash, const char *const *watched,
                    struct quarantine *ret_quarantine, struct error *error)
{
    cleanup(quarantine_done) struct quarantine quarantine = QUARANTINE_INIT;
    int r = path_open_directory_in_root(root, volumes, &quarantine.volumes);

    if (r < 0)
        return error_set_errno(error, r, "%s", volumes);
    r = path_make_directories(root, trash, 0700);
    if (r == 0)
        r = path_open_directory_in_root(root, trash, &quarantine.trash);
    if (r < 0)
        return error_set(error, QUARANTINE_UNFIT, "cannot use the trash %s: %s", trash,
                         strerror(-r));
    r = check_trash(&quarantine, trash, error);
    if (r == QUARANTINE_READY)
        r = check_outside(root, quarantine.trash, trash, watched, error);
    if (r != QUARANTINE_READY)
        return r;
    *ret_quarantine = quarantine;
    quarantine = (struct quarantine)QUARANTINE_INIT;
    return QUARANTINE_READY;
}

void quarantine_done(struct quarantine *quarantine)
{
    fd_close(quarantine->volumes);
    fd_close(quarantine->trash);
    *quarantine = (struct quarantine)QUARANTINE_INIT;
}

static const char *moved_name(const struct quarantine_item *item)
{
    return item->file ? item->file : item->key;
}

/* Opens the directory that the item is in when it is in its place. 0, -ENOENT, -errno. */
static int open_home(const struct quarantine *quarantine, const struct quarantine_item *item,
                     int *ret_fd)
{
    if (item->file)
        return path_open_directory_below(quarantine->volumes, item->key, ret_fd);
    *ret_fd = fcntl(quarantine->volumes, F_DUPFD_CLOEXEC, 0);
    return *ret_fd < 0 ? -errno : 0;
}

static int move(int from, int to, const char *name)
{
    return renameat2(from, name, to, name, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

void quarantine_tidy(const struct quarantine *quarantine, const struct quarantine_item *item)
{
    (void)unlinkat(quarantine->trash, item->name, AT_REMOVEDIR);
}

int quarantine_take(const struct quarantine *quarantine, const struct quarantine_item *item)
{
    cleanup(fd_closep) int home = -1, drawer = -1;
    int r = open_home(quarantine, item, &home);

    if (r < 0)
        return r == PATH_MISSING ? QUARANTINE_ABSENT : r;
    if (mkdirat(quarantine->trash, item->name, 0700) < 0 && errno != EEXIST)
        return -errno;
    r = path_open_directory_below(quarantine->trash, item->name, &drawer);
    if (r == 0)
        r = move(home, drawer, moved_name(item));
    if (r < 0)
        quarantine_tidy(quarantine, item);
    return r == PATH_MISSING ? QUARANTINE_ABSENT : r;
}

static int observe_in_trash(const struct quarantine *quarantine, const struct quarantine_item *item,
                            struct quarantine_state *state)
{
    cleanup(fd_closep) int drawer = -1, directory = -1;
    char fingerprint[SHA256_HEX_BYTES];
    int r = path_open_directory_below(quarantine->trash, item->name, &drawer);

    if (r < 0)
        return r == PATH_MISSING ? 0 : r;
    if (!item->file)
        r = path_open_directory_below(drawer, item->key, &directory);
    if (r == PATH_MISSING)
        return 0;
    if (path_is_no_directory(r))
        r = FINGERPRINT_UNFIT;
    else if (r == 0)
        r = item->file ? fingerprint_file(drawer, item->file, fingerprint)
                       : fingerprint_directory(directory, fingerprint, NULL);
    if (r < 0)
        return r;
    state->in_trash = r != FINGERPRINT_ABSENT;
    state->unchanged = r == FINGERPRINT_TAKEN && strcmp(fingerprint, item->fingerprint) == 0;
    return 0;
}

int quarantine_observe(const struct quarantine *quarantine, const struct quarantine_item *item,
                       struct quarantine_state *ret_state)
{
    cleanup(fd_closep) int home = -1;
    struct quarantine_state state = {0};
    struct stat st;
    int r = observe_in_trash(quarantine, item, &state);

    if (r == 0)
        r = open_home(quarantine, item, &home);
    if (r == 0)
        state.in_place = fstatat(home, moved_name(item), &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (r == 0 && !state.in_place && errno != ENOENT)
        r = -errno;
    if (r < 0 && r != PATH_MISSING)
        return r;
    *ret_state = state;
    return 0;
}

int quarantine_put_back(const struct quarantine *quarantine, const struct quarantine_item *item)
{
    cleanup(fd_closep) int home = -1, drawer = -1;
    int r = path_open_directory_below(quarantine->trash, item->name, &drawer);

    if (r < 0)
        return r == PATH_MISSING ? QUARANTINE_ABSENT : r;
    r = open_home(quarantine, item, &home);
    if (r < 0)
        return r == PATH_MISSING ? QUARANTINE_TAKEN : r;
    r = move(drawer, home, moved_name(item));
    if (r == PATH_IS_TAKEN)
        return QUARANTINE_TAKEN;
    if (r < 0)
        return r == PATH_MISSING ? QUARANTINE_ABSENT : r;
    quarantine_tidy(quarantine, item);
    return QUARANTINE_DONE;
}

int quarantine_delete(const struct quarantine *quarantine, const struct quarantine_item *item,
                      struct error *error)
{
    cleanup(fd_closep) int drawer = -1;
    int r = path_open_directory_below(quarantine->trash, item->name, &drawer);

    if (r == PATH_MISSING)
        return QUARANTINE_DONE;
    if (r < 0)
        return error_set_errno(error, r, "it can't be opened");
    r = removal_run(drawer, moved_name(item), item->file ? 0 : 1 /* level */, error);
    if (r == 0 && unlinkat(quarantine->trash, item->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = error_set_errno(error, -errno, "its directory can't be removed");
    return r;
}
