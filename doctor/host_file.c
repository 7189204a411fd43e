/* SPDX-License-Identifier: Apache-2.0 */
/* host_file.c - the files belong to root and are trusted: links are followed inside the root, and
 * only regular files are read.
 */
#include "doctor/host_file.h"

#include <errno.h>
#include <stdio.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"

int host_file_read(int root, const char *path, struct buffer *ret_text, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    int r = path_read_in_root(root, path, &text, error);

    if (r == PATH_ABSENT)
        return HOST_ABSENT;
    if (r > 0)
        return -EINVAL;
    if (r == 0) {
        buffer_done(ret_text);
        *ret_text = text;
        text.data = NULL;
    }
    return r;
}

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

int host_names_read(int root, const char *directory, struct directory_names *ret_names)
{
    cleanup(dir_closep) DIR *listing = NULL;
    int r = directory_list_in_root(root, directory, &listing);

    if (r < 0)
        return path_is_missing(r) ? HOST_ABSENT : r;
    r = directory_read_names(listing, HOST_NAMES, is_visible, ret_names);
    if (r == DIRECTORY_TOO_MANY) {
        directory_names_done(ret_names);
        return -E2BIG;
    }
    return r < 0 ? r : HOST_READ;
}

/* The path as given if this cannot be determined. */
int host_file_resolve(int root, const char *path, char ret_path[static PATH_MAX])
{
    int r = path_real_in_root(root, path, ret_path);

    if (r == 0)
        return HOST_READ;
    if (r != PATH_LEADS_OUT)
        return path_is_missing(r) ? HOST_ABSENT : r;
    return snprintf(ret_path, PATH_MAX, "%s", path) < PATH_MAX ? HOST_READ : -ENAMETOOLONG;
}
