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
 * its pages. So leave_wal() has a new one begun before, whose header is flushed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/text.h"
#include "store/store_internal.h"

enum {
    WAL_IDLE_PAGES = 1000,  /* 4 MiB */
    WAL_MOST_PAGES = 16384, /* 64 MiB */
    MEMORY_ROWS = 20000,    /* of history; some 10 MiB */
};

const char *store_error_text(const struct store *store)
{
    return store->connection.error_text;
}

int64_t store_rows_kept(const struct store *store)
{
    return store->path || store->max_rows < MEMORY_ROWS ? store->max_rows : MEMORY_ROWS;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* By SQLite's own handle: closing another one would take its locks away. */
static int check_header(const struct store *store)
{
    unsigned char header[PLACE_HEADER_BYTES];
    sqlite3_file *file = NULL;
    int code = sqlite3_file_control(store->connection.db, "main", SQLITE_FCNTL_FILE_POINTER, &file);

    if (code != SQLITE_OK || !file || !file->pMethods)
        return STORE_UNREADABLE;
    code = file->pMethods->xRead(file, header, sizeof(header), 0);
    if (code != SQLITE_OK && code != SQLITE_IOERR_SHORT_READ)
        return STORE_UNREADABLE;
    return place_judge_header(header, sizeof(header)) == PLACE_OURS ? 0 : STORE_DAMAGED;
}

int store_check_file(const struct store *store)
{
    struct stat status;

    if (!store->path)
        return 0;
    if (stat(store->path, &status) < 0)
        return store_failure_of(-errno);
    if (status.st_dev != store->file_device || status.st_ino != store->file_inode)
        return STORE_REPLACED;
    return check_header(store);
}

bool store_is_in_memory(const struct store *store)
{
    return !store->path;
}

bool store_is_degraded(const struct store *store)
{
    return !store->path || store_check_file(store) < 0;
}

/* ---- transactions -------------------------------------------------------------------------- */

static const char rollback[] = "ROLLBACK";

int store_begin(struct store *store)
{
    static const char begin[] = "BEGIN IMMEDIATE";
    int r;

    store_rollback(store);
    store->now_ms = clock_realtime_ms();
    store->has_no_unnamed = false; /* it is to be found out */
    store->uptime_ms = (int64_t)(clock_boottime() / NSEC_PER_MSEC);
    r = sql_prepare(&store->connection, rollback);
    if (r == 0)
        r = STORE_RUN(store, begin);
    store->connection.is_latched = r == 0;
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
    int r = STORE_RUN(store, commit);

    if (r < 0)
        return r;
    store->connection.is_latched = false;
    histogram_add(&store->counters.commits,
                  (double)(clock_boottime() - began_ns) / (double)NSEC_PER_SEC);
    store->is_counting = false;
    return 0;
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
    store->connection.is_latched = false;
    if (store->is_counting)
        store->counters = store->counted_before;
    store->is_counting = false;
    if (!sqlite3_get_autocommit(store->connection.db))
        (void)STORE_RUN(store, rollback);
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
    return STORE_RUN(store, "UPDATE meta SET checkpoints = checkpoints + 1");
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

/* Before the file is closed: what is left of the WAL is small, and only its own commit is in it. */
static void leave_wal(struct store *store)
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

void store_keep_wal(struct store *store)
{
    int r = store_check_file(store);

    if (r != STORE_MISSING && r != STORE_REPLACED)
        (void)sqlite3_db_config(store->connection.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

void store_close(struct store *store)
{
    if (!store)
        return;
    leave_wal(store);
    sql_close(&store->connection);
    buffer_done(&store->detail);
    free(store->path);
    free(store->boot_id);
    free(store);
}

int store_contain(struct store *store, bool at_leisure)
{
    bool complete;

    if (!wal_has_grown_by(store, at_leisure ? WAL_MOST_PAGES : 2 * WAL_MOST_PAGES))
        return 0;
    return checkpoint(store, SQLITE_CHECKPOINT_PASSIVE, &complete);
}

/* ---- counters ------------------------------------------------------------------------------- */

struct store_counters *store_count(struct store *store)
{
    if (!store->is_counting)
        store->counted_before = store->counters;
    store->is_counting = true;
    return &store->counters;
}

const struct store_counters *store_reader_counters(const struct store_reader *reader)
{
    return reader->counters;
}

static void add_span(struct histogram *histogram, int64_t from_ms, int64_t to_ms)
{
    if (from_ms && to_ms >= from_ms)
        histogram_add(histogram, (double)(to_ms - from_ms) / 1000);
}

static void count_spans(struct store *store, int64_t volume_id)
{
    static const char find[] = "SELECT detected_at, hypervisor_at, guest_at, finished_at"
                               " FROM resizes WHERE volume_id = ?1 ORDER BY resize_id DESC LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    struct histogram *spans = store_count(store)->resizes;
    int64_t detected, hypervisor, guest, finished;

    STORE_FIRST(store, find, &rows, volume_id);
    TAKE(&rows, detected, hypervisor, guest, finished);
    add_span(&spans[STORE_STAGE_HYPERVISOR], detected, hypervisor);
    add_span(&spans[STORE_STAGE_GUEST], hypervisor, guest);
    add_span(&spans[STORE_STAGE_TOTAL], detected, finished);
}

/* The table has room for every reason; if it is full, a reason has an unknown name. */
void count_resize(struct store *store, int64_t volume_id, enum volume_state state,
                  enum volume_reason reason, bool finished)
{
    const bool grown = finished && state == STATE_IN_SYNC;
    const char *result = grown ? "grown" : finished ? "ended" : "blocked";
    struct store_counters *counters;
    struct store_counted_resize *row;

    if (!finished && reason == REASON_NONE)
        return;
    counters = store_count(store);
    row = counters->resize_result;
    while (row < counters->resize_result + counters->resize_results &&
           (strcmp(row->result, result) != 0 || strcmp(row->reason, reason_name(reason)) != 0))
        row++;
    if (row == counters->resize_result + STORE_COUNTED_RESIZES)
        return;
    if (row == counters->resize_result + counters->resize_results) {
        counters->resize_results++;
        (void)snprintf(row->result, sizeof(row->result), "%s", result);
        (void)snprintf(row->reason, sizeof(row->reason), "%s", reason_name(reason));
    }
    row->count++;
    if (grown)
        count_spans(store, volume_id);
}

void count_cleanup(struct store *store, const char *decision)
{
    enum cleanup_decision decided = cleanup_decision_from_name(decision);

    if (decided < CLEANUP_DECISIONS)
        store_count(store)->cleanups[decided]++;
}

bool store_delete_others(struct store *store, const char *select, const char *delete, int64_t id,
                         const char *const *first, size_t stride, unsigned count)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    bool deleted = false;

    STORE_QUERY(store, select, &rows, id);
    while (sql_next(&rows) > 0) {
        const char *name = sql_borrow_text(&rows);

        if (name_table_find(first, stride, count, name, count) == count)
            deleted |= STORE_CHANGE(store, delete, id, name) > 0;
    }
    return deleted;
}
