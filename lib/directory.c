/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c - see directory.h. */
#include "lib/directory.h"

#include <errno.h>
#include <fcntl.h>
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

const char *directory_next(DIR *names)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(names);
    } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry ? entry->d_name : NULL;
}
