/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h - the names in a directory.
 *
 * A listing is its owner's: cleanup(dir_closep), or closedir(3). What is opened here fails as in
 * path.h.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>

#include "lib/path.h"

/* Of an open directory, also one opened with O_PATH. It stays the caller's, and its offset where it
 * is. */
int directory_list(int directory, DIR **ret_names);

int directory_list_below(int directory, const char *name, DIR **ret_names);
int directory_list_in_root(int root, const char *path, DIR **ret_names);

/* The next name that is neither "." nor "..", valid until the next call. NULL: there is no more,
 * and errno is 0, or they can't be read. */
const char *directory_next(DIR *names);

/* The same for a directory that was opened to be listed once, from where its offset is, by that
 * descriptor and without memory of its own: {.fd = FD} begins. */
struct directory_reader {
    int fd;
    size_t at, length; /* of the bytes */
    _Alignas(8) char bytes[2048];
};

const char *directory_read_next(struct directory_reader *reader);

/* Names in the order of strcmp(3). */
struct directory_names {
    unsigned count;
    char **name;
};

enum directory_outcome {
    DIRECTORY_READ,
    DIRECTORY_TOO_MANY, /* of those that are wanted, or of others; ret_names has some of them */
};

/* The names of a listing that are wanted (NULL: all), but for "." and "..". An enum
 * directory_outcome or -errno. */
int directory_read_names(DIR *listing, unsigned limit, bool (*is_wanted)(const char *name),
                         struct directory_names *ret_names);
void directory_names_done(struct directory_names *names);
