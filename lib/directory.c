/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c - see directory.h. */
#include "lib/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

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
