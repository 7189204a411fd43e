/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - the model: what crustd believes, in SQLite.
 *
 * The daemon is the only writer and holds no second copy of this in memory. The caller brackets
 * each reconcile pass with store_begin() and store_commit(); every other function runs inside such
 * a transaction, except where it says otherwise. An equal fact writes nothing, and the caller that
 * puts a fact learns whether anything changed. Each change appends its own row to the journal.
 *
 * Errors: an enum store_failure (bounds.h); store_error_text() has SQLite's own words. After one
 * inside a transaction every function fails with it, until the caller rolls back and tries again.
 *
 * Times passed in and out are milliseconds since 1970 UTC, for people; *_ns are CLOCK_BOOTTIME and
 * mean something only within the boot whose id the store was opened with.
 */
#pragma once

#include "lib/result.h"
#include "store/bounds.h"
#include "store/devices.h"
#include "store/drive_mounts.h"
#include "store/journal.h"
#include "store/sandboxes.h"
#include "store/volumes.h"

/* ---- opening ---------------------------------------------------------------------------- */

enum store_opened {
    STORE_OPENED,
    STORE_FOREIGN, /* another application's database: never touched */
    STORE_NEWER,   /* a newer major version than this program's: never touched */
};

/* History that the file lacks, because a running daemon could not use it. */
struct store_gap {
    int64_t since_ms;
    const char *reason;
    bool is_certain; /* false: only if the file turns out to be damaged */
};

struct store_options {
    const char *path; /* NULL: in memory */
    const char *boot_id;
    uint32_t keep_days; /* history bounds */
    uint32_t max_rows;
    /* NULL: the daemon starts, and may wait for a program that keeps the file locked. */
    const struct store_gap *gap;
    struct store_opening *ret_opening; /* may be NULL */
};

/* A database whose minor version was brought up to this program's. */
struct schema_upgrade {
    bool upgraded;
    int64_t from_minor;
    uint64_t redacted; /* rows that held a secret */
};

struct store_opening {
    bool rebuilt;   /* it was corrupt: renamed to PATH.corrupt-N (two are kept) and begun anew */
    bool set_aside; /* there are such files */
    struct schema_upgrade upgrade;
};

/* Creates (0640, its directory must exist), migrates and checks the database. An enum
 * store_opened, or a failure.
 * Rows of another boot become history: their sandboxes are gone, their mappings closed. */
int store_open(const struct store_options *options, struct store **ret_store, struct error *error);
void store_close(struct store *store); /* checkpoints */

/* For a file that fails: closing it tries no last checkpoint, because committed data is in the WAL.
 * If another file took its place, our WAL must not stay beside that, and is emptied as usual. */
void store_keep_wal(struct store *store);

const char *store_error_text(const struct store *store);

int store_begin(struct store *store);
int store_commit(struct store *store); /* synchronous=NORMAL */
/* Synced to disk: before a removal or a promise. In memory there is no disk: see
 * store_is_degraded(). */
int store_commit_durable(struct store *store);
/* The second half of that, for several commits at once: what is committed is synced to disk. */
int store_sync(struct store *store);
void store_rollback(struct store *store);
/* Commits where all went well (r is 0); rolls back where it did not, or where that fails. 0 or the
 * first failure. */
int store_end(struct store *store, int r);

/* Outside a transaction, when the daemon has nothing else to do: moves the WAL into the database if
 * it has grown past a bound, so that a slow disk never delays a resize. */
int store_idle(struct store *store);

/* Outside a transaction, after each pass: the same for a daemon that is never idle, once the WAL is
 * very large; at_leisure: while no answer is waited for. Without leisure only at twice that size.
 */
int store_contain(struct store *store, bool at_leisure);

enum store_trimmed { STORE_TRIMMED, STORE_TRIM_MORE };

/* Trims history to its bounds, a bounded number of rows at a time. by_age: also a share of what is
 * too old; asked for once in a sweep. An enum store_trimmed, or a failure. */
int store_trim(struct store *store, bool by_age);

/* ---- when the file fails ---------------------------------------------------------------- */

bool store_is_in_memory(const struct store *store);

/* 0, STORE_MISSING or STORE_REPLACED under the daemon, STORE_DAMAGED, another failure. In memory
 * there is no file to be missed. */
int store_check_file(const struct store *store);

/* Whether commits are lost on exit: the store is in memory, or its file was removed or replaced.
 * Checked right before anything on the node is removed, which is then left alone. */
bool store_is_degraded(const struct store *store);
