/* SPDX-License-Identifier: Apache-2.0 */
/* volume_rows.h - the store's setters, for tests that have less in hand than the daemon: a volume's
 * id and no row, or no use for all that comes of an entry. */
#pragma once

#include "store/store.h"

/* A metadata directory, whatever device it leads to. */
static inline int row_put_entry(struct store *store, const struct store_entry *entry,
                                int64_t *ret_volume_id, bool *ret_changed)
{
    struct store_entry_put put = {0};
    int r = store_put_entry_on_device(store, entry, &put);

    *ret_volume_id = put.volume_id;
    *ret_changed = put.changed;
    return r;
}

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
