/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opens, checks and closes the database.
 *
 * Making. A new database is built beside its place (PATH.new), complete and synced, and then
 * renamed: a file at PATH is always a whole database.
 *
 * Opening. A foreign or newer database is told by its first bytes and refused before SQLite sees it
 * (place.c). Ours is then checked by SQLite (quick_check) and by the digest of its schema
 * (schema_version.c); if it is found damaged twice, it is set aside and a new one begun. Only
 * damage leads there: a full disk, missing memory or a busy file are errors, forwarded.
 *
 * Memory. Without a path the store is an empty database in memory with the same schema. When a
 * running daemon opens the file (struct store_gap), free space is checked first, so that a full
 * disk does not cost the check of a whole database, and the journal then says since when history
 * is missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "store/schema.h"
#include "store/store_internal.h"

enum {
    BUSY_OPENING_MSEC = 5000,
    BUSY_MSEC = 100,
};

/* ---- making --------------------------------------------------------------------------------- */

static int harden(struct sql_connection *connection)
{
    int code = sqlite3_db_config(connection->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);

    if (code != SQLITE_OK)
        return sql_failed(connection, code);
    return sql_execute(connection, "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                                   "PRAGMA mmap_size = 0; PRAGMA cache_size = -512;"
                                   "PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;");
}

/* A whole database at `path`, which is an empty file or in memory. */
static int fill(struct sql_connection *connection, const char *path)
{
    char text[64];
    int r = sql_open(connection, path, SQLITE_OPEN_READWRITE);

    (void)snprintf(text, sizeof(text), "PRAGMA application_id = %d", SCHEMA_APPLICATION_ID);
    if (r == 0)
        r = harden(connection);
    if (r == 0)
        r = sql_execute(connection, text);
    return r < 0 ? r : schema_create(connection);
}

static int create_file(const char *path, struct error *error)
{
    cleanup(freep) char *new_path = place_with(path, ".new");
    cleanup(fd_closep) int fd = -1;
    struct sql_connection connection = {0};
    int r = place_clear(path, error);

    if (r < 0)
        return r;
    if (!new_path)
        return error_set_errno(error, -ENOMEM, "%s", path);
    (void)unlink(new_path);
    r = place_clear(new_path, error);
    if (r < 0)
        return r;
    fd = open(new_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (fd < 0 || fchmod(fd, 0640) < 0)
        return error_set_errno(error, -errno, "cannot create %s", new_path);
    r = fill(&connection, new_path);
    if (r == 0)
        r = sql_execute(&connection, "PRAGMA journal_mode = WAL");
    if (r < 0)
        (void)error_set(error, r, "cannot create %s: %s", new_path, connection.error_text);
    sql_close(&connection);
    if (r == 0 && (fsync(fd) < 0 || rename(new_path, path) < 0))
        r = error_set_errno(error, -errno, "cannot create %s", path);
    if (r < 0) {
        (void)unlink(new_path);
        return r;
    }
    r = place_sync_directory(path);
    return r < 0 ? error_set_errno(error, r, "cannot sync the directory of %s", path) : 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* From here on, closing may write. 0, STORE_NEWER, STORE_DAMAGED, -errno. */
static int check_version(struct sql_connection *connection, struct schema_upgrade *ret_upgrade)
{
    char verdict[SQL_TEXT_BYTES];
    int64_t version = 0;
    int r = sql_pragma_number(connection, "PRAGMA user_version", &version);

    if (r == 0 && version > STORE_SCHEMA_VERSION)
        return STORE_NEWER;
    if (r == 0 && version < 1)
        return STORE_DAMAGED;
    if (r == 0)
        r = sql_pragma_text(connection, "PRAGMA quick_check(1)", verdict, sizeof(verdict));
    /* The pages that the check has read are given back: it reads the whole database, once. */
    (void)sqlite3_db_release_memory(connection->db);
    if (r < 0)
        return r;
    if (strcmp(verdict, "ok") != 0) {
        memcpy(connection->error_text, verdict, sizeof(verdict));
        return STORE_DAMAGED;
    }
    (void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return schema_upgrade(connection, ret_upgrade);
}

static int note_wal(void *userdata, sqlite3 *db, const char *schema, int pages)
{
    struct store *store = userdata;

    (void)db;
    (void)schema;
    store->wal_pages = pages;
    store->unsynced = true;
    return SQLITE_OK;
}

/* Settings for files only. The WAL and its index stay after the last close, so that an auditor who
 * may not write into the directory can still read. */
static int configure_file(struct store *store)
{
    struct sql_connection *connection = &store->connection;
    struct stat status;
    int persist = 1;
    int r = sql_execute(connection, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                                    "PRAGMA journal_size_limit = 0;");

    if (r < 0)
        return r;
    if (stat(store->path, &status) < 0)
        return -errno;
    store->file_device = status.st_dev;
    store->file_inode = status.st_ino;
    (void)sqlite3_file_control(connection->db, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
    (void)sqlite3_wal_hook(connection->db, note_wal, store);
    return 0;
}

/* The WAL may know a newer version than the file's header, and a damaged file is evidence: until
 * both are known, nothing is written, not even by closing. 0, STORE_NEWER, STORE_DAMAGED, -errno;
 * then the connection is closed again. */
static int open_file(struct store *store, int busy_msec, struct schema_upgrade *ret_upgrade,
                     struct error *error)
{
    struct sql_connection *connection = &store->connection;
    int r = sql_open(connection, store->path, SQLITE_OPEN_READWRITE);

    if (r == 0) {
        (void)sqlite3_busy_timeout(connection->db, busy_msec);
        (void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        r = harden(connection);
    }
    if (r == 0)
        r = check_version(connection, ret_upgrade);
    if (r == 0)
        r = configure_file(store);
    if (r < 0)
        (void)error_set(error, r, "%s: %s", store->path, connection->error_text);
    if (r != 0)
        sql_close(connection);
    return r;
}

/* STORE_* or -errno. A power cut during a checkpoint may leave noise where the header stood; the
 * log still has the page, so SQLite is asked before such a file is set aside. */
static int open_or_create(struct store *store, int busy_msec, struct store_opening *ret_opening,
                          struct error *error)
{
    struct schema_upgrade *upgrade = &ret_opening->upgrade;
    enum place_kind kind = PLACE_NONE;
    int r = place_judge(store->path, &kind, error);

    if (r < 0)
        return r;
    if (kind == PLACE_FOREIGN)
        return error_set(error, STORE_FOREIGN, "%s belongs to another application", store->path);
    if (kind == PLACE_OURS || (kind == PLACE_DAMAGED && place_has_log(store->path))) {
        r = open_file(store, busy_msec, upgrade, error);
        /* Damage counts only if it is found twice, because missing memory can look like damage. */
        if (r == STORE_DAMAGED)
            r = open_file(store, busy_msec, upgrade, error);
        /* The other two are what SQLite says of a header of no format that it knows. */
        if (r == STORE_DAMAGED ||
            (kind == PLACE_DAMAGED && (r == STORE_READ_ONLY || r == STORE_UNREADABLE)))
            kind = PLACE_DAMAGED;
        else if (r != STORE_NEWER)
            return r;
    }
    if (kind == PLACE_NEWER || r == STORE_NEWER)
        return error_set(error, STORE_NEWER, "%s was written by a newer version of crustd",
                         store->path);
    r = kind == PLACE_DAMAGED ? place_set_aside(store->path, error) : 0;
    if (r == 0)
        r = create_file(store->path, error);
    if (r == 0)
        r = open_file(store, busy_msec, upgrade, error);
    if (r == 0)
        ret_opening->rebuilt = kind == PLACE_DAMAGED;
    return r;
}

static int open_memory(struct sql_connection *connection, struct error *error)
{
    int r = fill(connection, ":memory:");

    if (r == 0)
        return 0;
    sql_close(connection);
    return error_set(error, r, "in memory: %s", connection->error_text);
}

#define FORGET_AGES                                                                                \
    "UPDATE entries SET stale_since_ns = NULL; UPDATE entry_sandboxes SET stale_since_ns = NULL"

/* Facts of another boot about devices, VMMs and waiting do not hold in this one. Resizes stay open
 * and follow their volume: whether the file system has grown is not known before a guest has
 * mounted it again. */
static void begin_boot(struct store *store, bool rebuilt)
{
    static const char set_boot[] = "INSERT INTO meta (one, boot_id) VALUES (1, ?1)"
                                   " ON CONFLICT (one) DO UPDATE SET boot_id = excluded.boot_id";

    if (!STORE_HAS(store, "SELECT 1 FROM meta WHERE boot_id = ?1", store->boot_id)) {
        sandboxes_end_other_boots(store);
        STORE_RUN(store,
                  "UPDATE volumes SET device_id = NULL, attempts = 0, next_attempt_ns = NULL,"
                  " next_attempt_ms = NULL WHERE removed_at IS NULL");
        sql_execute(&store->connection, "UPDATE trash SET since_ns = 0;" FORGET_AGES);
        STORE_RUN(store, set_boot, store->boot_id);
    }
    JOURNAL(store, "store_opened", ABOUT(0), "boot_id", store->boot_id, "rebuilt",
            sql_known(rebuilt), "in_memory", sql_known((uint64_t)!store->path));
}

/* The file does not show what happened in the gap, nor whether metadata that looked stale has
 * looked so ever since. */
static void note_gap(struct store *store, const struct store_gap *gap)
{
    char since[CLOCK_TEXT_BYTES];

    sql_execute(&store->connection, FORGET_AGES);
    clock_text(gap->since_ms, since);
    JOURNAL(store, "history_missing", ABOUT(0), "since", since, "reason", gap->reason);
}

static int begin_store(struct store *store, const struct store_opening *opening,
                       const struct store_gap *gap, struct error *error)
{
    const struct schema_upgrade *upgrade = &opening->upgrade;
    int r = store_begin(store);

    if (r == 0) {
        begin_boot(store, opening->rebuilt);
        if (upgrade->upgraded)
            JOURNAL(store, "store_upgraded", ABOUT(0), "from_minor", upgrade->from_minor,
                    "to_minor", SCHEMA_MINOR_VERSION, "redacted", upgrade->redacted);
        if (gap && (gap->is_certain || opening->rebuilt))
            note_gap(store, gap);
        r = store_commit(store);
    }
    (void)sqlite3_busy_timeout(store->connection.db, BUSY_MSEC);
    if (r == 0)
        return 0;
    error_set(error, r, "%s: %s", store->path ? store->path : "in memory",
              store->connection.error_text);
    store_rollback(store);
    return r;
}

static void store_freep(struct store **store)
{
    store_close(*store);
}

int store_open(const struct store_options *options, struct store **ret_store, struct error *error)
{
    cleanup(store_freep) struct store *store = calloc(1, sizeof(*store));
    const int busy_msec = options->gap ? BUSY_MSEC : BUSY_OPENING_MSEC;
    struct store_opening opening = {0};
    int r = 0;

    if (!store)
        return error_set_errno(error, -ENOMEM, "cannot open the database");
    store->path = options->path ? strdup(options->path) : NULL;
    store->boot_id = strdup(options->boot_id);
    if (!store->boot_id || (options->path && !store->path))
        return error_set_errno(error, -ENOMEM, "cannot open the database");
    store->keep_ms = (int64_t)options->keep_days * MSEC_PER_DAY;
    store->max_rows = options->max_rows;
    store->reader.connection = &store->connection;
    store->reader.counters = &store->counters;
    if (store->path && options->gap)
        r = place_try_room(store->path, error);
    if (r == 0)
        r = store->path ? open_or_create(store, busy_msec, &opening, error)
                        : open_memory(&store->connection, error);
    if (r == STORE_OPENED)
        r = begin_store(store, &opening, options->gap, error);
    if (r != STORE_OPENED)
        return store_failure_of(r);
    opening.set_aside = store->path && place_has_set_aside(store->path);
    if (options->ret_opening)
        *options->ret_opening = opening;
    *ret_store = take_pointer(&store);
    return STORE_OPENED;
}
