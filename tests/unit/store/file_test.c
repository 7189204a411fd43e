/* SPDX-License-Identifier: Apache-2.0 */
/* file_test.c - the database file: made whole, judged, set aside, committed, kept small. */
#include "tests/unit/store/fixture.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "store/schema.h"

static bool is_there(const struct fixture *fixture, const char *suffix)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "%s%s", fixture->path, suffix);
    return access(path, F_OK) == 0;
}

/* Opens, says whether it had to be rebuilt, closes. */
static bool is_rebuilt(struct fixture *fixture)
{
    struct store_opening opening = {0};
    struct error error = {0};
    struct store_options options = {.path = fixture->path,
                                    .boot_id = "boot-1",
                                    .keep_days = 90,
                                    .max_rows = 1000,
                                    .ret_opening = &opening};
    int r = store_open(&options, &fixture->store, &error);

    if (r != STORE_OPENED)
        fail_msg("%d %s", r, error.text);
    store_close(fixture->store);
    fixture->store = NULL;
    return opening.rebuilt;
}

static void write_file(const struct fixture *fixture, const void *bytes, size_t length)
{
    FILE *file = fopen(fixture->path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static size_t read_file(const struct fixture *fixture, void *ret_bytes, size_t size)
{
    FILE *file = fopen(fixture->path, "r");
    size_t length;

    assert_non_null(file);
    length = fread(ret_bytes, 1, size, file);
    (void)fclose(file);
    return length;
}

/* ---- counting ---- */

static uint64_t published(struct store *store)
{
    return store_reader_counters(store_get_reader(store))->published;
}

static void put_one(struct store *store, const char *key, const char *problem, uint64_t inode)
{
    struct store_entry entry = {.key = key,
                                .target_path = key,
                                .problem = problem,
                                .device = problem ? NULL : "/dev/loop0",
                                .mount_info_sha256 = problem ? NULL : "aa",
                                .directory_inode = problem ? 0 : inode};
    int64_t id;
    bool changed;

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_put_entry(store, &entry, &id, &changed), 0);
    assert_int_equal(store_commit(store), 0);
}

/* Over restarts too: what was on record is not counted by the next run. */
static void a_volume_is_counted_once(void **state)
{
    struct fixture *fixture = *state;
    const struct store_options options = {
        .path = fixture->path, .boot_id = "boot-1", .keep_days = 90, .max_rows = 1000};
    struct error error = {0};

    assert_int_equal(store_open(&options, &fixture->store, &error), STORE_OPENED);
    put_one(fixture->store, "/a", NULL, 1);
    put_one(fixture->store, "/a", NULL, 1);
    assert_int_equal(published(fixture->store), 1);
    put_one(fixture->store, "/b", "empty", 0);
    assert_int_equal(published(fixture->store), 1);
    put_one(fixture->store, "/b", NULL, 2); /* it reads well at last */
    put_one(fixture->store, "/b", "broken", 0);
    put_one(fixture->store, "/b", NULL, 2);
    assert_int_equal(published(fixture->store), 2);
    put_one(fixture->store, "/a", NULL, 3); /* staged anew: another directory */
    assert_int_equal(published(fixture->store), 3);
    store_close(fixture->store);
    assert_int_equal(store_open(&options, &fixture->store, &error), STORE_OPENED);
    put_one(fixture->store, "/a", NULL, 3);
    put_one(fixture->store, "/b", NULL, 2);
    assert_int_equal(published(fixture->store), 0);
    put_one(fixture->store, "/c", NULL, 4);
    assert_int_equal(published(fixture->store), 1);
    assert_int_equal(store_fall_back(fixture->store, &error), 0);
    put_one(fixture->store, "/a", NULL, 3); /* new to the memory only */
    assert_int_equal(published(fixture->store), 1);
}

/* ---- making -------------------------------------------------------------------------------- */

static void a_new_database_is_recognised(void **state)
{
    struct fixture *fixture = *state;
    struct stat status;

    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
    assert_int_equal(number_of(fixture->store, "PRAGMA application_id"), 0x43525354);
    assert_int_equal(number_of(fixture->store, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
    assert_text_of(fixture->store, "PRAGMA journal_mode", "wal");
    assert_int_equal(number_of(fixture->store, "PRAGMA synchronous"), 1);
    assert_int_equal(number_of(fixture->store, "PRAGMA foreign_keys"), 1);
    assert_int_equal(number_of(fixture->store, "PRAGMA trusted_schema"), 0);
    assert_int_equal(number_of(fixture->store, "PRAGMA wal_autocheckpoint"), 0);
    assert_false(is_there(fixture, ".new"));
}

static void commits_survive_a_restart(void **state)
{
    struct fixture *fixture = *state;
    struct bound bound;

    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(store_begin(fixture->store), 0);
    bound = put_bound(fixture->store);
    assert_int_equal(store_commit_durable(fixture->store), 0);
    assert_int_equal(store_begin(fixture->store), 0);
    assert_int_equal(store_journal(fixture->store, "lost", 0, NULL, NULL, NULL), 0);
    store_rollback(fixture->store);
    store_close(fixture->store);
    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(get_volume(fixture->store, bound.volume_id).live_sandboxes, 1);
    assert_int_equal(lines_of(fixture->store, "lost"), 0);
}

static void an_empty_file_and_a_stray_wal_do_no_harm(void **state)
{
    struct fixture *fixture = *state;
    char wal[160];
    FILE *file;

    write_file(fixture, "", 0);
    (void)snprintf(wal, sizeof(wal), "%s-wal", fixture->path);
    file = fopen(wal, "w");
    assert_non_null(file);
    (void)fputs("somebody else's frames", file);
    (void)fclose(file);
    assert_false(is_rebuilt(fixture));
    assert_true(is_there(fixture, ".corrupt-1-wal"));
}

static void a_place_that_cannot_hold_a_database_is_an_error(void **state)
{
    struct fixture *fixture = *state;
    struct store_options options = {.path = fixture->directory, .boot_id = "b", .max_rows = 1};
    char missing[160];
    struct error error = {0};

    assert_int_equal(store_open(&options, &fixture->store, &error), STORE_IN_THE_WAY);
    assert_non_null(strstr(error.text, fixture->directory));
    (void)snprintf(missing, sizeof(missing), "%s/none/crustd.db", fixture->directory);
    options.path = missing;
    assert_int_equal(store_open(&options, &fixture->store, &error), STORE_MISSING);
    options.path = "/dev/null";
    assert_int_equal(store_open(&options, &fixture->store, &error), STORE_IN_THE_WAY);
    assert_null(fixture->store);
}

/* ---- judging ------------------------------------------------------------------------------- */

static void run_sql(const struct fixture *fixture, const char *sql)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(fixture->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void assert_refused_untouched(struct fixture *fixture, int outcome)
{
    struct store_options options = {.path = fixture->path, .boot_id = "b", .max_rows = 1};
    struct error error = {0};
    static char before[512 * 1024], after[512 * 1024];
    size_t length = read_file(fixture, before, sizeof(before));

    assert_int_equal(store_open(&options, &fixture->store, &error), outcome);
    assert_non_null(strstr(error.text, fixture->path));
    assert_int_equal(read_file(fixture, after, sizeof(after)), length);
    assert_memory_equal(before, after, length);
    assert_false(is_there(fixture, ".corrupt-1"));
}

static void a_foreign_database_is_not_touched(void **state)
{
    struct fixture *fixture = *state;

    run_sql(fixture, "CREATE TABLE theirs (x)");
    assert_refused_untouched(fixture, STORE_FOREIGN);
    assert_false(is_there(fixture, "-wal"));
    assert_false(is_there(fixture, "-shm"));
}

static void a_newer_database_is_not_touched(void **state)
{
    struct fixture *fixture = *state;

    assert_false(is_rebuilt(fixture));
    run_sql(fixture, "PRAGMA user_version = 2");
    assert_refused_untouched(fixture, STORE_NEWER);
}

static void a_newer_version_that_only_the_wal_knows(void **state)
{
    struct fixture *fixture = *state;
    sqlite3 *db = NULL;

    assert_false(is_rebuilt(fixture));
    assert_int_equal(sqlite3_open(fixture->path, &db), SQLITE_OK);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 2", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_refused_untouched(fixture, STORE_NEWER);
    assert_true(is_there(fixture, "-wal"));
}

static void garbage_is_set_aside_and_two_are_kept(void **state)
{
    struct fixture *fixture = *state;
    static const char garbage[200] = "this is not a database";

    for (int i = 0; i < 4; i++) {
        write_file(fixture, garbage, sizeof(garbage));
        assert_true(is_rebuilt(fixture));
        assert_false(is_rebuilt(fixture));
    }
    assert_false(is_there(fixture, ".corrupt-2"));
    assert_true(is_there(fixture, ".corrupt-3"));
    assert_true(is_there(fixture, ".corrupt-4"));
    write_file(fixture, "short", 5);
    assert_true(is_rebuilt(fixture));
}

/* A power cut in the middle of a checkpoint: the first page is noise, and the log still has it. */
static void a_header_still_in_the_log_is_not_damage(void **state)
{
    struct fixture *fixture = *state;
    static const char noise[512] = "noise";
    int fd;

    assert_false(is_rebuilt(fixture));
    fixture->store = fixture_open(fixture->path, "boot-1");
    put_one(fixture->store, "/kept", NULL, 11);
    execute_sql(fixture->store, "PRAGMA user_version = 1"); /* so the page is in the log */
    (void)sqlite3_db_config(fixture->store->connection.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
                            NULL);
    store_close(fixture->store);
    fd = open(fixture->path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, noise, sizeof(noise), 0), sizeof(noise));
    assert_int_equal(close(fd), 0);
    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
    assert_false(is_there(fixture, ".corrupt-1"));
}

/* A database with a few rows in every table that matters. */
static size_t make_database(struct fixture *fixture, void *ret_bytes, size_t size)
{
    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(store_begin(fixture->store), 0);
    (void)put_bound(fixture->store);
    assert_int_equal(store_commit(fixture->store), 0);
    store_close(fixture->store);
    fixture->store = NULL;
    return read_file(fixture, ret_bytes, size);
}

static void a_truncated_database_is_rebuilt(void **state)
{
    struct fixture *fixture = *state;
    static char bytes[512 * 1024];
    size_t length = make_database(fixture, bytes, sizeof(bytes));

    assert_true(length > 16 * 4096);
    for (size_t cut = 1; cut < length; cut += cut < 4096 ? 500 : 5 * 4096 + 17) {
        write_file(fixture, bytes, cut);
        assert_true(is_rebuilt(fixture));
    }
}

/* After any flipped bit the store opens (as it is, or rebuilt) or refuses; and if it opens it can
 * take facts again, or says that the file is damaged. */
static void survives_flipped_bits(void **state)
{
    struct fixture *fixture = *state;
    static char bytes[512 * 1024];
    size_t length = make_database(fixture, bytes, sizeof(bytes));
    unsigned seed = 1, rebuilt_count = 0;

    for (int i = 0; i < 300; i++) {
        struct store_opening opening = {0};
        struct store_options options = {
            .path = fixture->path, .boot_id = "boot-1", .max_rows = 1000, .ret_opening = &opening};
        size_t at = i < 100 ? (size_t)i : (size_t)rand_r(&seed) % length;
        struct store_entry entry = entry_of("key-2", "/new", 12);
        int64_t volume_id;
        bool changed;
        int r;

        bytes[at] ^= (char)(1 << (i % 8));
        write_file(fixture, bytes, length);
        bytes[at] ^= (char)(1 << (i % 8));
        r = store_open(&options, &fixture->store, NULL);
        if (r != STORE_OPENED) {
            assert_true(r == STORE_FOREIGN || r == STORE_NEWER);
            assert_true(at < 100);
            continue;
        }
        rebuilt_count += opening.rebuilt;
        assert_int_equal(store_begin(fixture->store), 0);
        r = store_put_entry(fixture->store, &entry, &volume_id, &changed);
        assert_true(r == 0 || r == -EUCLEAN);
        store_rollback(fixture->store);
        store_close(fixture->store);
        fixture->store = NULL;
    }
    assert_true(rebuilt_count > 20);
}

/* A kept statement is checked against ours: this one passes SQLite's own checks. */
static void an_altered_schema_is_damage(void **state)
{
    struct fixture *fixture = *state;

    assert_false(is_rebuilt(fixture));
    run_sql(fixture, "DROP VIEW audit_devices; CREATE VIEW audit_devices AS SELECT 1");
    assert_true(is_rebuilt(fixture));
    run_sql(fixture, "DROP INDEX mappings_open");
    assert_true(is_rebuilt(fixture));
    run_sql(fixture, "CREATE TABLE extra (x)");
    assert_true(is_rebuilt(fixture));
}

/* ---- living with others -------------------------------------------------------------------- */

static void a_reader_in_another_process_hinders_nothing(void **state)
{
    struct fixture *fixture = *state;
    pid_t child;
    int status;

    fixture->store = fixture_open(fixture->path, "boot-1");
    child = fork();
    if (child == 0) {
        char command[256];

        (void)snprintf(command, sizeof(command),
                       "i=0; while [ $i -lt 20 ]; do sqlite3 -readonly -json %s"
                       " 'SELECT count(*) FROM audit_journal' >/dev/null || exit 1;"
                       " i=$((i + 1)); done",
                       fixture->path);
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    do {
        assert_int_equal(store_begin(fixture->store), 0);
        assert_int_equal(store_journal(fixture->store, "line", 0, NULL, NULL, NULL), 0);
        assert_int_equal(store_commit(fixture->store), 0);
    } while (waitpid(child, &status, WNOHANG) == 0);
    assert_int_equal(status, 0);
}

static void another_writer_is_busy(void **state)
{
    struct fixture *fixture = *state;
    sqlite3 *other = NULL;

    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(sqlite3_open(fixture->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_begin(fixture->store), STORE_LOCKED);
    assert_string_equal(store_error_text(fixture->store), "database is locked");
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_begin(fixture->store), 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

static void a_removed_or_replaced_file_is_noticed(void **state)
{
    struct fixture *fixture = *state;

    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(store_check_file(fixture->store), 0);
    assert_false(store_is_degraded(fixture->store));
    assert_int_equal(unlink(fixture->path), 0);
    assert_true(store_is_degraded(fixture->store));
    assert_int_equal(store_check_file(fixture->store), STORE_MISSING);
    write_file(fixture, "x", 1);
    assert_int_equal(store_check_file(fixture->store), STORE_REPLACED);
}

/* ---- the WAL ------------------------------------------------------------------------------- */

static off_t wal_bytes(const struct fixture *fixture)
{
    struct stat status;
    char path[160];

    (void)snprintf(path, sizeof(path), "%s-wal", fixture->path);
    return stat(path, &status) == 0 ? status.st_size : 0;
}

static void write_lines(struct store *store, int commits, bool at_leisure)
{
    static char detail[16 * 1024];

    memset(detail, 'x', sizeof(detail) - 1);
    for (int i = 0; i < commits; i++) {
        assert_int_equal(store_begin(store), 0);
        assert_int_equal(store_journal(store, "line", 0, NULL, NULL, detail), 0);
        assert_int_equal(store_commit(store), 0);
        assert_int_equal(store_contain(store, at_leisure), 0);
    }
}

static void an_idle_daemon_moves_the_wal(void **state)
{
    struct fixture *fixture = *state;

    fixture->store = fixture_open(fixture->path, "boot-1");
    write_lines(fixture->store, 10, true);
    assert_int_equal(store_idle(fixture->store), 0);
    assert_int_equal(number_of(fixture->store, "SELECT checkpoints FROM meta"), 0);
    write_lines(fixture->store, 300, true);
    assert_true(wal_bytes(fixture) > 4 * 1024 * 1024);
    assert_int_equal(store_idle(fixture->store), 0);
    assert_int_equal(number_of(fixture->store, "SELECT checkpoints FROM meta"), 1);
    /* Begun anew, so that the next commit does not wait for that. */
    assert_true(fixture->store->wal_pages < 10);
    assert_true(wal_bytes(fixture) < 64 * 1024);
}

static void a_daemon_that_never_idles_is_bounded(void **state)
{
    struct fixture *fixture = *state;

    fixture->store = fixture_open(fixture->path, "boot-1");
    write_lines(fixture->store, 6000, true); /* 100 MiB */
    assert_true(wal_bytes(fixture) < 80 * 1024 * 1024);
}

static void answers_are_not_waited_for_without_end(void **state)
{
    struct fixture *fixture = *state;

    fixture->store = fixture_open(fixture->path, "boot-1");
    write_lines(fixture->store, 4000, false);
    assert_true(wal_bytes(fixture) > 70 * 1024 * 1024);
    write_lines(fixture->store, 4000, false); /* 160 MiB by now, if nothing bounds it */
    assert_true(wal_bytes(fixture) < 150 * 1024 * 1024);
}

static void a_stuck_reader_does_not_make_idling_busy(void **state)
{
    struct fixture *fixture = *state;
    sqlite3 *other = NULL;
    int64_t checkpoints;

    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(sqlite3_open(fixture->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN; SELECT count(*) FROM journal", NULL, NULL, NULL),
                     SQLITE_OK);
    write_lines(fixture->store, 300, true);
    assert_int_equal(store_idle(fixture->store), 0);
    checkpoints = number_of(fixture->store, "SELECT checkpoints FROM meta");
    for (int i = 0; i < 10; i++)
        assert_int_equal(store_idle(fixture->store), 0);
    assert_int_equal(number_of(fixture->store, "SELECT checkpoints FROM meta"), checkpoints);
    assert_int_equal(sqlite3_close_v2(other), SQLITE_OK);
}

static void full_disk_is_reported_and_survived(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    int r = 0;

    if (mount("store-test", fixture->directory, "tmpfs", 0, "size=1m") < 0)
        skip();
    store = fixture_open(fixture->path, "boot-1");
    for (int i = 0; i < 1000 && r == 0; i++) {
        r = store_begin(store);
        if (r == 0)
            r = store_journal(store, "line", 0, NULL, NULL, NULL);
        if (r == 0)
            r = store_commit(store);
    }
    store_rollback(store);
    assert_int_equal(mount("store-test", fixture->directory, "tmpfs", MS_REMOUNT, "size=8m"), 0);
    write_lines(store, 1, true);
    store_close(store);
    assert_false(is_rebuilt(fixture));
    assert_int_equal(umount(fixture->directory), 0);
    assert_int_equal(r, -ENOSPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(a_new_database_is_recognised),
        FILES(a_volume_is_counted_once),
        FILES(commits_survive_a_restart),
        FILES(an_empty_file_and_a_stray_wal_do_no_harm),
        FILES(a_place_that_cannot_hold_a_database_is_an_error),
        FILES(a_foreign_database_is_not_touched),
        FILES(a_newer_database_is_not_touched),
        FILES(a_newer_version_that_only_the_wal_knows),
        FILES(garbage_is_set_aside_and_two_are_kept),
        FILES(a_header_still_in_the_log_is_not_damage),
        FILES(a_truncated_database_is_rebuilt),
        FILES(survives_flipped_bits),
        FILES(an_altered_schema_is_damage),
        FILES(a_reader_in_another_process_hinders_nothing),
        FILES(another_writer_is_busy),
        FILES(a_removed_or_replaced_file_is_noticed),
        FILES(an_idle_daemon_moves_the_wal),
        FILES(a_daemon_that_never_idles_is_bounded),
        FILES(answers_are_not_waited_for_without_end),
        FILES(a_stuck_reader_does_not_make_idling_busy),
        FILES(full_disk_is_reported_and_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
