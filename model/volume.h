/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - what a volume's metadata may say, and what its device may be. */
#pragma once

/* Where a metadata directory stands: that of Kata's runtimes or crustd's own. */
enum volume_layout { LAYOUT_KATA, LAYOUT_CRUST };

/* What crustd may do with a volume, from crust.resize in its metadata. The strictest value counts,
 * which is the largest number. */
enum resize_policy { POLICY_GROW, POLICY_OBSERVE, POLICY_NEVER };

enum device_kind {
    DEVICE_KIND_BLOCK,
    DEVICE_KIND_FILE,  /* a regular file used as a disk */
    DEVICE_KIND_OTHER, /* exists, but neither (vfio group, socket, directory, character device) */
};

/* A name that is not in the table: the layout of Kata, the policy observe, a block device. */
const char *layout_name(enum volume_layout layout);
enum volume_layout layout_from_name(const char *name);
const char *policy_name(enum resize_policy policy);
enum resize_policy policy_from_name(const char *name);
const char *device_kind_name(enum device_kind kind);
enum device_kind device_kind_from_name(const char *name);
