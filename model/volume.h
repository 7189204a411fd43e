/* volume.h - what a volume's metadata may say, and what its device may be. */
#pragma once

#include <string.h>

/* Where a metadata directory stands: that of Kata's runtimes or crustd's own. */
enum volume_layout { LAYOUT_KATA, LAYOUT_CRUST };

/* What may be done to a volume, as crust.resize among its metadata says: the strictest counts,
 * which is the largest number. */
enum resize_policy { POLICY_GROW, POLICY_OBSERVE, POLICY_NEVER };

enum device_kind {
    DEVICE_KIND_BLOCK,
    DEVICE_KIND_FILE,  /* a regular file used as a disk */
    DEVICE_KIND_OTHER, /* exists, but neither (vfio group, socket, directory, character device) */
};

static inline const char *layout_name(enum volume_layout layout)
{
    return layout == LAYOUT_CRUST ? "crust" : "kata";
}

static inline enum volume_layout layout_from_name(const char *name)
{
    return strcmp(name, "crust") == 0 ? LAYOUT_CRUST : LAYOUT_KATA;
}

static inline const char *policy_name(enum resize_policy policy)
{
    return policy == POLICY_GROW ? "grow" : policy == POLICY_NEVER ? "never" : "observe";
}

/* POLICY_OBSERVE for a name that is not in the table. */
static inline enum resize_policy policy_from_name(const char *name)
{
    return strcmp(name, "grow") == 0    ? POLICY_GROW
           : strcmp(name, "never") == 0 ? POLICY_NEVER
                                        : POLICY_OBSERVE;
}

static inline const char *device_kind_name(enum device_kind kind)
{
    return kind == DEVICE_KIND_BLOCK ? "block" : kind == DEVICE_KIND_FILE ? "file" : "other";
}

static inline enum device_kind device_kind_from_name(const char *name)
{
    return strcmp(name, "file") == 0    ? DEVICE_KIND_FILE
           : strcmp(name, "other") == 0 ? DEVICE_KIND_OTHER
                                        : DEVICE_KIND_BLOCK;
}
