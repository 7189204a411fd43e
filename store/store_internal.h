/* SPDX-License-Identifier: Apache-2.0 */
/* store_internal.h - what the files of store/ share among themselves. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "lib/buffer.h"
#include "lib/encode.h"
#include "lib/result.h"
#include "store/read.h"
#include "store/sql.h"
#include "store/store.h"

struct store_reader {
    struct sql_connection *connection;
    struct sql_connection own;             /* a reader that was opened by itself */
    const struct store_counters *counters; /* NULL: it was */
};

enum { TRIMMED_TABLES = 8, MSEC_PER_DAY = 24 * 60 * 60 * 1000 };

struct store {
    struct sql_connection connection;
    struct store_reader reader;
    char *path; /* NULL: in memory */
    char *boot_id;
    int64_t keep_ms;
    int64_t max_rows;
    dev_t file_device; /* of the file that is open */
    ino_t file_inode;
    bool unsynced;                         /* something was committed since the log was synced */
    struct buffer detail;                  /* of the journal's line that is written */
    int64_t now_ms;                        /* one time for everything in a transaction */
    int64_t uptime_ms;                     /* the same moment, since the boot */
    int64_t old_rows_left[TRIMMED_TABLES]; /* how many may still go today because of their age */
    int wal_pages;                         /* after the last commit */
    int wal_moved_pages;                   /* of these, after the last checkpoint */
    struct store_counters counters;
    struct store_counters counted_before; /* the transaction, if it has counted anything */
    bool is_counting;                     /* it has */
    bool has_no_unnamed;                  /* in this transaction: no volume's path is unknown */
};

/* Whether text from the file may be embedded as JSON. */
bool store_is_json(const char *text);

/* NULL for none. */
static inline struct sql_value sql_reason(enum volume_reason reason)
{
    return sql_text(reason == REASON_NONE ? NULL : reason_name(reason));
}

/* How many rows of history: fewer in memory. */
int64_t store_rows_kept(const struct store *store);

/* Statements of the store's connection; values are numbers, texts and struct sql_value. Of those
 * that have no result of their own, STORE_RESULT() is the result. */
#define STORE_RUN(store, text, ...)    store_result(STORE_CHANGE(store, text, ##__VA_ARGS__))
#define STORE_CHANGE(store, text, ...) /* how many rows, or a failure */                           \
    sql_change_values(&(store)->connection, text, SQL_VALUES(__VA_ARGS__))
#define STORE_NUMBER(store, text, ...) /* 0: there is none, or it is */                            \
    sql_number_values(&(store)->connection, text, SQL_VALUES(__VA_ARGS__))
#define STORE_HAS(store, text, ...) (STORE_NUMBER(store, text, ##__VA_ARGS__) != 0)
#define STORE_FIND_TEXT(store, text, ret_text, size, ...)                                          \
    sql_find_text(&(store)->connection, text, ret_text, size, SQL_VALUES(__VA_ARGS__))
#define STORE_QUERY(store, text, rows, ...)                                                        \
    sql_query_values(&(store)->connection, text, rows, SQL_VALUES(__VA_ARGS__))
#define STORE_FIRST(store, text, rows, ...)                                                        \
    sql_first_values(&(store)->connection, text, rows, SQL_VALUES(__VA_ARGS__))
#define STORE_EACH_NUMBER(store, text, callback, userdata, ...)                                    \
    sql_each_number(&(store)->connection, text, callback, userdata, SQL_VALUES(__VA_ARGS__))
#define STORE_EACH_TEXT(store, text, callback, userdata, ...)                                      \
    sql_each_text(&(store)->connection, text, callback, userdata, SQL_VALUES(__VA_ARGS__))
/* The failure of the last statement, or the first failure of the transaction that is open; 0: it
 * went well. */
#define STORE_RESULT(store) ((store)->connection.failure)

static inline int store_result(int changes)
{
    return changes < 0 ? changes : 0;
}

/* Writes a row only if it is not like that already. More conditions follow, each with its AND. */
#define SET_IF_OTHER(columns, values)                                                              \
    " SET (" columns ") = (" values ") WHERE (" columns ") IS NOT (" values ")"

/* Deletes those rows of `id` whose name is none of these. `select` is of their names, `delete` of
 * id and name. Whether there were any. */
bool store_delete_others(struct store *store, const char *select, const char *delete, int64_t id,
                         const char *const *first, size_t stride, unsigned count);

/* What a line of the journal is about. Where sandbox and device are NULL, they are the volume's
 * own. */
struct journal_subject {
    const struct store_volume *volume; /* in hand: it gives all of the following but is_complete */
    int64_t volume_id;
    const char *sandbox_id;
    const char *device;
    bool is_complete; /* these are all there are: nothing is looked up */
};

/* Names of members of its detail, each followed by its value; unknown ones are left out. */
#define JOURNAL(store, kind, about, ...) journal_write(store, kind, about, SQL_VALUES(__VA_ARGS__))
#define ABOUT(...)                       (&(const struct journal_subject){__VA_ARGS__})
int journal_write(struct store *store, const char *kind, const struct journal_subject *subject,
                  const struct sql_value *members, size_t count);

/* The counters, which a rollback takes back. */
struct store_counters *store_count(struct store *store);
void count_cleanup(struct store *store, const char *decision);
/* finished: the volume's newest resize. */
void count_resize(struct store *store, int64_t volume_id, enum volume_state state,
                  enum volume_reason reason, bool finished);

/* mappings.list: the list has the drive; it had the drive and is to be read again; below 0: how
 * often in a row it lacked the drive; NULL: it was not read. */
enum { LIST_HAS = 1, LIST_AGAIN = 2 };

/* What a device is known by and its size, in the order of their names; a row of a device that has
 * none (0: it has), and the journal's line about that. */
#define DEVICE_NAMES "boot_id, kind, name, major, minor, diskseq, file_device, inode, size_bytes"
enum { DEVICE_COLUMNS = 9 };
void device_take_columns(const struct store *store, const struct store_device *device,
                         struct sql_value ret_columns[static DEVICE_COLUMNS]);
int64_t device_insert(struct store *store, const struct store_device *device);
int device_journal_seen(struct store *store, const struct store_device *device);

/* Sandboxes of another boot are gone. */
int sandboxes_end_other_boots(struct store *store);

/* ---- place ---------------------------------------------------------------------------------- */

/* The files at the database's path: judged, set aside, cleared. */

enum place_kind {
    PLACE_NONE, /* nothing, or an empty file */
    PLACE_OURS,
    PLACE_FOREIGN, /* another application's database */
    PLACE_NEWER,   /* ours, of a newer schema */
    PLACE_DAMAGED, /* no database at all */
};

enum { PLACE_HEADER_BYTES = 100 };

/* What the first bytes of a file say; length may be less. */
enum place_kind place_judge_header(const unsigned char *header, size_t length);

/* Reads the file's header; touches nothing. -EISDIR, -EINVAL (a device, a FIFO), -errno. */
int place_judge(const char *path, enum place_kind *ret_kind, struct error *error);

/* Renames PATH, PATH-wal and PATH-shm to PATH.corrupt-N…, the database last: as long as it is
 * there, the next start sets it aside again. */
int place_set_aside(const char *path, struct error *error);

/* Whether there is any PATH.corrupt-N. */
bool place_has_set_aside(const char *path);

/* Whether a WAL that is not empty stands beside it. */
bool place_has_log(const char *path);

/* Before a new database: removes a WAL without its database, which would be replayed into the new
 * one. */
int place_clear(const char *path, struct error *error);

/* Whether a file of some size can be written and synced beside PATH: cheaper than opening a
 * database to find out. 0 or -errno. */
int place_try_room(const char *path, struct error *error);

int place_sync_directory(const char *path); /* of the directory that PATH is in */

/* PATH with a suffix, to be freed; NULL without memory. */
char *place_with(const char *path, const char *suffix);
