/* SPDX-License-Identifier: Apache-2.0 */
/* node_paths.h - where the configuration has the node's directories. */
#pragma once

#include "config/config.h"
#include "model/volume.h"

struct context;
struct observe_sandbox_paths;

/* bundles: room for what the paths borrow. */
void node_sandbox_paths(const struct context *context, const char *bundles[CONFIG_LIST_ITEMS],
                        struct observe_sandbox_paths *ret_paths);

/* Where a layout's directories stand, and where those go that are removed. */
const char *node_volumes_path(const struct config *config, enum volume_layout layout);
const char *node_trash_path(const struct config *config, enum volume_layout layout);
