/* SPDX-License-Identifier: Apache-2.0 */
/* known.h - the last helper's answers about the volumes of a sandbox. Private to
 * reconciler/helper/. */
#pragma once

#include "lib/hash.h"
#include "reconciler/helper/judge.h"

struct helper_fact {
    UT_hash_handle hh;
    int64_t binding_id;
    uint64_t at_ns;
    bool grew;    /* the helper was to grow */
    bool is_news; /* and no call of the volume has been given it */
    uint64_t device_bytes;
    enum volume_reason reason;
    char *text; /* NULL: none */
    struct agent_stats stats;
};

struct helper_known {
    uint64_t at_ns; /* when the last helper ended; 0: never */
    enum volume_reason reason;
    struct error error;
    struct helper_fact *facts; /* by binding_id */
};

/* A helper has ended. Facts older than two periods are forgotten. */
void helper_known_begin(struct helper_known *known, enum volume_reason reason,
                        const struct error *error);
void helper_known_put(struct helper_known *known, int64_t binding_id, bool grew,
                      const struct helper_verdict *verdict);
struct helper_fact *helper_known_find(const struct helper_known *known, int64_t binding_id);
void helper_known_done(struct helper_known *known);
