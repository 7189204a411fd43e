/* SPDX-License-Identifier: Apache-2.0 */
/* hidden.c - the paths behind names that are hashes, looked for among the paths that could be
 * meant.
 *
 * Three kinds of paths could be: those of volumes in the other layout, the kubelet's publish paths,
 * and every prefix of what containers mount (a container may mount a directory within a volume).
 * Whatever comes is hashed and looked up by index. So a path that appears after its name costs a
 * look each (hidden_offer), and a name that appears after its path has all that is there gone
 * through once, for all such names together, a little in each turn: the kubelet's directories
 * first, and the claims only if a name is left. Without such names neither costs anything.
 *
 * Nothing tells when the kubelet makes a directory, so the sweep has them gone through again while
 * a name is left.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/core/internal.h"

/* What the path was found in; the journal's words. */
#define FROM_LAYOUT  "layout"
#define FROM_KUBELET "kubelet"
#define FROM_BUNDLE  "bundle"
#define FROM_API     "api"

struct offer {
    struct reconciler *reconciler;
    const char *source;
    char last[PATH_MAX]; /* the claim before: what the next one has in common with it is known */
    int r;               /* of the store */
};

/* The directories are read again: what the path says belongs to them. */
static int look_at_learned(struct reconciler *reconciler, const char *key, int64_t volume_id,
                           const char *path)
{
    log_info(&(struct log_ids){.volume = volume_id}, "the path behind %.12s… is %s", key, path);
    marks_add_name(&reconciler->directories[TREE_KATA_VOLUMES], key);
    marks_add_name(&reconciler->directories[TREE_CRUST_VOLUMES], key);
    return mark_volume(reconciler, volume_id);
}

static int offer(struct reconciler *reconciler, const char *path, const char *source)
{
    char key[STORE_KEY_BYTES];
    int64_t volume_id;
    int r = store_learn_path(reconciler->store, path, source, key, &volume_id);

    return r == 0 && volume_id ? look_at_learned(reconciler, key, volume_id, path) : r;
}

static size_t common_length(const char *a, const char *b)
{
    size_t length = 0;

    while (a[length] && a[length] == b[length])
        length++;
    return length;
}

/* Each prefix that ends before a slash, and the whole, but those that the last path had. */
static int offer_prefixes(void *userdata, const char *path)
{
    struct offer *offered = userdata;
    size_t length = strlen(path), common = common_length(path, offered->last);
    char prefix[STORE_TARGET_BYTES];
    int r = 0;

    for (size_t end = 1; r == 0 && end <= length && end < sizeof(prefix); end++) {
        bool is_known =
            end < common || (end == common && (!offered->last[end] || offered->last[end] == '/'));

        if ((path[end] && path[end] != '/') || is_known || path[end - 1] == '/')
            continue;
        memcpy(prefix, path, end);
        prefix[end] = '\0';
        r = offer(offered->reconciler, prefix, offered->source);
    }
    (void)snprintf(offered->last, sizeof(offered->last), "%s", path);
    return r;
}

static int offer_path(void *userdata, const char *path)
{
    struct offer *offered = userdata;

    return offered->r = offer(offered->reconciler, path, offered->source);
}

/* ---- paths that appear ---- */

int hidden_offer_volume(struct reconciler *reconciler, const char *target_path)
{
    return offer(reconciler, target_path, FROM_LAYOUT);
}

int hidden_offer_asked(struct reconciler *reconciler, const char *target_path)
{
    return offer(reconciler, target_path, FROM_API);
}

int hidden_offer_claims(struct reconciler *reconciler, const struct observed_sandbox *observed)
{
    struct offer offered = {.reconciler = reconciler, .source = FROM_BUNDLE};
    bool has;
    int r = store_has_hidden(reconciler->store, &has);

    for (unsigned i = 0; r == 0 && has && i < observed->claims; i++)
        r = offer_prefixes(&offered, observed->claim[i].path);
    return r;
}

/* ---- names that appear ---- */

static int begin(struct hidden *hidden, struct reconciler *reconciler)
{
    const struct config_paths_list *list = &reconciler->config.paths.kubelet;

    for (unsigned i = 0; i < list->count; i++)
        hidden->kubelet[i] = list->item[i];
    hidden->after[0] = '\0';
    return publish_walk_new(reconciler->root, hidden->kubelet, list->count, &hidden->walk);
}

static int walk_kubelet(struct hidden *hidden, struct reconciler *reconciler)
{
    struct offer offered = {.reconciler = reconciler, .source = FROM_KUBELET};
    int r = publish_walk_next(hidden->walk, offer_path, &offered);

    if (offered.r < 0)
        return offered.r;
    if (r < 0)
        log_warning(NULL, "cannot read the kubelet's directories: %s", strerror(-r));
    if (r == 1)
        return 1;
    hidden->walk = publish_walk_free(hidden->walk);
    hidden->in_claims = true;
    return 1;
}

static int walk_claims(struct hidden *hidden, struct reconciler *reconciler)
{
    struct offer offered = {.reconciler = reconciler, .source = FROM_BUNDLE};
    int r;

    memcpy(offered.last, hidden->after, strlen(hidden->after) + 1);
    r = store_each_claimed_path(reconciler->store, hidden->after, offer_prefixes, &offered);
    if (r < 0)
        return r;
    hidden->in_claims = strcmp(offered.last, hidden->after) != 0;
    memcpy(hidden->after, offered.last, strlen(offered.last) + 1);
    return hidden->in_claims;
}

int hidden_search(struct reconciler *reconciler)
{
    struct hidden *hidden = &reconciler->hidden;
    bool is_new = !hidden->walk && !hidden->in_claims, has;
    int r;

    if (is_new && !hidden->wanted)
        return 0;
    r = store_has_hidden(reconciler->store, &has);
    if (r < 0)
        return r;
    if (!has) {
        hidden_done(hidden);
        return 0;
    }
    if (is_new) {
        hidden->wanted = false;
        r = begin(hidden, reconciler);
        return r < 0 ? r : 1;
    }
    return hidden->walk ? walk_kubelet(hidden, reconciler) : walk_claims(hidden, reconciler);
}

bool hidden_is_idle(const struct hidden *hidden)
{
    return !hidden->wanted && !hidden->walk && !hidden->in_claims;
}

void hidden_done(struct hidden *hidden)
{
    hidden->walk = publish_walk_free(hidden->walk);
    hidden->wanted = hidden->in_claims = false;
}
