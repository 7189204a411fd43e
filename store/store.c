/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - the database committed and kept small.
 *
 * Committing. synchronous=NORMAL: a commit appends to the WAL and waits for no disk. A durable
 * commit syncs the WAL afterwards, by SQLite's own file handle; that covers every earlier commit
 * too. (The level itself can't be changed inside a transaction.) A commit that fails for lack of
 * memory may have happened: the repeated pass then finds its facts equal.
 *
 * The WAL. Automatic checkpoints are off, because they would delay the commit of some resize.
 * store_idle() makes them whenever the WAL has grown by WAL_IDLE_PAGES, and then writes one row, so
 * that the sync that SQLite makes before it restarts a WAL is over before the next event comes. A
 * daemon that never idles calls store_contain() after each pass, which checkpoints once the WAL has
 * grown by WAL_MOST_PAGES and no act waits for an answer, or by twice as much. Only a reader that
 * never ends its transaction can make it larger; when that reader is gone, the next checkpoint cuts
 * the file.
 *
 * At the end SQLite moves the WAL into the database and cuts its file to nothing, without a flush.
 * If only some of that lasts, an old beginning of the WAL would be taken for the newest state of
 * its pages. So store_leave_wal() has a new one begun before, whose header is flushed.
 */
#include "lib/clock.h"
#include "store/internal.h"

enum {
    WAL_IDLE_PAGES = 1000,  /* 4 MiB */
    WAL_MOST_PAGES = 16384, /* 64 MiB */
};

const char *store_error_text(const struct store *store)
{
    return store->connection.error_text;
}

/* ---- transactions -------------------------------------------------------------------------- */

static const char rollback[] = "ROLLBACK";

int store_begin(struct store *store)
{
    static const char begin[] = "BEGIN IMMEDIATE";
    int r;

    counts_drop(store);
    if (!sqlite3_get_autocommit(store->connection.db))
        store_rollback(store);
    store->now_ms = clock_realtime_ms();
    store->has_no_unnamed = false; /* it is to be found out */
    store->uptime_ms = (int64_t)(clock_boottime() / NSEC_PER_MSEC);
    r = sql_prepare(&store->connection, rollback);
    if (r == 0)
        r = sql_run_values(&store->connection, begin, NULL, NULL, 0);
    if (r == 0)
        r = counted_time_note(store);
    if (r < 0)
        store_rollback(store);
    return r;
}

/* Since the last checkpoint, or since the WAL began anew. */
static bool wal_has_grown_by(struct store *store, int pages)
{
    if (store->wal_pages < store->wal_moved_pages)
        store->wal_moved_pages = 0;
    return store->wal_pages - store->wal_moved_pages > pages;
}

static int checkpoint(struct store *store, int mode, bool *ret_complete)
{
    int in_wal = -1, moved = -1;
    int code = sqlite3_wal_checkpoint_v2(store->connection.db, "main", mode, &in_wal, &moved);

    store->wal_moved_pages = store->wal_pages;
    if (code != SQLITE_OK && code != SQLITE_BUSY)
        return sql_failed(&store->connection, code);
    *ret_complete = in_wal >= 0 && in_wal == moved;
    return 0;
}

int store_commit(struct store *store)
{
    static const char commit[] = "COMMIT";
    const uint64_t began_ns = clock_boottime();
    int r = sql_run_values(&store->connection, commit, NULL, NULL, 0);

    if (r == 0)
        counts_keep(store, (double)(clock_boottime() - began_ns) / (double)NSEC_PER_SEC);
    if (r == 0 && !store->path)
        store->written_in_memory = true;
    return r;
}

int store_sync(struct store *store)
{
    sqlite3_file *wal = NULL;
    int code;

    if (!store->path || !store->unsynced)
        return 0;
    code = sqlite3_file_control(store->connection.db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
    if (code == SQLITE_OK && wal && wal->pMethods)
        code = wal->pMethods->xSync(wal, SQLITE_SYNC_NORMAL);
    if (code != SQLITE_OK)
        return sql_failed(&store->connection, code);
    store->unsynced = false;
    return 0;
}

int store_commit_durable(struct store *store)
{
    int r = store_commit(store);

    return r < 0 ? r : store_sync(store);
}

void store_rollback(struct store *store)
{
    counts_drop(store);
    store->has_span = false;
    if (!sqlite3_get_autocommit(store->connection.db))
        (void)sql_run_values(&store->connection, rollback, NULL, NULL, 0);
}

int store_end(struct store *store, int r)
{
    if (r == 0)
        r = store_commit(store);
    if (r < 0)
        store_rollback(store);
    return r;
}

/* After a complete checkpoint: SQLite flushes the header of a new WAL before it writes this. */
static int restart_wal(struct store *store)
{
    static const char restart[] = "UPDATE meta SET checkpoints = checkpoints + 1";

    return sql_run_values(&store->connection, restart, NULL, NULL, 0);
}

int store_idle(struct store *store)
{
    const int mode =
        store->wal_pages > WAL_MOST_PAGES ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
    bool complete = false;
    int r;

    if (!wal_has_grown_by(store, WAL_IDLE_PAGES))
        return 0;
    r = checkpoint(store, mode, &complete);
    return r < 0 || !complete ? r : restart_wal(store);
}

void store_leave_wal(struct store *store)
{
    sqlite3 *db = store->connection.db;
    int keeps_wal = 0, in_wal = 0, moved = 0;

    if (!db || !store->path || store_check_file(store) != 0)
        return;
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1, &keeps_wal);
    if (!keeps_wal && sqlite3_get_autocommit(db) &&
        sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_PASSIVE, &in_wal, &moved) ==
            SQLITE_OK &&
        in_wal > 0 && in_wal == moved)
        (void)restart_wal(store);
}

int store_contain(struct store *store, bool at_leisure)
{
    bool complete;

    if (!wal_has_grown_by(store, at_leisure ? WAL_MOST_PAGES : 2 * WAL_MOST_PAGES))
        return 0;
    return checkpoint(store, SQLITE_CHECKPOINT_PASSIVE, &complete);
}
