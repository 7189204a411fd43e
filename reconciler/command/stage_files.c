/* SPDX-License-Identifier: Apache-2.0 */
/* stage_files.c - written aside, synced, renamed into place.
 *
 * There is one writer and it puts one thing at a time, so what comes has a fixed name in the
 * working directory; what goes keeps its own. A directory that comes into place is never renamed
 * onto another one (RENAME_NOREPLACE): if a driver has made it meanwhile, the file goes into that.
 *
 * Content is synced before its name is there, so that no crash of the machine leaves a name without
 * it. The names themselves are the watched root's, and one sync makes any number of them last; what
 * was taken away is removed after it, or a crash might leave a name without content after all. On a
 * tmpfs, where these roots are, all of that costs next to nothing and nothing outlives a crash.
 *
 * Everything is reached through descriptors of the two directories, and nothing follows a link.
 * What is removed is removed by lib/removal.h, and what that would refuse is not taken away either:
 * it stays whole in its place, where the owner of a mount inside it finds it.
 */
#include "reconciler/command/stage_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/removal.h"

#define MOUNT_INFO "mountInfo.json"
#define NEW        "new"

enum { LEVELS = 5, ATTEMPTS = 3 };

/* An outcome beside STAGE_*: somebody else changed the place meanwhile, try again. */
enum { OVERTAKEN = 100 };

struct directories {
    int volumes;
    int workshop;
};

static void directories_done(struct directories *directories)
{
    fd_close(directories->volumes);
    fd_close(directories->workshop);
}

/* ---- the working directory ---- */

static int open_or_make(int root, const char *path, int *ret_fd)
{
    int r = path_open_directory_in_root(root, path, ret_fd);

    if (r == PATH_MISSING)
        r = path_make_directories(root, path, 0700);
    else
        return r;
    return r < 0 ? r : path_open_directory_in_root(root, path, ret_fd);
}

static int open_place(const struct stage_place *place, struct directories *ret_directories,
                      struct error *error)
{
    const char *path = place->volumes;
    int r = open_or_make(place->root, path, &ret_directories->volumes);

    if (r == 0) {
        path = place->workshop;
        r = open_or_make(place->root, path, &ret_directories->workshop);
    }
    return r < 0 ? error_set_errno(error, r, "cannot work in %s", path) : 0;
}

int stage_files_sweep(const struct stage_place *place, struct error *error)
{
    cleanup(fd_closep) int workshop = -1;
    int r = path_open_directory_in_root(place->root, place->workshop, &workshop);

    if (r < 0)
        return r == PATH_MISSING ? 0 : error_set_errno(error, r, "cannot open it");
    return removal_empty(workshop, LEVELS, error);
}

/* ---- putting ---- */

static int write_file(int directory, const char *name, const char *text, size_t length)
{
    return path_write_below(directory, name, O_EXCL, 0600, text, length);
}

/* An empty file comes into being as a whole, wherever it is. */
static int write_beside(int directory, const struct stage_content *content)
{
    int r = content->beside ? write_file(directory, content->beside, "", 0) : 0;

    return r == PATH_IS_TAKEN ? 0 : r;
}

static int sync_directory(int fd)
{
    return fsync(fd) < 0 ? -errno : 0;
}

/* OVERTAKEN: there is a directory of this name by now, or the rest of another one in the workshop.
 */
static int put_directory(const struct directories *directories, const char *name,
                         const struct stage_content *content)
{
    cleanup(fd_closep) int fd = -1;
    int r;

    if (mkdirat(directories->workshop, NEW, 0700) < 0)
        return errno == EEXIST ? OVERTAKEN : -errno;
    fd = openat(directories->workshop, NEW, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = write_file(fd, MOUNT_INFO, content->text, content->length);
    if (r == 0)
        r = write_beside(fd, content);
    if (r == 0)
        r = sync_directory(fd);
    if (r < 0)
        return r;
    if (renameat2(directories->workshop, NEW, directories->volumes, name, RENAME_NOREPLACE) < 0)
        return errno == EEXIST ? OVERTAKEN : -errno;
    return 0;
}

static bool has_content(int directory, const struct stage_content *content)
{
    cleanup(buffer_done) struct buffer now = BUFFER_INIT(content->length + 1);
    struct error error;
    struct stat status;

    return path_read_below(directory, MOUNT_INFO, &now, NULL, &error) == PATH_OK &&
           now.length == content->length &&
           memcmp(buffer_text(&now), content->text, content->length) == 0 &&
           (!content->beside ||
            fstatat(directory, content->beside, &status, AT_SYMLINK_NOFOLLOW) == 0);
}

/* OVERTAKEN: the directory is gone by now, or as above. */
static int put_files(const struct directories *directories, int directory,
                     const struct stage_content *content)
{
    int r = write_file(directories->workshop, NEW, content->text, content->length);

    if (r == 0)
        r = write_beside(directory, content);
    if (r < 0)
        return r == PATH_MISSING || r == PATH_IS_TAKEN ? OVERTAKEN : r;
    if (renameat(directories->workshop, NEW, directory, MOUNT_INFO) < 0)
        return errno == ENOENT ? OVERTAKEN : -errno;
    return sync_directory(directory);
}

static int sync_file(int directory, const char *name)
{
    cleanup(fd_closep) int fd =
        openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* A repeated request renews the directory's times, because staleness also depends on its age. The
 * file and its name may not be synced yet: a driver need not sync them, and a daemon may have been
 * killed before it did. */
static int confirm(int directory)
{
    int r = sync_file(directory, MOUNT_INFO);

    if (r == 0 && futimens(directory, NULL) < 0)
        r = -errno;
    return r < 0 ? r : sync_directory(directory);
}

/* STAGE_*, OVERTAKEN or -errno. */
static int put_once(const struct directories *directories, const char *name,
                    const struct stage_content *content, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    int r = path_open_directory_below(directories->volumes, name, &directory);

    if (r == PATH_MISSING)
        r = put_directory(directories, name, content);
    else if (path_is_no_directory(r))
        return error_set(error, STAGE_IN_THE_WAY, "%s: not a directory", name);
    else if (r == 0 && has_content(directory, content)) {
        r = confirm(directory);
        if (r == 0)
            return STAGE_UNCHANGED;
    } else if (r == 0)
        r = put_files(directories, directory, content);
    if (r == PATH_IS_A_DIRECTORY)
        return error_set(error, STAGE_IN_THE_WAY, "%s/" MOUNT_INFO ": a directory", name);
    if (r < 0)
        return error_set_errno(error, r, "cannot write %s", name);
    return r == 0 ? STAGE_DONE : OVERTAKEN;
}

int stage_files_put(const struct stage_place *place, const char *name,
                    const struct stage_content *content, struct error *error)
{
    cleanup(directories_done) struct directories directories = {-1, -1};
    int r = open_place(place, &directories, error);

    for (unsigned i = 0; r == 0 && i < ATTEMPTS; i++) {
        int done = put_once(&directories, name, content, error);

        if (done == STAGE_DONE || done == STAGE_UNCHANGED)
            return done;
        r = removal_run(directories.workshop, NEW, LEVELS, done == OVERTAKEN ? error : NULL);
        if (done != OVERTAKEN)
            return done;
        if (r < 0)
            return error_prefix(error, "%s/", place->workshop), r;
    }
    return r < 0 ? r : error_set(error, -EBUSY, "%s comes and goes", name);
}

/* ---- taking ---- */

int stage_files_take(const struct stage_place *place, const char *name, struct error *error)
{
    cleanup(directories_done) struct directories directories = {-1, -1};
    int r = path_open_directory_in_root(place->root, place->volumes, &directories.volumes);

    if (r == PATH_MISSING ||
        (r == 0 && faccessat(directories.volumes, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
         errno == ENOENT))
        return STAGE_UNCHANGED;
    directories_done(&directories);
    directories = (struct directories){-1, -1};
    r = open_place(place, &directories, error);
    if (r < 0)
        return r;
    r = removal_run(directories.workshop, name, LEVELS, error);
    if (r < 0)
        return error_prefix(error, "%s/", place->workshop), r;
    r = removal_check(directories.volumes, name, LEVELS, error);
    if (r < 0)
        return error_prefix(error, "%s/", place->volumes), r;
    if (renameat(directories.volumes, name, directories.workshop, name) < 0)
        r = -errno;
    if (r == PATH_MISSING)
        return STAGE_UNCHANGED;
    return r < 0 ? error_set_errno(error, r, "cannot take %s away", name) : STAGE_DONE;
}

int stage_files_sync(const struct stage_place *place)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_directory_in_root(place->root, place->volumes, &fd);

    if (r < 0)
        return r == PATH_MISSING ? 0 : r;
    return sync_directory(fd);
}
