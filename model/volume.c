/* SPDX-License-Identifier: Apache-2.0 */
/* volume.c - the names of layouts, policies and kinds of device, as the database has them. */
#include "model/volume.h"

#include "model/name_table.h"

static const char *const layouts[] = {
    [LAYOUT_KATA] = "kata",
    [LAYOUT_CRUST] = "crust",
};

static const char *const policies[] = {
    [POLICY_GROW] = "grow",
    [POLICY_OBSERVE] = "observe",
    [POLICY_NEVER] = "never",
};

static const char *const device_kinds[] = {
    [DEVICE_KIND_BLOCK] = "block",
    [DEVICE_KIND_FILE] = "file",
    [DEVICE_KIND_OTHER] = "other",
};

#define FIND(names, name, otherwise)                                                               \
    name_table_find(names, sizeof((names)[0]), sizeof(names) / sizeof((names)[0]), name, otherwise)

const char *layout_name(enum volume_layout layout)
{
    return layouts[layout];
}

enum volume_layout layout_from_name(const char *name)
{
    return FIND(layouts, name, LAYOUT_KATA);
}

const char *policy_name(enum resize_policy policy)
{
    return policies[policy];
}

enum resize_policy policy_from_name(const char *name)
{
    return FIND(policies, name, POLICY_OBSERVE);
}

const char *device_kind_name(enum device_kind kind)
{
    return device_kinds[kind];
}

enum device_kind device_kind_from_name(const char *name)
{
    return FIND(device_kinds, name, DEVICE_KIND_BLOCK);
}
