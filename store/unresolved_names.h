/* SPDX-License-Identifier: Apache-2.0 */
/* unresolved_names.h - volumes whose directory's name is a hash, and the paths behind them.
 *
 * A SHA-256 name is a volume of its own until its path is known. Every path that could be its own
 * is given to store_learn_path(), which compares the hash.
 */
#pragma once

#include "store/bounds.h"

/* Whether any live volume has an unresolved name. */
int store_has_unresolved(struct store *store, bool *ret_has);

/* The path that any volume, of whatever time, is known to have had under this hash; "" if none. */
int store_path_of_hash(struct store *store, const char *hash,
                       char ret_path[static STORE_TARGET_BYTES]);

/* If the path's hash is the name of a live volume whose path is not known, records the path;
 * `source` goes to the journal. ret_volume_id 0: no volume has that name. ret_key gets the name. */
int store_learn_path(struct store *store, const char *path, const char *source,
                     char ret_key[static STORE_KEY_BYTES], int64_t *ret_volume_id);

/* Paths that live sandboxes claim, each once and in their order, from the first one after `after`;
 * a bounded number per call. The callback must not put sandboxes. */
int store_each_claimed_path(struct store *store, const char *after,
                            int (*callback)(void *userdata, const char *path), void *userdata);
