/* SPDX-License-Identifier: Apache-2.0 */
/* passthrough.c - reads names, never what is behind them: the guest may write there. */
#include "observe/passthrough.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "observe/kata.h"

#define HOST_SANDBOXES "/run/kata-containers/shared/sandboxes"
#define GUEST_MOUNTS   "/run/kata-containers/shared/containers/passthrough"

enum { NAMES = 4096, DEVICE_CHARS = 10, RANDOM_CHARS = 8, PREFIX_CHARS = 20 };

static bool is_hex(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isdigit((unsigned char)text[i]) && (text[i] < 'a' || text[i] > 'f'))
            return false;
    return true;
}

static bool has_form(const char *name)
{
    return strlen(name) > PREFIX_CHARS && name[DEVICE_CHARS] == '-' &&
           name[PREFIX_CHARS - 1] == '-' && is_hex(name, DEVICE_CHARS) &&
           is_hex(name + DEVICE_CHARS + 1, RANDOM_CHARS);
}

int passthrough_read(int root, const char *sandbox_id, struct directory_names *ret_names)
{
    cleanup(dir_closep) DIR *directory = NULL;
    char path[PATH_MAX];
    int r;

    (void)snprintf(path, sizeof(path), HOST_SANDBOXES "/%s/rw/passthrough", sandbox_id);
    r = directory_list_in_root(root, path, &directory);
    if (r == 0)
        r = directory_read_names(directory, NAMES, has_form, ret_names);
    return r < 0 && !kata_is_absent(r) ? r : 0;
}

bool passthrough_is_candidate(const char *name, const char *basename,
                              bool (*is_container)(void *userdata, const char *part),
                              void *userdata)
{
    char part[DEVICE_CHARS + 1] = "";

    memcpy(part, name, DEVICE_CHARS);
    return strcmp(name + PREFIX_CHARS, basename) == 0 && !is_container(userdata, part);
}

const char *passthrough_find(const struct directory_names *names, const char *basename,
                             bool (*is_container)(void *userdata, const char *part), void *userdata)
{
    const char *found = NULL;

    for (unsigned i = 0; i < names->count; i++) {
        const char *name = names->name[i];

        if (!passthrough_is_candidate(name, basename, is_container, userdata))
            continue;
        if (found && strncmp(found, name, DEVICE_CHARS) != 0)
            return NULL;
        found = found ? found : name;
    }
    return found;
}

bool passthrough_is_shared(const struct directory_names *names, const char *container,
                           const char *basename)
{
    for (unsigned i = 0; i < names->count; i++) {
        const char *name = names->name[i];

        if (strcmp(name + PREFIX_CHARS, basename) == 0 &&
            strncmp(name, container, DEVICE_CHARS) == 0)
            return true;
    }
    return false;
}

int passthrough_guest_path(const char *name, char **ret_path)
{
    return asprintf(ret_path, GUEST_MOUNTS "/%s", name) < 0 ? -ENOMEM : 0;
}
