/* SPDX-License-Identifier: Apache-2.0 */
/* permit.c - see permit.h. */
#include "reconciler/core/permit.h"

#include "config/config.h"
#include "store/store.h"

enum resize_policy permit_of(const struct config *config, const struct store_volume *volume)
{
    enum config_resize_mode mode = config->resize.mode;
    bool is_file = volume->device_id && volume->device_kind == DEVICE_KIND_FILE;

    if (mode == RESIZE_NEVER || volume->policy == POLICY_NEVER)
        return POLICY_NEVER;
    if (is_file && config->resize.file_backed == FILE_BACKED_NEVER)
        return POLICY_NEVER;
    if (is_file || mode == RESIZE_OBSERVE || volume->policy == POLICY_OBSERVE)
        return POLICY_OBSERVE;
    return POLICY_GROW;
}

const char *permit_find_forbidding(const struct config *config, enum hypervisor_kind kind)
{
    if (kind == HYPERVISOR_FIRECRACKER && !config->resize.firecracker)
        return "Firecracker is told of a new size only with resize.firecracker = on, because its "
               "makers do not vouch for drives that the guest has mounted";
    return NULL;
}
