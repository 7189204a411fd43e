/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h - the names in a directory.
 *
 * The caller owns a listing: cleanup(dir_closep), or closedir(3). Failures to open are those of
 * path.h.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>

#include "lib/path.h"
#include "lib/result.h"

/* Of an open directory, also one opened with O_PATH. The caller keeps the descriptor, and its
 * offset does not change. */
int directory_list(int directory, DIR **ret_names);

int directory_list_below(int directory, const char *name, DIR **ret_names);
int directory_list_in_root(int root, const char *path, DIR **ret_names);

/* The next name that is neither "." nor "..", valid until the next call. NULL: errno is 0 at the
 * end, or says why the rest cannot be read. */
const char *directory_next(DIR *names);

/* The same for a directory that was opened to be listed once, from where its offset is, by that
 * descriptor and without memory of its own: {.fd = FD} begins. */
struct directory_reader {
    int fd;
    off_t resume; /* the offset behind the last name, where another reader can go on (lseek(2)) */
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

/* The names of a listing for which `wanted` says yes (NULL: all), without "." and "..". An enum
 * directory_outcome or -errno. */
int directory_read_names(DIR *listing, unsigned limit, bool (*is_wanted)(const char *name),
                         struct directory_names *ret_names);
void directory_names_done(struct directory_names *names);

/* ---- removal -------------------------------------------------------------------------------- */

/* The one way in which crustd removes files that others may have touched.
 *
 * What goes is regular files and the directories that hold nothing else, on the mount of the
 * directory that they are looked for in. Anything else stays: something that is mounted in the
 * place of a file or a directory, a link, a socket, a device, what lies deeper than the caller
 * expects. The name that the caller gives may itself be a link: then the link goes.
 *
 * A name goes as a whole or not at all. It is looked through first, and if something in it has to
 * stay, nothing is removed; the error says which path, why, and what to do.
 */

enum { REMOVAL_NAMES = 4096 }; /* more in one tree are refused */

/* Whether removal_run() would remove it. levels: of directories, 0 where it must be a file. 0, also
 * if there is nothing of that name; -errno. */
int removal_check(int directory, const char *name, unsigned levels, struct error *error);

/* Removes it. 0, also if there is nothing of that name; -errno. */
int removal_run(int directory, const char *name, unsigned levels, struct error *error);

/* The same for each name in a directory; one that has to stay keeps no other from going. 0 or the
 * first failure. */
int removal_empty(int directory, unsigned levels, struct error *error);
