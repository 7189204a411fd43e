/* SPDX-License-Identifier: Apache-2.0 */
/* targets.h - the volumes of a sandbox that a helper is given, and where the guest has them.
 * Private to reconciler/helper/. */
#pragma once

#include "reconciler/helper/report.h"
#include "store/store.h"

struct context;

enum { HELPER_CANDIDATES = 8 };

struct helper_target {
    int64_t volume_id, binding_id;
    uint64_t device_bytes;
    unsigned candidates;
    unsigned candidate[HELPER_CANDIDATES]; /* indexes of the paths that may be the volume's */
};

struct helper_targets {
    bool grow; /* otherwise only report */
    /* Places that may be those of volumes that must not be resized: none of them is passed to the
     * helper. */
    unsigned forbidden;
    bool withheld;      /* a place was withheld for that reason */
    bool all_forbidden; /* too many to list, so only known places are passed */
    char forbidden_path[HELPER_VOLUMES][STORE_ADDRESS_BYTES];
    unsigned targets;
    struct helper_target target[HELPER_VOLUMES];
    unsigned paths;
    char path[HELPER_VOLUMES][STORE_ADDRESS_BYTES];
};

/* Must be called first, with `grow` set. 0 or -errno. */
int helper_targets_begin(const struct context *context, const char *sandbox_id, int64_t sandbox_ref,
                         struct helper_targets *targets);

/* Adds the volume's places, as long as there is room for them. */
void helper_targets_add(const struct context *context, const struct store_volume *volume,
                        struct helper_targets *targets);

/* Adds all other volumes of the sandbox that the helper can include: to grow, those whose device
 * the VMM has at its full size; to report, all that the guest has. */
void helper_targets_complete(const struct context *context, const char *sandbox_id,
                             int64_t sandbox_ref, struct helper_targets *targets);
