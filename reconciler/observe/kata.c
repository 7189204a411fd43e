/* kata.c - names and traces that both runtimes leave alike. */
#include "reconciler/observe/kata.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/cleanup.h"
#include "lib/path.h"

bool kata_is_absent(int r)
{
    return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

int kata_copy(const char *text, char **ret_copy)
{
    if (!text)
        return 0;
    *ret_copy = strdup(text);
    return *ret_copy ? 0 : -ENOMEM;
}

int kata_set_problem(struct observed_sandbox *sandbox, bool try_again, const char *directory,
                     const char *text)
{
    sandbox->try_again |= try_again;
    if (sandbox->problem)
        return 0;
    return asprintf(&sandbox->problem, "%s%s%s", directory, *directory ? "/" : "", text) < 0
               ? -ENOMEM
               : 0;
}

const char *kata_hypervisor_name(const char *kata_name)
{
    static const char *const names[][2] = {
        {"qemu", "qemu"},
        {"clh", "cloud-hypervisor"},
        {"cloud-hypervisor", "cloud-hypervisor"},
        {"firecracker", "firecracker"},
        {"stratovirt", "stratovirt"},
        {"dragonball", "dragonball"},
        {"openvmm", "openvmm"},
        {"remote", "remote"},
    };

    for (size_t i = 0; kata_name && i < array_length(names); i++)
        if (strcasecmp(kata_name, names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

int kata_try_socket(int root, const char *directory, const char *name, char **ret_path)
{
    char path[PATH_MAX];
    struct stat st;
    int r;

    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= PATH_MAX)
        return 0;
    r = path_stat_in_root(root, path, &st);
    if (r < 0)
        return kata_is_absent(r) ? 0 : r;
    return S_ISSOCK(st.st_mode) ? kata_copy(path, ret_path) : 0;
}
