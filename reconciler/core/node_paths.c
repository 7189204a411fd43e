/* SPDX-License-Identifier: Apache-2.0 */
/* node_paths.c - see node_paths.h. */
#include "reconciler/core/node_paths.h"

#include "observe/observe.h"
#include "reconciler/core/context.h"

void node_sandbox_paths(const struct context *context, const char *bundles[CONFIG_LIST_ITEMS],
                        struct observe_sandbox_paths *ret_paths)
{
    const struct config *config = context->config;

    for (unsigned i = 0; i < config->paths.bundles.count; i++)
        bundles[i] = config_list_item(&config->paths.bundles, i);
    *ret_paths = (struct observe_sandbox_paths){
        .root = context->root,
        .kata_go_sandboxes = config->paths.kata_go_sandboxes,
        .kata_go_vms = config->paths.kata_go_vms,
        .kata_rs_sandboxes = config->paths.kata_rs_sandboxes,
        .bundles = bundles,
        .bundle_directories = config->paths.bundles.count,
        .extra_monitor = config->resize.qemu_monitor != QEMU_MONITOR_OFF,
        .main_monitor = config->resize.qemu_monitor == QEMU_MONITOR_MAIN,
        .agent_port = config->agent.port,
        .cache = context->cache,
    };
}

const char *node_volumes_path(const struct config *config, enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? config->paths.crust_volumes : config->paths.kata_volumes;
}

const char *node_trash_path(const struct config *config, enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? config->paths.crust_trash : config->paths.kata_trash;
}
