/* store.c - the database opened, committed and kept small.
 *
 * Making. A new database is built beside its place (PATH.new), in full, synced and renamed: whoever
 * finds PATH finds a whole database.
 *
 * Opening. A foreign or newer database is told by its first bytes and refused before SQLite sees it
 * (place.c). Ours is then checked by SQLite (quick_check) and against our own schema; if it is
 * found damaged twice, it is set aside and a new one begun. Only damage leads there: a full disk,
 * missing memory or a busy file are errors, forwarded.
 *
 * Committing. synchronous=NORMAL: a commit appends to the WAL and waits for no disk. A durable
 * commit syncs the WAL afterwards, by SQLite's own file handle; that covers every earlier commit
 * too. (The level itself can't be changed inside a transaction.) A commit that fails for want of
 * memory may have happened: the turn that is taken again then finds its facts equal.
 *
 * The WAL. Automatic checkpoints are off, for they would fall into some growth's commit.
 * store_idle() does them, each time that the WAL has grown by WAL_IDLE_PAGES, and then writes one
 * row, so that the sync which SQLite makes before it starts a WAL anew is over before the next
 * event comes. A daemon that never idles is bounded by store_commit(), which checkpoints whenever
 * the WAL has grown by WAL_MOST_PAGES. Only a reader that never ends its transaction can make it
 * larger; when that reader is gone, the next checkpoint cuts the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "store/internal.h"
#include "store/place.h"
#include "store/schema.h"
#include "store/sql_path.h"

enum {
    WAL_IDLE_PAGES = 1000,  /* 4 MiB */
    WAL_MOST_PAGES = 16384, /* 64 MiB */
    MSEC_PER_DAY = 24 * 60 * 60 * 1000,
    BUSY_OPENING_MSEC = 5000,
    BUSY_MSEC = 100,
};

/* ---- opening ------------------------------------------------------------------------------- */

static int connect_file(struct sql_connection *connection, const char *path)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    int code = sqlite3_open_v2(path ? path : ":memory:", &connection->db, flags, sql_path_vfs());

    return code == SQLITE_OK ? 0 : sql_failed(connection, code);
}

static int harden(struct sql_connection *connection)
{
    int code = sqlite3_db_config(connection->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);

    if (code != SQLITE_OK)
        return sql_failed(connection, code);
    return sql_execute(connection, "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                                   "PRAGMA mmap_size = 0; PRAGMA cache_size = -512;"
                                   "PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;");
}

static int create_schema(struct sql_connection *connection)
{
    char text[64];
    int r = harden(connection);

    (void)snprintf(text, sizeof(text), "PRAGMA application_id = %d", SCHEMA_APPLICATION_ID);
    if (r == 0)
        r = sql_execute(connection, text);
    return r < 0 ? r : schema_migrate(connection, 0);
}

/* A whole database at `path`, which is an empty file. */
static int fill_file(const char *path, struct error *error)
{
    struct sql_connection connection = {0};
    int r = connect_file(&connection, path);

    if (r == 0)
        r = create_schema(&connection);
    if (r == 0)
        r = sql_execute(&connection, "PRAGMA journal_mode = WAL");
    if (r < 0)
        (void)error_set(error, r, "cannot create %s: %s", path, connection.error_text);
    sql_close(&connection);
    return r;
}

static int create_file(const char *path, struct error *error)
{
    cleanup(freep) char *new_path = place_with(path, ".new");
    cleanup(fd_closep) int fd = -1;
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
    r = fill_file(new_path, error);
    if (r == 0 && (fsync(fd) < 0 || rename(new_path, path) < 0))
        r = error_set_errno(error, -errno, "cannot create %s", path);
    if (r < 0) {
        (void)unlink(new_path);
        return r;
    }
    r = place_sync_directory(path);
    return r < 0 ? error_set_errno(error, r, "cannot sync the directory of %s", path) : 0;
}

static int quick_check(struct sql_connection *connection)
{
    static const char check[] = "PRAGMA quick_check(1)";
    cleanup(sql_end) struct sql_rows rows = {0};
    const char *text;
    int r = sql_first_values(connection, check, &rows, NULL, 0);

    if (r <= 0)
        return r < 0 ? r : -EUCLEAN;
    text = sql_borrow_text(&rows);
    if (strcmp(text, "ok") == 0)
        return 0;
    (void)snprintf(connection->error_text, sizeof(connection->error_text), "%s", text);
    return -EUCLEAN;
}

/* The WAL may know a newer version than the file's header: until that is known, nothing is written,
 * not even by closing. 0, STORE_NEWER, -errno. */
static int check_version(struct sql_connection *connection)
{
    int64_t version = 0;
    int r;

    (void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    r = sql_pragma_number(connection, "PRAGMA user_version", &version);
    if (r < 0)
        return r;
    if (version > STORE_SCHEMA_VERSION)
        return STORE_NEWER;
    (void)sqlite3_db_config(connection->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (version < 1)
        return -EUCLEAN;
    r = quick_check(connection);
    if (r == 0 && version < STORE_SCHEMA_VERSION)
        r = schema_migrate(connection, version);
    return r < 0 ? r : schema_check(connection);
}

static int note_wal(void *userdata, sqlite3 *db, const char *schema, int pages)
{
    struct store *store = userdata;

    (void)db;
    (void)schema;
    store->wal_pages = pages;
    return SQLITE_OK;
}

/* What only a file needs. The WAL and its index stay after the last close, so that an auditor who
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

/* 0, STORE_NEWER, -errno; then the connection is closed again. An auditor locks
 * the file while it reads the WAL anew after a crash, and for microseconds when it met a commit
 * half way: both are waited for. */
static int open_file(struct store *store, struct error *error)
{
    struct sql_connection *connection = &store->connection;
    int r = connect_file(connection, store->path);

    if (r == 0)
        (void)sqlite3_busy_timeout(connection->db, BUSY_OPENING_MSEC);
    if (r == 0)
        r = harden(connection);
    if (r == 0)
        r = check_version(connection);
    if (r == 0)
        r = configure_file(store);
    if (r < 0)
        (void)error_set(error, r, "%s: %s", store->path, connection->error_text);
    if (r != 0)
        sql_close(connection);
    return r;
}

/* STORE_* or -errno. */
static int open_or_create(struct store *store, bool *ret_rebuilt, struct error *error)
{
    enum place_kind kind = PLACE_NONE;
    int r = place_judge(store->path, &kind, error);

    if (r < 0)
        return r;
    if (kind == PLACE_FOREIGN)
        return error_set(error, STORE_FOREIGN, "%s belongs to another application", store->path);
    if (kind == PLACE_OURS) {
        r = open_file(store, error);
        /* Believed when it is found twice: missing memory can look like damage. */
        if (r == -EUCLEAN)
            r = open_file(store, error);
        if (r == -EUCLEAN)
            kind = PLACE_DAMAGED;
        else if (r != STORE_NEWER)
            return r;
    }
    if (kind == PLACE_NEWER || r == STORE_NEWER)
        return error_set(error, STORE_NEWER, "%s was written by a newer version", store->path);
    r = kind == PLACE_DAMAGED ? place_set_aside(store->path, error) : 0;
    if (r == 0)
        r = create_file(store->path, error);
    if (r == 0)
        r = open_file(store, error);
    if (r == 0)
        *ret_rebuilt = kind == PLACE_DAMAGED;
    return r;
}

static int open_memory(struct store *store, struct error *error)
{
    int r = connect_file(&store->connection, NULL);

    if (r == 0)
        r = create_schema(&store->connection);
    return r < 0 ? error_set(error, r, "in memory: %s", store->connection.error_text) : 0;
}

/* What another boot knew about devices, VMMs and waiting is worth nothing in this one. Growths stay
 * open and follow their volume: whether the file system has grown is not known before a guest has
 * mounted it again. */
static int begin_boot(struct store *store, bool rebuilt)
{
    static const char known_boot[] = "SELECT 1 FROM meta WHERE boot_id = ?1";
    static const char set_boot[] = "INSERT INTO meta (one, boot_id) VALUES (1, ?1)"
                                   " ON CONFLICT (one) DO UPDATE SET boot_id = excluded.boot_id";
    static const char forget[] =
        "UPDATE volumes SET device_id = NULL, attempts = 0, next_attempt_ns = NULL,"
        " next_attempt_ms = NULL WHERE removed_at IS NULL";
    static const char forget_ages[] =
        "UPDATE trash SET since_ns = 0; UPDATE entries SET stale_since_ns = NULL";
    struct sql_connection *connection = &store->connection;
    struct sql_value boot = sql_text(store->boot_id);
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(connection, known_boot, &rows, boot);

    if (r < 0)
        return r;
    if (r == 0) {
        r = sandboxes_end_other_boots(store);
        if (r == 0)
            r = sql_run_values(connection, forget, NULL, NULL, 0);
        if (r == 0)
            r = sql_execute(connection, forget_ages);
        if (r == 0)
            r = sql_run(connection, set_boot, NULL, boot);
        if (r < 0)
            return r;
    }
    return journal_write(
        store, &(struct journal_line){
                   .kind = "store_opened",
                   .detail = {{"boot_id", boot}, {"rebuilt", sql_known((uint64_t)rebuilt)}}});
}

static int begin_store(struct store *store, bool rebuilt, struct error *error)
{
    int r = store_begin(store);

    if (r == 0)
        r = begin_boot(store, rebuilt);
    if (r == 0)
        r = store_commit(store);
    (void)sqlite3_busy_timeout(store->connection.db, BUSY_MSEC);
    if (r == 0)
        return 0;
    store_rollback(store);
    return error_set(error, r, "%s: %s", store->path ? store->path : "in memory",
                     store->connection.error_text);
}

static void store_freep(struct store **store)
{
    store_close(*store);
}

int store_open(const struct store_options *options, struct store **ret_store, struct error *error)
{
    cleanup(store_freep) struct store *store = calloc(1, sizeof(*store));
    bool rebuilt = false;
    int r;

    if (!store)
        return error_set_errno(error, -ENOMEM, "cannot open the database");
    store->path = options->path ? strdup(options->path) : NULL;
    store->boot_id = strdup(options->boot_id);
    if (!store->boot_id || (options->path && !store->path))
        return error_set_errno(error, -ENOMEM, "cannot open the database");
    store->keep_ms = (int64_t)options->keep_days * MSEC_PER_DAY;
    store->max_rows = options->max_rows;
    store->reader.connection = &store->connection;
    r = store->path ? open_or_create(store, &rebuilt, error) : open_memory(store, error);
    if (r == STORE_OPENED)
        r = begin_store(store, rebuilt, error);
    if (r != STORE_OPENED)
        return r;
    if (options->ret_rebuilt)
        *options->ret_rebuilt = rebuilt;
    *ret_store = take_pointer(&store);
    return STORE_OPENED;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    sql_close(&store->connection);
    free(store->path);
    free(store->boot_id);
    free(store);
}

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

    store_rollback(store);
    store->now_ms = clock_realtime_ms();
    r = sql_prepare(&store->connection, rollback);
    return r < 0 ? r : sql_run_values(&store->connection, begin, NULL, NULL, 0);
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
    int r = sql_run_values(&store->connection, commit, NULL, NULL, 0);
    bool complete;

    /* The commit stands whatever becomes of the checkpoint. */
    if (r == 0 && wal_has_grown_by(store, WAL_MOST_PAGES))
        (void)checkpoint(store, SQLITE_CHECKPOINT_PASSIVE, &complete);
    return r;
}

int store_commit_durable(struct store *store)
{
    sqlite3_file *wal = NULL;
    int r = store_commit(store);
    int code;

    if (r < 0 || !store->path)
        return r;
    code = sqlite3_file_control(store->connection.db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
    if (code == SQLITE_OK && wal && wal->pMethods)
        code = wal->pMethods->xSync(wal, SQLITE_SYNC_NORMAL);
    return code == SQLITE_OK ? 0 : sql_failed(&store->connection, code);
}

void store_rollback(struct store *store)
{
    if (!sqlite3_get_autocommit(store->connection.db))
        (void)sql_run_values(&store->connection, rollback, NULL, NULL, 0);
}

int store_idle(struct store *store)
{
    static const char restart[] = "UPDATE meta SET checkpoints = checkpoints + 1";
    int mode =
        store->wal_pages > WAL_MOST_PAGES ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
    bool complete = false;
    int r;

    if (!wal_has_grown_by(store, WAL_IDLE_PAGES))
        return 0;
    r = checkpoint(store, mode, &complete);
    if (r < 0 || !complete)
        return r;
    return sql_run_values(&store->connection, restart, NULL, NULL, 0);
}

int store_check_file(const struct store *store)
{
    struct stat status;

    if (!store->path)
        return 0;
    if (stat(store->path, &status) < 0)
        return -errno;
    return status.st_dev == store->file_device && status.st_ino == store->file_inode ? 0 : -ESTALE;
}

bool store_is_degraded(const struct store *store)
{
    return !store->path || store_check_file(store) < 0;
}
