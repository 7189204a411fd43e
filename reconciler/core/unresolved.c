/* SPDX-License-Identifier: Apache-2.0 */
/* unresolved.c - resolves directory names that are hashes, by hashing the paths that could be
 * meant.
 *
 * There are three kinds of candidates: the paths of volumes in the other layout, the kubelet's
 * publish paths, and every prefix of the paths that containers mount (a container may mount a
 * directory within a volume). A candidate is hashed and looked up by index. So a path that appears
 * after its name costs one lookup (unresolved_offer_…). A name that appears after its path starts
 * one search through all candidates, for all such names together, a few in each pass: first the
 * kubelet's directories, then the claims if a name is still unresolved. Without such names there is
 * no search.
 *
 * No event reports a new directory of the kubelet, so the sweep repeats the search while a name is
 * unresolved.
 */
#include "reconciler/core/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/core/context.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

struct offer {
    const struct context *context;
    const char *source;
    char last[PATH_MAX]; /* the last claim; prefixes shared with it have been tried */
    int r;               /* result of the store */
};

/* The directories are read again, because what the path says belongs to their entries. */
int unresolved_offer(const struct context *context, const char *target_path, const char *source)
{
    char key[STORE_KEY_BYTES];
    int64_t volume_id;
    int r = store_learn_path(context->store, target_path, source, key, &volume_id);

    if (r != 0 || !volume_id)
        return r;
    log_info(&(struct log_ids){.volume = volume_id}, "the path behind %.12s… is %s", key,
             target_path);
    work_queue_add_directory(context->queue, TREE_KATA_VOLUMES, key);
    work_queue_add_directory(context->queue, TREE_CRUST_VOLUMES, key);
    return work_queue_add_volume(context->queue, volume_id);
}

/* Offers the whole path and each prefix that ends before a slash, except those of the last path. */
static int offer_prefixes(void *userdata, const char *path)
{
    struct offer *offered = userdata;
    size_t length = strlen(path), common = 0;
    char prefix[STORE_TARGET_BYTES];
    int r = 0;

    while (path[common] && path[common] == offered->last[common])
        common++;
    for (size_t end = 1; r == 0 && end <= length && end < sizeof(prefix); end++) {
        bool is_known =
            end < common || (end == common && (!offered->last[end] || offered->last[end] == '/'));

        if ((path[end] && path[end] != '/') || is_known || path[end - 1] == '/')
            continue;
        memcpy(prefix, path, end);
        prefix[end] = '\0';
        r = unresolved_offer(offered->context, prefix, offered->source);
    }
    (void)snprintf(offered->last, sizeof(offered->last), "%s", path);
    return r;
}

static int offer_path(void *userdata, const char *path)
{
    struct offer *offered = userdata;

    return offered->r = unresolved_offer(offered->context, path, offered->source);
}

int unresolved_offer_claims(const struct context *context, const struct observed_sandbox *observed)
{
    struct offer offered = {.context = context, .source = "bundle"};
    bool has;
    int r = store_has_unresolved(context->store, &has);

    for (unsigned i = 0; r == 0 && has && i < observed->claims; i++)
        r = offer_prefixes(&offered, observed->claim[i].path);
    return r;
}

static int walk_kubelet(struct unresolved *unresolved)
{
    struct offer offered = {.context = unresolved->context, .source = "kubelet"};
    int r = publish_walk_next(unresolved->walk, offer_path, &offered);

    if (offered.r < 0)
        return offered.r;
    if (r < 0)
        log_warning(NULL, "cannot read the kubelet's directories: %s", strerror(-r));
    if (r != PROGRESS_MORE) {
        unresolved->walk = publish_walk_free(unresolved->walk);
        unresolved->in_claims = true;
    }
    return PROGRESS_MORE;
}

static int walk_claims(struct unresolved *unresolved)
{
    struct offer offered = {.context = unresolved->context, .source = "bundle"};
    int r;

    memcpy(offered.last, unresolved->after, strlen(unresolved->after) + 1);
    r = store_each_claimed_path(unresolved->context->store, unresolved->after, offer_prefixes,
                                &offered);
    if (r < 0)
        return r;
    unresolved->in_claims = strcmp(offered.last, unresolved->after) != 0;
    memcpy(unresolved->after, offered.last, strlen(offered.last) + 1);
    return unresolved->in_claims ? PROGRESS_MORE : PROGRESS_DONE;
}

int unresolved_search(struct unresolved *unresolved)
{
    const struct config_list *list = &unresolved->context->config->paths.kubelet;
    bool is_new = !unresolved->walk && !unresolved->in_claims, has;
    int r;

    if (is_new && !unresolved->wanted)
        return 0;
    r = store_has_unresolved(unresolved->context->store, &has);
    if (r < 0)
        return r;
    if (!has) {
        unresolved_done(unresolved);
        return 0;
    }
    if (is_new) {
        unresolved->wanted = false;
        unresolved->after[0] = '\0';
        for (unsigned i = 0; i < list->count; i++)
            unresolved->kubelet[i] = config_list_item(list, i);
        r = publish_walk_new(unresolved->context->root, unresolved->kubelet, list->count,
                             &unresolved->walk);
        return r < 0 ? r : PROGRESS_MORE;
    }
    return unresolved->walk ? walk_kubelet(unresolved) : walk_claims(unresolved);
}

bool unresolved_is_idle(const struct unresolved *unresolved)
{
    return !unresolved->wanted && !unresolved->walk && !unresolved->in_claims;
}

void unresolved_done(struct unresolved *unresolved)
{
    unresolved->walk = publish_walk_free(unresolved->walk);
    unresolved->wanted = unresolved->in_claims = false;
}
