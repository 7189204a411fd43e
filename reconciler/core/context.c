/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - paths of the node, what may be done there, its trees of directories
 * and the sources of events: see context.h. */
#include "reconciler/core/context.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/command/command.h"
#include "store/store.h"
#include "watch/watch.h"

/* Without the store it is not known. */
static dev_t given_device(const void *userdata, const char *path)
{
    const struct context *context = userdata;
    dev_t device = 0;

    (void)store_find_given_device(context->store, path, &device);
    return device;
}

void node_sandbox_paths(const struct context *context, struct node_lists *ret_lists,
                        struct observe_sandbox_paths *ret_paths)
{
    const struct config *config = context->config;

    for (unsigned i = 0; i < config->paths.bundles.count; i++)
        ret_lists->bundles[i] = config_list_item(&config->paths.bundles, i);
    for (unsigned i = 0; i < config->paths.kubelet.count; i++)
        ret_lists->kubelet[i] = config_list_item(&config->paths.kubelet, i);
    *ret_paths = (struct observe_sandbox_paths){
        .root = context->root,
        .kata_go_sandboxes = config->paths.kata_go_sandboxes,
        .kata_go_vms = config->paths.kata_go_vms,
        .kata_rs_sandboxes = config->paths.kata_rs_sandboxes,
        .bundles = ret_lists->bundles,
        .bundle_directories = config->paths.bundles.count,
        .kubelet = ret_lists->kubelet,
        .kubelets = config->paths.kubelet.count,
        .extra_monitor = config->resize.qemu_monitor != QEMU_MONITOR_OFF,
        .main_monitor = config->resize.qemu_monitor == QEMU_MONITOR_MAIN,
        .agent_port = config->agent.port,
        .given_device = given_device,
        .userdata = context,
        .cache = context->cache,
    };
}

int node_publish_path(const struct context *context, const char *target_path,
                      struct observed_publish_path *ret_path)
{
    const struct config_list *list = &context->config->paths.kubelet;
    const char *kubelet[CONFIG_LIST_ITEMS];

    *ret_path = (struct observed_publish_path){0};
    for (unsigned i = 0; i < list->count; i++)
        kubelet[i] = config_list_item(list, i);
    return observe_publish_path(context->root, kubelet, list->count, target_path, ret_path);
}

const char *node_volumes_path(const struct config *config, enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? config->paths.crust_volumes : config->paths.kata_volumes;
}

const char *node_trash_path(const struct config *config, enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? config->paths.crust_trash : config->paths.kata_trash;
}

/* ---- permit --------------------------------------------------------------------------------- */

enum resize_policy resize_policy_of(const struct config *config, const struct store_volume *volume)
{
    enum config_resize_mode mode = config->resize.mode;
    bool is_file = volume->device_id && volume->device_kind == DEVICE_KIND_FILE;

    if (volume->is_block_claim && config->resize.block_claims < mode)
        mode = config->resize.block_claims;
    if (mode == RESIZE_NEVER || volume->policy == POLICY_NEVER)
        return POLICY_NEVER;
    if (volume->policy == POLICY_FIXED)
        return POLICY_FIXED;
    if (is_file && config->resize.file_backed == FILE_BACKED_NEVER)
        return POLICY_NEVER;
    if (mode == RESIZE_OBSERVE || volume->policy == POLICY_OBSERVE)
        return POLICY_OBSERVE;
    return is_file ? POLICY_GUEST : POLICY_GROW;
}

const char *permit_find_forbidding(const struct config *config, enum hypervisor_kind kind)
{
    if (kind == HYPERVISOR_FIRECRACKER && !config->resize.firecracker)
        return "Firecracker is told of a new size only with resize.firecracker = on, because its "
               "makers do not vouch for drives that the guest has mounted";
    return NULL;
}

/* ---- trees ---------------------------------------------------------------------------------- */

struct tree_user {
    UT_hash_handle hh;
    unsigned bundle; /* index */
    char sandbox_id[];
};

static void forget_user(struct trees *trees, struct tree_user *user)
{
    HASH_DEL(trees->users, user);
    free(user);
}

void trees_done(struct trees *trees)
{
    struct tree_user *user, *next;

    trees_keep_open(trees, false);
    HASH_ITER (hh, trees->users, user, next) {
        forget_user(trees, user);
    }
    for (unsigned i = 0; i < RECONCILER_BUNDLES; i++)
        free(trees->bundle[i]);
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
        return tree < TREES ? trees->bundle[tree - TREE_BUNDLES] : NULL;
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

int trees_open(struct trees *trees, enum reconciler_tree tree, int *ret_directory)
{
    int r = 0;

    if (!trees->is_open || trees->opened != tree) {
        if (trees->is_open)
            fd_close(trees->directory);
        r = path_open_directory_in_root(trees->context->root, trees_path(trees, tree),
                                        &trees->directory);
        trees->is_open = r == 0;
        trees->opened = tree;
    }
    *ret_directory = trees->directory;
    return r;
}

void trees_release(struct trees *trees)
{
    if (trees->is_open && !trees->keeps_open) {
        fd_close(trees->directory);
        trees->is_open = false;
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

static bool add_user(struct trees *trees, unsigned bundle, const char *sandbox_id)
{
    struct tree_user *user = calloc(1, sizeof(*user) + strlen(sandbox_id) + 1);

    if (!user)
        return false;
    user->bundle = bundle;
    strcpy(user->sandbox_id, sandbox_id);
    HASH_ADD_STR(trees->users, sandbox_id, user);
    if (user->hh.tbl)
        return true;
    free(user);
    return false;
}

/* Where the path is kept, or else can be; RECONCILER_BUNDLES: nowhere. */
static unsigned find_bundle(const struct trees *trees, const char *path)
{
    unsigned unused = RECONCILER_BUNDLES;

    for (unsigned i = RECONCILER_BUNDLES; i-- > 0;) {
        if (!trees->bundle[i])
            unused = i;
        else if (strcmp(trees->bundle[i], path) == 0)
            return i;
    }
    return unused;
}

static bool begin_bundle(struct trees *trees, unsigned bundle, const char *path)
{
    unsigned number;
    int r;

    trees->bundle[bundle] = strdup(path);
    if (!trees->bundle[bundle])
        return false;
    r = watch_directories_add_tree(trees->context->watchers->directories, path, &number);
    if (r == 0 && number == TREE_BUNDLES + bundle)
        return true;
    if (r == 0) {
        watch_directories_remove_tree(trees->context->watchers->directories, number);
        r = -EEXIST;
    }
    log_warning(NULL, "cannot watch %s: %s", path, strerror(-r));
    free(trees->bundle[bundle]);
    trees->bundle[bundle] = NULL;
    return false;
}

static void end_bundle(struct trees *trees, unsigned bundle)
{
    for (const struct tree_user *user = trees->users; user; user = user->hh.next)
        if (user->bundle == bundle)
            return;
    watch_directories_remove_tree(trees->context->watchers->directories, TREE_BUNDLES + bundle);
    free(trees->bundle[bundle]);
    trees->bundle[bundle] = NULL;
}

/* Where something is missing for it, the sweep observes its sandboxes. */
void trees_watch_bundles(struct trees *trees, const char *path, const char *sandbox_id)
{
    const struct tree_user *user;
    unsigned bundle = find_bundle(trees, path);

    HASH_FIND_STR(trees->users, sandbox_id, user);
    if (user && user->bundle == bundle)
        return;
    trees_leave_bundles(trees, sandbox_id);
    if (bundle == RECONCILER_BUNDLES ||
        (!trees->bundle[bundle] && !begin_bundle(trees, bundle, path)))
        return;
    if (!add_user(trees, bundle, sandbox_id))
        end_bundle(trees, bundle);
}

void trees_leave_bundles(struct trees *trees, const char *sandbox_id)
{
    struct tree_user *user;
    unsigned bundle;

    HASH_FIND_STR(trees->users, sandbox_id, user);
    if (!user)
        return;
    bundle = user->bundle;
    forget_user(trees, user);
    end_bundle(trees, bundle);
}

/* ---- watchers ------------------------------------------------------------------------------- */

#define UNARMED                                                                                    \
    "directories could not be watched and are only observed by the sweep: raise "                  \
    "fs.inotify.max_user_watches"
#define DOWN                                                                                       \
    "no events from %s: changes are only found by the sweep; raise "                               \
    "fs.inotify.max_user_instances, or the limit of open files"

static void warn_if_down(enum watch_source source, const struct watch_counters *counters)
{
    const char *name = watch_source_name(source);

    if (!counters->up)
        log_warning(&(struct log_ids){.source = name}, DOWN, name);
}

void watchers_check(struct watchers *watchers)
{
    watch_block_check(watchers->block);
    watch_directories_check_roots(watchers->directories);
    watch_directories_observe_unarmed(watchers->directories);
    warn_if_down(WATCH_UEVENT, watch_block_counters(watchers->block));
    warn_if_down(WATCH_INOTIFY, watch_directories_counters(watchers->directories));
    if (watch_directories_unarmed(watchers->directories))
        log_warning(&(struct log_ids){.source = "inotify"}, "%u " UNARMED,
                    watch_directories_unarmed(watchers->directories));
}

static void report_source(struct reconciler_health *health, enum watch_source source,
                          const struct watch_counters *counters)
{
    const char *name = watch_source_name(source);

    health->source[health->sources++] =
        (struct reconciler_source){name, counters->up, counters->events, counters->overflows};
    if (!counters->up) {
        health->degraded = true;
        snprintf(health->problem, sizeof(health->problem), DOWN, name);
    }
}

void watchers_report(const struct watchers *watchers, struct reconciler_health *ret_health)
{
    unsigned unarmed = watch_directories_unarmed(watchers->directories);

    if (unarmed) {
        ret_health->degraded = true;
        snprintf(ret_health->problem, sizeof(ret_health->problem), "%u " UNARMED, unarmed);
    }
    report_source(ret_health, WATCH_INOTIFY, watch_directories_counters(watchers->directories));
    report_source(ret_health, WATCH_UEVENT, watch_block_counters(watchers->block));
    report_source(ret_health, WATCH_MOUNTS, watch_mounts_counters(watchers->mounts));
    report_source(ret_health, WATCH_PROCESS, watch_processes_counters(watchers->processes));
}

void watchers_done(struct watchers *watchers)
{
    watch_processes_free(watchers->processes);
    watch_mounts_free(watchers->mounts);
    watch_block_free(watchers->block);
    watch_directories_free(watchers->directories);
}
