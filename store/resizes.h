/* SPDX-License-Identifier: Apache-2.0 */
/* resizes.h - resizes: opened, intended, reached. */
#pragma once

#include "store/bounds.h"
#include "store/volume.h"

/* Opens a resize or raises to_bytes of the open one (which also clears attempts and reasons). The
 * row follows. */
int store_open_resize(struct store *store, struct store_volume *volume, uint64_t from_bytes,
                      uint64_t to_bytes);

/* The device's size up to which the last guest that had the volume was grown; 0: not known, or the
 * volume is on another device now. */
int store_get_reached_size(struct store *store, int64_t volume_id, uint64_t *ret_bytes);

/* An act (by decide's name) is about to run: journaled as <act>_intended and counted in the open
 * resize. */
int store_intend(struct store *store, const struct store_volume *volume, const char *act);
