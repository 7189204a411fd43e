/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - see context.h. */
#include "reconciler/core/context.h"

#include "config/config.h"
#include "observe/observe.h"
#include "store/store.h"

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
