/* SPDX-License-Identifier: Apache-2.0 */
/* guest_stats.h - what a guest says of a volume's file system when it is polled. */
#pragma once

#include "store/bounds.h"

/* A guest's answer to a poll. Only a change of the condition is journaled; a first condition that
 * is normal is none. */
struct store_guest_stats {
    /* The binding that was asked. Nothing is written unless it is still open and the volume is
     * neither bypassed nor detached, because the guest would then have something else at that
     * place. */
    int64_t binding_id;
    bool has_bytes;
    uint64_t total, used, available;
    bool abnormal;
    const char *message; /* of the condition; NULL or "" none */
    /* Since the guest was read, at the most; what is older than the last answer is dropped. */
    int64_t age_ms;
};
/* ret_changed: the condition did, and the change is journaled. */
int store_put_guest_stats(struct store *store, int64_t volume_id,
                          const struct store_guest_stats *stats, bool *ret_changed);
/* The guest did not answer: counted, up to a bound, until it does. Its last answer stays. */
int store_note_guest_silent(struct store *store, int64_t volume_id);

/* Every volume that is in a sandbox, with the number of polls in a row that its guest did not
 * answer. The callback must not write. */
typedef int store_guest_callback(void *userdata, int64_t volume_id, int64_t binding_id,
                                 uint32_t failures);
int store_each_guest(struct store *store, store_guest_callback *callback, void *userdata);
