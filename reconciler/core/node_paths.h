/* SPDX-License-Identifier: Apache-2.0 */
/* node_paths.h - the node's directories according to the configuration. */
#pragma once

#include "config/config.h"
#include "model/volume.h"

struct context;
struct observe_sandbox_paths;

/* `bundles` is the array that the paths borrow. */
void node_sandbox_paths(const struct context *context, const char *bundles[CONFIG_LIST_ITEMS],
                        struct observe_sandbox_paths *ret_paths);

/* The directory of a layout's metadata, and the directory that removed metadata is moved to. */
const char *node_volumes_path(const struct config *config, enum volume_layout layout);
const char *node_trash_path(const struct config *config, enum volume_layout layout);
