/* SPDX-License-Identifier: Apache-2.0 */
/* drop_in.c - finds the drop-ins at run time: PREFIX is not known when crustd is built. */
#include "doctor/drop_in.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* PREFIX of PREFIX/bin/PROGRAM; "" where it can't be told. */
static void find_prefix(char ret_prefix[static PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", ret_prefix, PATH_MAX - 1);

    ret_prefix[length > 0 ? length : 0] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(ret_prefix, '/');

        if (slash)
            *slash = '\0';
    }
}

void drop_in_find(char ret_path[static DROP_IN_BYTES])
{
    static const char name[] = "crust-qemu.toml";
    char prefix[PATH_MAX];

    find_prefix(prefix);
    if (snprintf(ret_path, DROP_IN_BYTES, "%s/share/crustd/kata/%s", prefix, name) >=
            DROP_IN_BYTES ||
        access(ret_path, R_OK) < 0)
        (void)snprintf(ret_path, DROP_IN_BYTES, "config/deploy/kata/%s", name);
}
