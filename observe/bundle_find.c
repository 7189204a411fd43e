/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_find.c - see bundles.h. */
#include "observe/bundles.h"
#include "observe/process_table.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/process.h"
#include "observe/kata.h"
#include "observe/observed_sandbox.h"

/* Turns a path as seen from "/" into one below root. */
static const char *below_root(int root, const char *path)
{
    char link[32], top[PATH_MAX];
    ssize_t length;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
    length = readlink(link, top, sizeof(top) - 1);
    if (length > 1 && strncmp(path, top, (size_t)length) == 0 && path[length] == '/')
        return path + length;
    return path;
}

/* Whether only root can have made the bundles of the place, too, if they are apart from the shim's
 * directory. They are made with the first container. */
static bool is_roots_place(int root, const struct bundles_place *place, struct error *refused)
{
    struct error error;
    int r = place->is_apart ? path_require_roots(root, place->parent, &error) : PATH_OK;

    if (r != PATH_OK && r != PATH_ABSENT)
        *refused = error;
    return r == PATH_OK || r == PATH_ABSENT;
}

/* The working directory, if it is the one that its path leads to from here (mount namespaces), and
 * if only root can have put anything there. False with a text in `refused`: others can. */
static bool find_by_process(int root, pid_t pid, const char *sandbox_id,
                            struct bundles_place *ret_place, struct error *refused)
{
    struct stat there, here;
    char link[48], path[PATH_MAX];
    const char *bundle;
    ssize_t length;
    int r;

    (void)snprintf(link, sizeof(link), "/proc/%d/cwd", (int)pid);
    length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    bundle = below_root(root, path);
    if (bundles_place_of(bundle, sandbox_id, ret_place) < 0 || process_stat(pid, "cwd", &there) < 0)
        return false;
    r = path_stat_in_root(root, bundle, &here);
    if (r == PATH_MAY_HANG)
        (void)error_set(refused, r, "%s lies in a file system that may hang", bundle);
    return r == 0 && there.st_dev == here.st_dev && there.st_ino == here.st_ino &&
           path_require_roots(root, bundle, refused) == PATH_OK &&
           is_roots_place(root, ret_place, refused);
}

/* Links on the way to the configured directories were made by the administrator, and are followed.
 * What is there is the sandbox's if it is a bundle, or the directory of its shim alone. */
static bool try_path(int root, const char *bundle, const char *sandbox_id,
                     struct bundles_place *ret_place, struct error *refused)
{
    char real[PATH_MAX], path[PATH_MAX + 16];
    struct stat st;
    int r = bundles_place_of(bundle, sandbox_id, ret_place);

    if (r < 0)
        return false;
    (void)snprintf(path, sizeof(path), "%s%s", bundle, ret_place->is_apart ? "" : "/config.json");
    if (path_stat_in_root(root, path, &st) < 0)
        return false;
    r = path_real_in_root(root, bundle, real);
    if (r < 0 && r != PATH_LEADS_OUT)
        return false;
    return path_require_roots(root, r == 0 ? real : bundle, refused) == PATH_OK &&
           is_roots_place(root, ret_place, refused);
}

static bool find_by_path(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                         struct bundles_place *ret_place, struct error *refused)
{
    static const char *const rests[] = {"", "/userdata"};

    for (unsigned i = 0; i < paths->bundle_directories; i++) {
        char bundle[PATH_MAX], apart[PATH_MAX];

        for (size_t j = 0; j < array_length(rests); j++) {
            if (snprintf(bundle, sizeof(bundle), "%s/%s%s", paths->bundles[i], sandbox_id,
                         rests[j]) >= PATH_MAX)
                continue;
            if (try_path(paths->root, bundle, sandbox_id, ret_place, refused) ||
                (bundles_swap(bundle, BUNDLES_TASKS, BUNDLES_CONTROLLERS "shim", apart) &&
                 try_path(paths->root, apart, sandbox_id, ret_place, refused)))
                return true;
        }
    }
    return false;
}

/* Kata's Go runtime records the mounts of each container by itself (persist.json). */
static int note_missing(const struct error *refused, const char *doubt, bool has_shim,
                        struct observed_sandbox *sandbox)
{
    char text[ERROR_TEXT_BYTES + PROCESS_DOUBT_BYTES] =
        "no bundle of it is found where its shim works, nor below paths.bundles";

    if (!refused->text[0] && !doubt[0] && sandbox->runtime == RUNTIME_KATA_GO &&
        (!has_shim || sandbox->records || sandbox->problem)) {
        sandbox->hides_volumes = sandbox->problem != NULL;
        return 0;
    }
    if (refused->text[0] || doubt[0])
        (void)snprintf(text, sizeof(text), "%s %s", refused->text[0] ? "bundle" : "shim:",
                       refused->text[0] ? refused->text : doubt);
    return kata_hide_volumes(sandbox, !refused->text[0] && doubt[0], text);
}

int bundle_find(const struct observe_sandbox_paths *paths, const char *sandbox_id, pid_t vmm_pid,
                struct observed_sandbox *sandbox, struct bundles_place *ret_place)
{
    struct process_search shim;
    struct error refused = {0};
    int r = process_index_find(paths->cache, PROCESS_SHIM, sandbox_id, &shim);

    if (r < 0)
        return r;
    if (r == PROCESS_INDEX_UNFINISHED)
        return OBSERVED_UNFINISHED;
    if ((r == PROCESS_INDEX_FOUND &&
         find_by_process(paths->root, shim.process.pid, sandbox_id, ret_place, &refused)) ||
        (vmm_pid && find_by_process(paths->root, vmm_pid, sandbox_id, ret_place, &refused)) ||
        find_by_path(paths, sandbox_id, ret_place, &refused))
        return 0;
    ret_place->own[0] = '\0';
    return note_missing(&refused, shim.doubt, r == PROCESS_INDEX_FOUND, sandbox);
}
