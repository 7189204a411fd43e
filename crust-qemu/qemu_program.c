/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_program.c - finds the QEMU to run. */
#include "crust-qemu/qemu_program.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *program_name(const char *argument0)
{
    static const char prefix[] = "crust-";
    const char *base = basename(argument0);

    if (strncmp(base, prefix, strlen(prefix)) != 0 || !base[strlen(prefix)])
        return NULL;
    return base + strlen(prefix);
}

/* A link back to this program would run it for ever. */
static bool is_another_program(const struct stat *own, const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0 &&
           (own->st_dev != found.st_dev || own->st_ino != found.st_ino);
}

static bool is_in(const struct stat *own, const char *directory, int length, const char *name,
                  char ret_path[static PATH_MAX])
{
    int written = snprintf(ret_path, PATH_MAX, "%.*s/%s", length, directory, name);

    return written > 0 && written < PATH_MAX && is_another_program(own, ret_path);
}

bool program_find(const char *self, const struct stat *own, const char *name,
                  const char *const *directories, char ret_path[static PATH_MAX])
{
    const char *slash = strrchr(self, '/');

    if (slash && is_in(own, self, (int)(slash - self), name, ret_path))
        return true;
    for (; *directories; directories++)
        if (is_in(own, *directories, (int)strlen(*directories), name, ret_path))
            return true;
    return false;
}
