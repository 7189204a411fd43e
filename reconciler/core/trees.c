/* SPDX-License-Identifier: Apache-2.0 */
/* trees.c - see trees.h. */
#include "reconciler/core/trees.h"

#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/path.h"
#include "reconciler/core/context.h"
#include "reconciler/core/watchers.h"

void trees_done(struct trees *trees)
{
    trees_keep_open(trees, false);
    for (unsigned i = 0; i < trees->bundles; i++)
        free(trees->bundle[i]);
    trees->bundles = 0;
}

bool tree_has_volumes(enum reconciler_tree tree)
{
    return tree <= TREE_CRUST_VOLUMES;
}

bool tree_has_sandboxes(enum reconciler_tree tree)
{
    return tree > TREE_CRUST_VOLUMES && tree < TREE_BUNDLES;
}

const char *trees_path(const struct trees *trees, enum reconciler_tree tree)
{
    const struct config *config = trees->context->config;

    if (tree >= TREE_BUNDLES)
        return tree < TREE_BUNDLES + trees->bundles ? trees->bundle[tree - TREE_BUNDLES] : NULL;
    switch ((int)tree) {
    case TREE_KATA_VOLUMES:
        return config->paths.kata_volumes;
    case TREE_CRUST_VOLUMES:
        return config->paths.crust_volumes;
    case TREE_GO_SANDBOXES:
        return config->paths.kata_go_sandboxes;
    case TREE_GO_VMS:
        return config->paths.kata_go_vms;
    default:
        return config->paths.kata_rs_sandboxes;
    }
}

int trees_open(struct trees *trees, enum reconciler_tree tree, int *ret_fd)
{
    if (!trees->root[tree].is_known) {
        trees->root[tree].fd = -1;
        trees->root[tree].outcome = path_open_directory_in_root(
            trees->context->root, trees_path(trees, tree), &trees->root[tree].fd);
        trees->root[tree].is_known = true;
    }
    *ret_fd = trees->root[tree].fd;
    return trees->root[tree].outcome;
}

void trees_release(struct trees *trees)
{
    for (unsigned i = 0; i < TREES && !trees->keeps_open; i++) {
        if (trees->root[i].is_known)
            fd_close(trees->root[i].fd);
        trees->root[i].is_known = false;
    }
}

void trees_keep_open(struct trees *trees, bool keeps_open)
{
    trees->keeps_open = keeps_open;
    trees_release(trees);
}

enum reconciler_tree tree_of_layout(enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? TREE_CRUST_VOLUMES : TREE_KATA_VOLUMES;
}

enum volume_layout tree_layout(enum reconciler_tree tree)
{
    return tree == TREE_CRUST_VOLUMES ? LAYOUT_CRUST : LAYOUT_KATA;
}

void trees_watch_bundles(struct trees *trees, const char *path)
{
    enum reconciler_tree tree = TREE_BUNDLES + trees->bundles;
    char *copy;
    int r;

    for (unsigned i = 0; i < trees->bundles; i++)
        if (strcmp(trees->bundle[i], path) == 0)
            return;
    copy = trees->bundles < RECONCILER_BUNDLES ? strdup(path) : NULL;
    if (!copy)
        return; /* the sweep observes its sandboxes */
    trees->bundle[trees->bundles++] = copy;
    r = trees->watchers->watch(trees->watchers->userdata, tree, path);
    if (r < 0)
        log_warning(NULL, "cannot watch %s: %s", path, strerror(-r));
}
