/* SPDX-License-Identifier: Apache-2.0 */
/* file_test.c - the database file: made whole, judged, set aside, committed, kept small. */
#include "tests/unit/store/fixture.h"

#include <fcntl.h>

#include "store/schema.h"
#include "tests/unit/volume_rows.h"

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
    assert_int_equal(row_put_entry(store, &entry, &id, &changed), 0);
    assert_int_equal(store_commit(store), 0);
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

/* ---- judging ------------------------------------------------------------------------------- */

static void run_sql(const struct fixture *fixture, const char *sql)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(fixture->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
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
        r = row_put_entry(fixture->store, &entry, &volume_id, &changed);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(a_new_database_is_recognised),
        FILES(an_empty_file_and_a_stray_wal_do_no_harm),
        FILES(a_header_still_in_the_log_is_not_damage),
        FILES(a_truncated_database_is_rebuilt),
        FILES(survives_flipped_bits),
        FILES(an_altered_schema_is_damage),
        FILES(an_idle_daemon_moves_the_wal),
        FILES(a_daemon_that_never_idles_is_bounded),
        FILES(answers_are_not_waited_for_without_end),
        FILES(a_stuck_reader_does_not_make_idling_busy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
