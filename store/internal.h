/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of store/ share among themselves. */
#pragma once

#include <sys/stat.h>

#include "lib/buffer.h"
#include "lib/sha256.h"
#include "store/counters.h"
#include "store/read.h"
#include "store/sql.h"
#include "store/store.h"

struct store_reader {
    struct sql_connection *connection;
    struct sql_connection own;             /* a reader that was opened by itself */
    const struct store_counters *counters; /* NULL: it was */
};

/* The newest row of clock_spans: when it began, by three clocks. */
struct clock_span {
    int64_t counted_ms;
    int64_t wall_ms;
    int64_t uptime_ms;
};

struct store {
    struct sql_connection connection;
    struct store_reader reader;
    char *path; /* NULL: in memory */
    char *boot_id;
    int64_t keep_ms;
    int64_t max_rows;
    dev_t file_device; /* of the file that is open, or was before it was left */
    ino_t file_inode;
    int64_t left_ms;        /* since when it is in memory */
    bool written_in_memory; /* which no file has */
    bool unsynced;          /* something was committed since the log was synced */
    struct buffer detail;   /* of the journal's line that is written */
    int64_t now_ms;         /* one time for everything in a transaction */
    int64_t uptime_ms;      /* the same moment, since the boot */
    struct clock_span span;
    bool has_span;       /* and the transaction in which it was read or made was not rolled back */
    int wal_pages;       /* after the last commit */
    int wal_moved_pages; /* of these, after the last checkpoint */
    struct store_counters counters;
    struct store_counters pending; /* of the transaction that is open */
    bool counts_pending;           /* it has any */
    bool has_no_unnamed;           /* in this transaction: no volume's path is unknown */
};

/* Whether text from the file may be embedded as JSON. */
bool store_is_json(const char *text);

/* Before the file is closed: what is left of the WAL is small, and only its own commit is in it. */
void store_leave_wal(struct store *store);

/* NULL for none. */
static inline struct sql_value sql_reason(enum volume_reason reason)
{
    return sql_text(reason == REASON_NONE ? NULL : reason_name(reason));
}

/* How many rows of history: fewer in memory. */
int64_t store_rows_kept(const struct store *store);

/* The journal's lines of store/ itself: up to four members; unknown ones are left out. Where
 * sandbox and device are NULL, they are the volume's own. */
struct journal_member {
    const char *name;
    struct sql_value value;
};

enum { JOURNAL_MEMBERS = 4 };

struct journal_line {
    const char *kind;
    const struct store_volume *volume; /* in hand: the three below are its own; NULL: it is not */
    int64_t volume_id;
    const char *sandbox_id;
    const char *device;
    bool is_complete; /* these are all there are: nothing is looked up */
    struct journal_member detail[JOURNAL_MEMBERS];
};

int journal_write(struct store *store, const struct journal_line *line);

/* store.c. Called when a transaction begins: whether the clock was set meanwhile. */
int counted_time_note(struct store *store);
/* What is older by the clock is older than keep_ms, however often the clock was set. */
int counted_time_find_limit(struct store *store, int64_t *ret_limit_ms);
/* Now and then: so that another boot goes on counting from here. */
int counted_time_keep(struct store *store);

/* store.c: in a transaction; with its commit; with a rollback. finished: the volume's newest
 * resize. */
int count_resize(struct store *store, int64_t volume_id, enum volume_state state,
                 enum volume_reason reason, bool finished);
void count_cleanup(struct store *store, const char *decision);
void count_published(struct store *store);
void counts_keep(struct store *store, double commit_seconds);
void counts_drop(struct store *store);

/* mappings.list: the list has the drive; it had the drive and is to be read again; below 0: how
 * often in a row it lacked the drive; NULL: it was not read. */
enum { LIST_HAS = 1, LIST_AGAIN = 2 };

/* Closes every open mapping of a sandbox that ended. */
int bindings_close_of_sandbox(struct store *store, int64_t sandbox_ref);

/* The name that hides this path; "" for NULL. */
const char *hash_path(const char *path, char ret_hash[static SHA256_HEX_BYTES]);
/* The live volume of this name whose path is not known; 0: none. */
int unresolved_find(struct store *store, const char *key, int64_t *ret_volume_id);
int volume_set_path(struct store *store, int64_t volume_id, const char *path);

/* volume_state.c: the live volume of this path, or of this name if no path is known for it (0:
 * none); one more live volume, or STORE_TOO_MANY; a new one, whose leading entry is the next that
 * is inserted (device_id 0: not known); what its entries make of it; its end. */
int volume_find(struct store *store, const char *target_path, const char *key,
                int64_t *ret_volume_id);
int volume_count(struct store *store);
int volume_add(struct store *store, const struct store_entry *entry, int64_t device_id,
               int64_t *ret_volume_id);
int volume_refresh(struct store *store, int64_t volume_id);
int volume_end(struct store *store, int64_t volume_id);

/* Forgets the guest's answers: they were not about the volume, or no longer are. */
int guest_stats_forget(struct store *store, int64_t volume_id);

/* devices.c: what a device is known by and its size, in the order of their names; a row of a device
 * that has none (0: it has), and the journal's line about that. */
#define DEVICE_NAMES "boot_id, kind, name, major, minor, diskseq, file_device, inode, size_bytes"
enum { DEVICE_COLUMNS = 9 };
void device_take_columns(const struct store *store, const struct store_device *device,
                         struct sql_value ret_columns[static DEVICE_COLUMNS]);
int device_insert(struct store *store, const struct store_device *device, int64_t *ret_device_id);
int device_journal_seen(struct store *store, const struct store_device *device);

/* No retry waits and none has failed. */
int volume_clear_attempts(struct store *store, int64_t volume_id);

/* Sandboxes of another boot are gone. */
int sandboxes_end_other_boots(struct store *store);

/* ---- entry row ------------------------------------------------------------------------------ */

/* One row of entries with its sandboxes.
 *
 * Functions return 0 or an enum store_failure unless they say otherwise.
 */

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
