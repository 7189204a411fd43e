/* SPDX-License-Identifier: Apache-2.0 */
/* passthrough.c - reads only names and times, never what is in a directory, because the guest may
 * write there. */
#include "observe/passthrough.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "observe/kata.h"

#define HOST_SANDBOXES "/run/kata-containers/shared/sandboxes"
#define GUEST_MOUNTS   "/run/kata-containers/shared/containers/passthrough"

enum { NAMES = 2048, DEVICE_CHARS = 10, RANDOM_CHARS = 8, PREFIX_CHARS = 20 };

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

/* Sorts by mount name first, so that the names for one mount are adjacent. */
static int compare(const void *a, const void *b)
{
    const char *left = *(char *const *)a, *right = *(char *const *)b;
    int order = strcmp(left + PREFIX_CHARS, right + PREFIX_CHARS);

    return order ? order : strcmp(left, right);
}

/* The index of the first name whose mount ends in `basename`, or the place where it would be. */
static unsigned first_of(const struct directory_names *names, const char *basename)
{
    unsigned low = 0, high = names->count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (strcmp(names->name[middle] + PREFIX_CHARS, basename) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_of(const struct directory_names *names, unsigned i, const char *basename)
{
    return i < names->count && strcmp(names->name[i] + PREFIX_CHARS, basename) == 0;
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
    if (r == DIRECTORY_TOO_MANY)
        directory_names_done(ret_names); /* an incomplete list cannot tell whose a name is */
    if (r >= 0 && ret_names->count)
        qsort(ret_names->name, ret_names->count, sizeof(*ret_names->name), compare);
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

/* -1: it is gone. */
static int64_t made_ns(int root, const char *sandbox_id, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    (void)snprintf(path, sizeof(path), HOST_SANDBOXES "/%s/rw/passthrough/%s", sandbox_id, name);
    return path_stat_in_root(root, path, &st) == 0
               ? st.st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + st.st_mtim.tv_nsec
               : -1;
}

const char *passthrough_find(int root, const char *sandbox_id, const struct directory_names *names,
                             const char *basename, int64_t since_ns,
                             bool (*is_container)(void *userdata, const char *part), void *userdata)
{
    const char *found = NULL;
    int64_t found_ns = 0;

    for (unsigned i = first_of(names, basename); is_of(names, i, basename); i++) {
        const char *name = names->name[i];
        int64_t name_ns;

        if (!passthrough_is_candidate(name, basename, is_container, userdata))
            continue;
        name_ns = made_ns(root, sandbox_id, name);
        if (name_ns < since_ns)
            continue;
        if (found && strncmp(found, name, DEVICE_CHARS) != 0)
            return NULL;
        if (!found || name_ns < found_ns) {
            found = name;
            found_ns = name_ns;
        }
    }
    return found;
}

bool passthrough_is_shared(const struct directory_names *names, const char *container,
                           const char *basename)
{
    for (unsigned i = first_of(names, basename); is_of(names, i, basename); i++)
        if (strncmp(names->name[i], container, DEVICE_CHARS) == 0)
            return true;
    return false;
}

int passthrough_guest_path(const char *name, char **ret_path)
{
    return asprintf(ret_path, GUEST_MOUNTS "/%s", name) < 0 ? -ENOMEM : 0;
}
