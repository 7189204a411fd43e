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

/* ---- the place --------------------------------------------------------------------------- */

struct place {
    uint64_t mount;
    dev_t device;
    ino_t inode;
    uid_t owner;
    mode_t mode;
};

static int identify(int fd, struct place *ret_place)
{
    struct statx x;
    struct stat st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &x) < 0 ||
        fstat(fd, &st) < 0)
        return -errno;
    *ret_place = (struct place){.mount = x.stx_mask & STATX_MNT_ID ? x.stx_mnt_id : 0,
                                .device = st.st_dev,
                                .inode = st.st_ino,
                                .owner = st.st_uid,
                                .mode = st.st_mode};
    return 0;
}

static bool is_same(const struct place *a, const struct place *b)
{
    return a->device == b->device && a->inode == b->inode;
}

/* Whether `directory` is the one at `place`, or lies in it. */
static int lies_in(int directory, const struct place *place, bool *ret_inside)
{
    cleanup(fd_closep) int fd = openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct place here, before = {0};
    int r = fd < 0 ? -errno : identify(fd, &here);

    *ret_inside = false;
    for (unsigned i = 0; r == 0 && i < ANCESTORS && !is_same(&here, &before); i++) {
        int parent;

        *ret_inside = is_same(&here, place);
        if (*ret_inside)
            return 0;
        parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd_close(fd);
        fd = parent;
        before = here;
        r = fd < 0 ? -errno : identify(fd, &here);
    }
    return r;
}

static int check_outside(int root, int trash_fd, const char *trash, const char *const *watched,
                         struct error *error)
{
    for (; *watched; watched++) {
        cleanup(fd_closep) int fd = -1;
        struct place place;
        bool inside = false;
        int r = path_open_directory_in_root(root, *watched, &fd);

        if (r == PATH_MISSING)
            continue;
        if (r == 0)
            r = identify(fd, &place);
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

static int check_trash(const struct place *volumes, const struct place *trash, const char *path,
                       struct error *error)
{
    if (trash->owner != 0 && trash->owner != geteuid())
        return error_set(error, QUARANTINE_UNFIT, "the trash %s belongs to uid %u, not to root",
                         path, trash->owner);
    if (trash->mode & (S_IWGRP | S_IWOTH))
        return error_set(error, QUARANTINE_UNFIT,
                         "the trash %s is writable by others than root: chmod 0700 it", path);
    if (trash->device != volumes->device || trash->mount != volumes->mount)
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
    struct place of_volumes, of_trash;
    int r = path_open_directory_in_root(root, volumes, &quarantine.volumes);

    if (r == 0)
        r = identify(quarantine.volumes, &of_volumes);
    if (r < 0)
        return error_set_errno(error, r, "%s", volumes);
    r = path_make_directories(root, trash, 0700);
    if (r == 0)
        r = path_open_directory_in_root(root, trash, &quarantine.trash);
    if (r == 0)
        r = identify(quarantine.trash, &of_trash);
    if (r < 0)
        return error_set(error, QUARANTINE_UNFIT, "cannot use the trash %s: %s", trash,
                         strerror(-r));
    r = check_trash(&of_volumes, &of_trash, trash, error);
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

/* ---- moving ------------------------------------------------------------------------------ */

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

static int take_fingerprint(int drawer, const struct quarantine_item *item, char *ret_text)
{
    cleanup(fd_closep) int directory = -1;
    int r;

    if (item->file)
        return fingerprint_file(drawer, item->file, ret_text);
    r = path_open_directory_below(drawer, item->key, &directory);
    if (path_is_no_directory(r))
        return FINGERPRINT_UNFIT;
    if (r < 0)
        return r == PATH_MISSING ? FINGERPRINT_ABSENT : r;
    return fingerprint_directory(directory, ret_text, NULL);
}

static int observe_in_trash(const struct quarantine *quarantine, const struct quarantine_item *item,
                            struct quarantine_state *state)
{
    cleanup(fd_closep) int drawer = -1;
    char fingerprint[SHA256_HEX_BYTES];
    int r = path_open_directory_below(quarantine->trash, item->name, &drawer);

    if (r < 0)
        return r == PATH_MISSING ? 0 : r;
    r = take_fingerprint(drawer, item, fingerprint);
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

/* ---- deleting ---------------------------------------------------------------------------- */

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
