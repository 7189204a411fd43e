/* SPDX-License-Identifier: Apache-2.0 */
/* host_file.c - the files are root's own and trusted as such: links in them are followed, inside
 * the root, and nothing but a regular file is read.
 */
#include "doctor/host_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(struct host_names *names, const char *name)
{
    if (names->count == HOST_NAMES)
        return -E2BIG;
    names->name[names->count] = strdup(name);
    if (!names->name[names->count])
        return -ENOMEM;
    names->count++;
    return 0;
}

int host_names_read(int root, const char *directory, struct host_names *ret_names)
{
    cleanup(dir_closep) DIR *stream = NULL;
    struct host_names names = {0};
    const char *name;
    int r = directory_list_in_root(root, directory, &stream);

    *ret_names = names;
    if (r < 0)
        return path_is_missing(r) ? HOST_ABSENT : r;
    while (r == 0 && (name = directory_next(stream)))
        if (name[0] != '.')
            r = add_name(&names, name);
    if (r < 0) {
        host_names_done(&names);
        return r;
    }
    if (names.count > 0)
        qsort(names.name, names.count, sizeof(names.name[0]), compare);
    *ret_names = names;
    return HOST_READ;
}

void host_names_done(struct host_names *names)
{
    for (unsigned i = 0; i < names->count; i++)
        free(names->name[i]);
    names->count = 0;
}

/* Where it can't be told, the path as it is. */
int host_file_resolve(int root, const char *path, char ret_path[static PATH_MAX])
{
    int r = path_real_in_root(root, path, ret_path);

    if (r == 0)
        return HOST_READ;
    if (r != PATH_LEADS_OUT)
        return path_is_missing(r) ? HOST_ABSENT : r;
    return snprintf(ret_path, PATH_MAX, "%s", path) < PATH_MAX ? HOST_READ : -ENAMETOOLONG;
}
