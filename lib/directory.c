/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c - see directory.h. */
#include "lib/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"

/* fd becomes the listing's, or is closed. */
static int list(int fd, DIR **ret_names)
{
    DIR *names = fdopendir(fd);

    if (!names) {
        int r = -errno;

        fd_close(fd);
        return r;
    }
    *ret_names = names;
    return 0;
}

int directory_list(int directory, DIR **ret_names)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : list(fd, ret_names);
}

int directory_list_below(int directory, const char *name, DIR **ret_names)
{
    int fd, r = path_open_directory_below(directory, name, &fd);

    return r < 0 ? r : list(fd, ret_names);
}

int directory_list_in_root(int root, const char *path, DIR **ret_names)
{
    int fd, r = path_open_directory_in_root(root, path, &fd);

    return r < 0 ? r : list(fd, ret_names);
}

static bool is_itself_or_parent(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

const char *directory_next(DIR *names)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(names);
    } while (entry && is_itself_or_parent(entry->d_name));
    return entry ? entry->d_name : NULL;
}

const char *directory_read_next(struct directory_reader *reader)
{
    for (;;) {
        const struct dirent64 *entry = (const void *)(reader->bytes + reader->at);

        if (reader->at == reader->length) {
            ssize_t length = getdents64(reader->fd, reader->bytes, sizeof(reader->bytes));

            if (length <= 0) {
                errno = length < 0 ? errno : 0;
                return NULL;
            }
            reader->at = 0;
            reader->length = (size_t)length;
            continue;
        }
        reader->at += entry->d_reclen;
        reader->resume = entry->d_off;
        if (!is_itself_or_parent(entry->d_name))
            return entry->d_name;
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* An enum directory_outcome or -errno; `names` has room for the limit. */
static int add_names(DIR *listing, unsigned limit, bool (*is_wanted)(const char *name),
                     struct directory_names *names)
{
    const char *name;

    for (unsigned unwanted = 0; (name = directory_next(listing));) {
        if (is_wanted && !is_wanted(name)) {
            if (unwanted++ == limit)
                return DIRECTORY_TOO_MANY;
            continue;
        }
        if (names->count == limit)
            return DIRECTORY_TOO_MANY;
        names->name[names->count] = strdup(name);
        if (!names->name[names->count])
            return -ENOMEM;
        names->count++;
    }
    return -errno;
}

int directory_read_names(DIR *listing, unsigned limit, bool (*is_wanted)(const char *name),
                         struct directory_names *ret_names)
{
    struct directory_names names = {.name = calloc(limit, sizeof(*names.name))};
    int r = names.name ? add_names(listing, limit, is_wanted, &names) : -ENOMEM;

    if (r < 0) {
        directory_names_done(&names);
        return r;
    }
    qsort(names.name, names.count, sizeof(*names.name), compare);
    *ret_names = names;
    return r;
}

void directory_names_done(struct directory_names *names)
{
    for (unsigned i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
    *names = (struct directory_names){0};
}

/* ---- removal -------------------------------------------------------------------------------- */

/* Looked through, then removed.
 *
 * Both walks open every name by openat2(2) with RESOLVE_NO_XDEV, so what is mounted between the two
 * is not entered either. What is replaced between the look and unlinkat(2) loses a name at most:
 * unlinkat follows nothing and refuses a mount.
 */

struct walk {
    bool removes;
    unsigned names; /* seen so far */
    struct error *error;
};

static int refuse(const struct walk *walk, int r, const char *name, const char *why)
{
    return error_set(walk->error, r, "%s: %s", name, why);
}

static int unlink_name(const struct walk *walk, int directory, const char *name, int flags)
{
    if (unlinkat(directory, name, flags) == 0 || errno == ENOENT)
        return 0;
    return error_set_errno(walk->error, -errno, "%s", name);
}

static int visit(struct walk *walk, int directory, const char *name, unsigned levels, bool is_top);

/* A removal changes the directory that it reads: it is listed again until nothing is left. */
static int visit_names(struct walk *walk, int directory, unsigned levels)
{
    bool more = true;
    int r = 0;

    while (r == 0 && more) {
        cleanup(dir_closep) DIR *names = NULL;
        const char *name;

        r = directory_list(directory, &names);
        if (r < 0)
            return refuse(walk, r, ".", "its names can't be read");
        for (more = false; r == 0 && (name = directory_next(names)); more = walk->removes)
            r = visit(walk, directory, name, levels, false);
    }
    return r;
}

static int visit_directory(struct walk *walk, int parent, int handle, const char *name,
                           unsigned levels)
{
    int r;

    if (levels == 0)
        return refuse(walk, -EISDIR, name,
                      "a directory where only files belong: remove it by hand if nobody needs it");
    r = visit_names(walk, handle, levels - 1);
    if (r < 0)
        return error_prefix(walk->error, "%s/", name), r;
    return walk->removes ? unlink_name(walk, parent, name, AT_REMOVEDIR) : 0;
}

static int visit(struct walk *walk, int directory, const char *name, unsigned levels, bool is_top)
{
    cleanup(fd_closep) int handle = -1;
    struct stat status;
    int r = path_open_below(directory, name, &handle);

    if (++walk->names > REMOVAL_NAMES)
        return refuse(walk, -E2BIG, name, "one of too many names: remove them by hand");
    if (r == PATH_MISSING)
        return 0;
    if (r == PATH_LEADS_OUT)
        return refuse(walk, r, name, "something is mounted there: unmount it first");
    if (r < 0 || fstat(handle, &status) < 0)
        return error_set_errno(walk->error, r < 0 ? r : -errno, "%s", name);
    if (S_ISDIR(status.st_mode))
        return visit_directory(walk, directory, handle, name, levels);
    if (!S_ISREG(status.st_mode) && !(is_top && S_ISLNK(status.st_mode)))
        return refuse(walk, -EPERM, name,
                      "not a regular file: remove it by hand if nobody needs it");
    return walk->removes ? unlink_name(walk, directory, name, 0) : 0;
}

int removal_check(int directory, const char *name, unsigned levels, struct error *error)
{
    return visit(&(struct walk){.error = error}, directory, name, levels, true);
}

int removal_run(int directory, const char *name, unsigned levels, struct error *error)
{
    int r = removal_check(directory, name, levels, error);

    return r < 0 ? r
                 : visit(&(struct walk){.removes = true, .error = error}, directory, name, levels,
                         true);
}

int removal_empty(int directory, unsigned levels, struct error *error)
{
    cleanup(directory_names_done) struct directory_names names = {0};
    cleanup(dir_closep) DIR *listing = NULL;
    int first = 0, r = directory_list(directory, &listing);

    if (r == 0)
        r = directory_read_names(listing, REMOVAL_NAMES, NULL, &names);
    if (r < 0)
        return error_set_errno(error, r, "its names can't be read");
    for (unsigned i = 0; i < names.count; i++) {
        r = removal_run(directory, names.name[i], levels, first == 0 ? error : NULL);
        if (first == 0)
            first = r;
    }
    return first;
}
