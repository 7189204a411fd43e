/* SPDX-License-Identifier: Apache-2.0 */
/* entry_row.h - one row of entries with its sandboxes. Private to store/.
 *
 * Functions return 0 or an enum store_failure unless they say otherwise.
 */
#pragma once

#include "store/internal.h"

struct known_entry {
    int64_t entry_id; /* 0: none */
    int64_t volume_id;
    uint64_t device, inode;
    int64_t born_ns;
    char target_path[STORE_TARGET_BYTES];
    bool has_same_facts; /* as those observed */
    bool is_on_device;   /* its volume is on the device that the observed entry leads to */
    unsigned sandboxes;
};

/* The live entry of this name; ret_entry->entry_id 0: none. */
int entry_row_find(struct store *store, enum volume_layout layout, const char *key,
                   struct known_entry *ret_entry);
/* The same, and how it differs from what was observed. */
int entry_row_compare(struct store *store, const struct store_entry *entry,
                      struct known_entry *ret_entry);
/* After entry_row_compare(). As sql_next(), SQL_ROW: nothing has to be written. */
int entry_row_has_same(struct store *store, const struct store_entry *entry,
                       const struct known_entry *known);
void entry_row_forget(struct known_entry *entry);

/* The facts, or the problem beside the facts that were known before. entry_id 0 makes a new row.
 * ret_changes (may be NULL): rows that are not as before. */
int entry_row_write(struct store *store, const struct store_entry *entry, int64_t entry_id,
                    int64_t volume_id, int *ret_changes);
/* The names of sandboxes in the directory, no more and no less; and for a new row, which has none
 * yet. Both add to *ret_changes. */
int entry_row_write_sandboxes(struct store *store, const struct store_entry *entry,
                              int64_t entry_id, int *ret_changes);
int entry_row_add_sandboxes(struct store *store, const struct store_entry *entry, int64_t entry_id,
                            int *ret_changes);
