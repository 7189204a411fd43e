/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - what a volume's metadata may say, and what its device may be. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "lib/buffer.h"

/* Defines PREFIX_name() and PREFIX_from_name() of an enum whose words are in a table of `rows` rows
 * that each begin with one. PREFIX_from_name() is `otherwise` for any other word. */
#define WORDS(prefix, type, table, rows, otherwise)                                                \
    const char *prefix##_name(type value)                                                          \
    {                                                                                              \
        return *(const char *const *)&(table)[value];                                              \
    }                                                                                              \
    type prefix##_from_name(const char *name)                                                      \
    {                                                                                              \
        return (type)name_table_find((const char *const *)(table), sizeof((table)[0]), rows, name, \
                                     otherwise);                                                   \
    }

/* Where a metadata directory stands: that of Kata's runtimes or crustd's own. A raw block claim (a
 * claim of volumeMode Block, which the runtime plugs into the VM as it is) has no directory. */
enum volume_layout { LAYOUT_KATA, LAYOUT_CRUST, LAYOUT_NONE };

/* What crustd may do with a volume, from crust.resize in its metadata. The strictest value counts,
 * which is the largest number. FIXED: the pod's owner has fixed the size of the device. GUEST is in
 * no metadata and no row: crustd sends no VMM the new size of a regular file, so the file system
 * alone is grown, in a VM that has opened the file at its size. */
enum resize_policy { POLICY_GROW, POLICY_OBSERVE, POLICY_NEVER, POLICY_FIXED, POLICY_GUEST };

enum device_kind {
    DEVICE_KIND_BLOCK,
    DEVICE_KIND_FILE,  /* a regular file used as a disk */
    DEVICE_KIND_OTHER, /* exists, but neither (vfio group, socket, directory, character device) */
};

/* An unknown name is the layout of Kata, the policy observe, a block device. */
const char *layout_name(enum volume_layout layout);
enum volume_layout layout_from_name(const char *name);
enum resize_policy policy_from_name(const char *name);
bool policy_grows_file_system(enum resize_policy policy);
const char *device_kind_name(enum device_kind kind);
enum device_kind device_kind_from_name(const char *name);

/* ---- state ---------------------------------------------------------------------------------- */

/* As auditors read them. The database keeps the names. */
enum volume_state {
    STATE_UNMANAGED,
    STATE_UNBOUND,
    STATE_DETACHED,
    STATE_BLOCKED,
    STATE_SHRUNK,
    STATE_UNKNOWN,
    STATE_HOST_GROWN,
    STATE_BLOCK_GROWN,
    STATE_IN_SYNC,
    STATES,
};

const char *state_name(enum volume_state state);

/* STATES: a state of another version, whose name is "other" here. */
enum volume_state state_from_name(const char *name);

/* The state by itself; NULL for STATES. */
const struct explanation *state_explain(enum volume_state state);

/* ---- advice --------------------------------------------------------------------------------- */

/* What a volume's state means, what to do about it, and what is known of the volume: in sentences,
 * from the table of reasons and from the rows about the volume. */
/* Appends to a JSON object the members "state_meaning", "reason_meaning", "resizable_meaning",
 * "missing", "remedies" and "known". rows has the newest row of each view that is about the volume:
 * "volume", "mapping", "sandbox", "resize", "cleanup", and the arrays "layers" and "judged", which
 * is what reconciler_gc() answers about the volume. All but "volume" may be null. 0, or the
 * buffer's failure. */
int advice_append(const cJSON *rows, const char *resize_mode, struct buffer *json);

/* ---- explanation ---------------------------------------------------------------------------- */

enum { EXPLANATION_REMEDIES = 4 };

/* What a published word means, what is missing, and what to do. */
struct explanation {
    const char *meaning;                      /* sentences */
    const char *missing;                      /* NULL: nothing */
    const char *remedy[EXPLANATION_REMEDIES]; /* NULL after the last */
};
