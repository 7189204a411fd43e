/* SPDX-License-Identifier: Apache-2.0 */
/* volume_rows.h - the store's setters that take the row in hand, for tests that have the id only.
 */
#pragma once

#include "store/store.h"

static inline int row_open_resize(struct store *store, int64_t volume_id, uint64_t from_bytes,
                                  uint64_t to_bytes)
{
    struct store_volume volume;
    int r = store_get_volume(store, volume_id, &volume);

    return r < 0 ? r : store_open_resize(store, &volume, from_bytes, to_bytes);
}

static inline int row_set_state(struct store *store, int64_t volume_id, enum volume_state state,
                                enum volume_reason reason, bool *ret_changed)
{
    struct store_volume volume;
    int r = store_get_volume(store, volume_id, &volume);

    return r < 0 ? r : store_set_state(store, &volume, state, reason, ret_changed);
}

static inline int row_intend(struct store *store, int64_t volume_id, const char *act,
                             uint64_t bytes)
{
    struct store_volume volume;
    int r = store_get_volume(store, volume_id, &volume);

    volume.device_bytes = bytes;
    return r < 0 ? r : store_intend(store, &volume, act);
}
