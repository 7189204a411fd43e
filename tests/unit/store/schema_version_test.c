/* SPDX-License-Identifier: Apache-2.0 */
/* schema_version_test.c - databases of older and newer minor versions.
 *
 * data/0.1.0.sql is what release 0.1.0 wrote, so it has minor version 0.
 */
#include "tests/unit/store/fixture.h"

#include "store/downgrade.h"
#include "store/schema.h"

#define RELEASE_0_1_0 "tests/unit/store/data/0.1.0.sql"

static void run_sql(const struct fixture *fixture, const char *sql)
{
    sqlite3 *db = NULL;
    char *text = NULL;

    assert_int_equal(sqlite3_open(fixture->path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
        fail_msg("%s", text);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static int make_0_1_0(void **state)
{
    static char sql[128 * 1024];
    FILE *file = fopen(RELEASE_0_1_0, "r");
    size_t length;

    (void)fixture_directory(state);
    assert_non_null(file);
    length = fread(sql, 1, sizeof(sql) - 1, file);
    (void)fclose(file);
    sql[length] = '\0';
    run_sql(*state, sql);
    return 0;
}

static struct schema_upgrade open_fixture(struct fixture *fixture, bool expected_rebuilt)
{
    struct store_opening opening = {0};
    struct error error = {0};
    struct store_options options = {.path = fixture->path,
                                    .boot_id = "boot-1",
                                    .keep_days = 9000,
                                    .max_rows = 100000,
                                    .ret_opening = &opening};
    int r = store_open(&options, &fixture->store, &error);

    if (r != STORE_OPENED)
        fail_msg("%d %s", r, error.text);
    assert_int_equal(opening.rebuilt, expected_rebuilt);
    return opening.upgrade;
}

static void close_fixture(struct fixture *fixture)
{
    store_close(fixture->store);
    fixture->store = NULL;
}

static void assert_minor(struct store *store, int64_t expected)
{
    int64_t minor = -1;

    assert_int_equal(schema_check(&store->connection, &minor), 0);
    assert_int_equal(minor, expected);
}

/* What a later release adds: a column, a table, and a view with one column more at its end. */
#define NEXT_MINOR                                                                                 \
    "ALTER TABLE volumes ADD COLUMN later INTEGER;"                                                \
    "CREATE TABLE later_table (x INTEGER NOT NULL) STRICT;"                                        \
    "INSERT INTO later_table VALUES (7);"                                                          \
    "DROP VIEW audit_devices; CREATE VIEW audit_devices AS SELECT name AS device, 1 AS later"      \
    " FROM devices;"

/* As that release would store them: its number and the digest of its statements. */
static void make_next_minor(struct fixture *fixture)
{
    char digest[SHA256_HEX_BYTES], sql[256];

    (void)open_fixture(fixture, false);
    assert_int_equal(sql_execute(&fixture->store->connection, NEXT_MINOR), 0);
    assert_int_equal(schema_digest(&fixture->store->connection, digest), 0);
    (void)snprintf(sql, sizeof(sql), "UPDATE schema_minor SET version = %d, schema_sha256 = '%s'",
                   SCHEMA_MINOR_VERSION + 1, digest);
    assert_int_equal(sql_execute(&fixture->store->connection, sql), 0);
    close_fixture(fixture);
}

static void new_database_has_the_newest_minor_version(void **state)
{
    struct fixture *fixture = *state;

    (void)open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION);
    assert_int_equal(number_of(fixture->store, "PRAGMA user_version"), 1);
}

static void database_of_release_0_1_0_keeps_its_history(void **state)
{
    struct fixture *fixture = *state;

    (void)open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 3);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_resizes"), 1);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_cleanups"), 1);
    assert_int_equal(lines_of(fixture->store, "volume_added"), 2);
    close_fixture(fixture);
    (void)open_fixture(fixture, false);
    assert_int_equal(lines_of(fixture->store, "volume_added"), 2);
}

/* crustctl's reader: it would miss columns and show secrets. */
static void older_minor_version_is_not_read(void **state)
{
    struct fixture *fixture = *state;
    struct store_reader *reader = NULL;
    struct error error = {0};

    assert_int_equal(store_reader_open(fixture->path, 0, &reader, &error), -EINVAL);
    assert_non_null(strstr(error.text, "start this one, which upgrades it"));
    (void)open_fixture(fixture, false);
    close_fixture(fixture);
    assert_int_equal(store_reader_open(fixture->path, 0, &reader, &error), 0);
    store_reader_free(reader);
}

/* An upgraded database and a new one keep the same statements. */
static void upgraded_database_equals_a_new_one(void **state)
{
    struct fixture *fixture = *state;
    struct store *fresh = fixture_open(NULL, "boot-1");
    char upgraded[SHA256_HEX_BYTES], made[SHA256_HEX_BYTES];

    (void)open_fixture(fixture, false);
    assert_int_equal(schema_digest(&fixture->store->connection, upgraded), 0);
    assert_int_equal(schema_digest(&fresh->connection, made), 0);
    store_close(fresh);
    assert_string_equal(upgraded, made);
}

/* Which of the statements it has, development builds of 0.2.0 did not tell by the version. */
static void make_minor_1(struct fixture *fixture, bool has_containers)
{
    char digest[SHA256_HEX_BYTES], sql[256];
    struct sql_connection *connection;

    (void)open_fixture(fixture, false);
    connection = &fixture->store->connection;
    assert_int_equal(schema_drop_views(connection), 0);
    assert_int_equal(sql_execute(connection, "DROP INDEX drive_mounts_by_disk;"
                                             "DROP INDEX sandboxes_hiding;"
                                             "ALTER TABLE sandboxes DROP COLUMN problem;"
                                             "DROP INDEX sandboxes_orphaned;"
                                             "ALTER TABLE sandboxes DROP COLUMN orphaned;"
                                             "ALTER TABLE mappings DROP COLUMN undone"),
                     0);
    if (!has_containers)
        assert_int_equal(sql_execute(connection, "ALTER TABLE drive_mounts DROP COLUMN containers"),
                         0);
    assert_int_equal(schema_digest(connection, digest), 0);
    (void)snprintf(sql, sizeof(sql), "UPDATE schema_minor SET version = 1, schema_sha256 = '%s'",
                   digest);
    assert_int_equal(sql_execute(connection, sql), 0);
    close_fixture(fixture);
}

static void database_of_a_development_build_gets_what_it_lacks(void **state)
{
    struct fixture *fixture = *state;

    for (int has_containers = 0; has_containers < 2; has_containers++) {
        make_minor_1(fixture, has_containers);
        assert_true(open_fixture(fixture, false).upgraded);
        assert_minor(fixture->store, SCHEMA_MINOR_VERSION);
        assert_int_equal(number_of(fixture->store, "SELECT count(containers) FROM audit_drives"),
                         0);
        assert_int_equal(number_of(fixture->store, "SELECT count(claim) FROM audit_volumes"), 0);
        close_fixture(fixture);
    }
}

static void altered_database_of_release_0_1_0_is_damage(void **state)
{
    struct fixture *fixture = *state;

    run_sql(fixture, "DROP INDEX mappings_open");
    (void)open_fixture(fixture, true);
}

static void newer_minor_version_is_used_and_left_as_it_is(void **state)
{
    struct fixture *fixture = *state;

    make_next_minor(fixture);
    (void)open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION + 1);
    assert_int_equal(store_begin(fixture->store), 0);
    (void)put_bound(fixture->store);
    assert_int_equal(store_commit(fixture->store), 0);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
    assert_int_equal(number_of(fixture->store, "SELECT x FROM later_table"), 7);
    assert_int_equal(number_of(fixture->store, "SELECT later FROM audit_devices"), 1);
    close_fixture(fixture);
    (void)open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION + 1);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
}

static void altered_newer_minor_version_is_damage(void **state)
{
    struct fixture *fixture = *state;

    make_next_minor(fixture);
    run_sql(fixture, "DROP VIEW audit_volumes; CREATE VIEW audit_volumes AS SELECT 1");
    (void)open_fixture(fixture, true);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION);
}

static void damaged_record_of_the_minor_version_is_damage(void **state)
{
    static const char *const damages[] = {
        "UPDATE schema_minor SET version = 0",
        "UPDATE schema_minor SET schema_sha256 = 'beef'",
        "DELETE FROM schema_minor",
        "DROP TABLE schema_minor; CREATE TABLE schema_minor (one INTEGER, wersion INTEGER)",
    };
    struct fixture *fixture = *state;

    (void)open_fixture(fixture, false);
    close_fixture(fixture);
    for (size_t i = 0; i < array_length(damages); i++) {
        run_sql(fixture, damages[i]);
        (void)open_fixture(fixture, true);
        close_fixture(fixture);
    }
}

/* ---- the way back -------------------------------------------------------------------------- */

/* The file is one of release 0.1.0, which knows no other statements than its own. */
static void assert_is_of_release_0_1_0(const struct fixture *fixture)
{
    struct sql_connection file = {0};
    int64_t minor = -1;

    assert_int_equal(sql_open(&file, fixture->path, SQLITE_OPEN_READONLY), 0);
    assert_int_equal(schema_check(&file, &minor), 0);
    assert_int_equal(minor, 0);
    sql_close(&file);
}

static void downgraded_database_is_one_of_release_0_1_0(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {0};

    (void)open_fixture(fixture, false);
    assert_int_equal(store_begin(fixture->store), 0);
    (void)put_bound(fixture->store);
    assert_int_equal(store_commit(fixture->store), 0);
    close_fixture(fixture);
    if (store_downgrade(fixture->path, &error) != 0)
        fail_msg("%s", error.text);
    assert_is_of_release_0_1_0(fixture);
    assert_int_equal(store_downgrade(fixture->path, &error), 0);
    assert_is_of_release_0_1_0(fixture);
    assert_true(open_fixture(fixture, false).upgraded);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 4);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_mappings"), 1);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_resizes"), 1);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

static void only_a_database_of_this_release_is_downgraded(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {0};
    int64_t minor = 0;

    assert_int_equal(store_downgrade(fixture->path, &error), -ENOENT);
    make_next_minor(fixture);
    assert_int_equal(store_downgrade(fixture->path, &error), STORE_NEWER);
    fixture->store = fixture_open(fixture->path, "boot-1");
    assert_int_equal(schema_check(&fixture->store->connection, &minor), 0);
    assert_int_equal(minor, SCHEMA_MINOR_VERSION + 1);
    close_fixture(fixture);
    run_sql(fixture, "PRAGMA user_version = 2");
    assert_int_equal(store_downgrade(fixture->path, &error), STORE_NEWER);
    assert_int_equal(unlink(fixture->path), 0);
    run_sql(fixture, "CREATE TABLE theirs (x)");
    assert_int_equal(store_downgrade(fixture->path, &error), STORE_FOREIGN);
}

static void damaged_database_is_not_downgraded(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {0};

    (void)open_fixture(fixture, false);
    close_fixture(fixture);
    run_sql(fixture, "CREATE TABLE extra (x)");
    assert_int_equal(store_downgrade(fixture->path, &error), STORE_DAMAGED);
    assert_non_null(strstr(error.text, "was not changed"));
}

/* ---- secrets ------------------------------------------------------------------------------- */

/* How often the text stands in the file, whatever part of it. */
static unsigned count_in(const struct fixture *fixture, const char *suffix, const char *text)
{
    static char bytes[1024 * 1024];
    size_t length = 0, text_length = strlen(text);
    unsigned count = 0;
    char path[160];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s%s", fixture->path, suffix);
    file = fopen(path, "r");
    if (file) {
        length = fread(bytes, 1, sizeof(bytes), file);
        (void)fclose(file);
    }
    assert_true(length < sizeof(bytes));
    for (size_t i = 0; i + text_length <= length; i++)
        count += memcmp(bytes + i, text, text_length) == 0;
    return count;
}

static unsigned count_everywhere(const struct fixture *fixture, const char *text)
{
    return count_in(fixture, "", text) + count_in(fixture, "-wal", text) +
           count_in(fixture, "-shm", text);
}

/* Leaves secrets in free pages, in overflow pages and in a WAL that nobody checkpointed. */
static void scatter_secrets(const struct fixture *fixture)
{
    sqlite3 *db = NULL;

    run_sql(fixture,
            "PRAGMA secure_delete = OFF;"
            "UPDATE entries SET options = json_array('password=hunter2' || hex(randomblob(9000)))"
            " WHERE entry_id = 1;"
            "INSERT INTO cleanups (key, decision, reason, mount_info, at) VALUES ('k', 'removed',"
            " 'r', '{\"options\":[\"secret=hunter2\"]}', 1);"
            "DELETE FROM cleanups WHERE key = 'k'");
    assert_int_equal(sqlite3_open(fixture->path, &db), SQLITE_OK);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    assert_int_equal(sqlite3_exec(db,
                                  "UPDATE entries SET options = '[\"key=hunter2-in-the-wal\"]'"
                                  " WHERE entry_id = 2",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_true(count_in(fixture, "", "hunter2") > 2);
    assert_int_equal(count_in(fixture, "-wal", "hunter2-in-the-wal"), 1);
}

static void secrets_are_in_no_byte_after_an_upgrade(void **state)
{
    struct fixture *fixture = *state;
    struct schema_upgrade upgrade;

    scatter_secrets(fixture);
    upgrade = open_fixture(fixture, false);
    assert_true(upgrade.upgraded);
    assert_false(upgrade.leftovers);
    assert_int_equal(upgrade.redacted, 4);
    assert_int_equal(count_everywhere(fixture, "hunter2"), 0);
    assert_text_of(fixture->store, "SELECT options FROM entries WHERE entry_id = 2",
                   "[\"key=[redacted]\"]");
    assert_text_of(fixture->store, "SELECT mount_info ->> '$.options' FROM audit_cleanups",
                   "[\"ro\",\"pass=[redacted]\"]");
    assert_text_of(fixture->store, "SELECT metadata FROM entries WHERE entry_id = 1",
                   "{\"S3-Password\":\"[redacted]\",\"size\":\"1\"}");
    assert_int_equal(lines_of(fixture->store, "store_upgraded"), 1);
    close_fixture(fixture);
    assert_int_equal(count_everywhere(fixture, "hunter2"), 0);
    assert_false(open_fixture(fixture, false).upgraded);
}

static void ordinary_options_are_kept_byte_for_byte(void **state)
{
    struct fixture *fixture = *state;

    run_sql(fixture, "UPDATE entries SET options = '[\"ro\", \"x=\\u00e4/\"]' WHERE entry_id = 2");
    (void)open_fixture(fixture, false);
    assert_text_of(fixture->store, "SELECT options FROM entries WHERE entry_id = 2",
                   "[\"ro\", \"x=\\u00e4/\"]");
}

/* A reader keeps the WAL from being emptied: the next opening tries again. */
static void leftovers_are_wiped_at_the_next_opening(void **state)
{
    struct fixture *fixture = *state;
    sqlite3 *reader = NULL;

    scatter_secrets(fixture);
    assert_int_equal(sqlite3_open(fixture->path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT * FROM audit_volumes", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_true(open_fixture(fixture, false).leftovers);
    close_fixture(fixture);
    assert_true(count_everywhere(fixture, "hunter2") > 0);
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    assert_false(open_fixture(fixture, false).leftovers);
    assert_int_equal(count_everywhere(fixture, "hunter2"), 0);
}

#define OLD(test) cmocka_unit_test_setup_teardown(test, make_0_1_0, fixture_done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(new_database_has_the_newest_minor_version),
        OLD(database_of_release_0_1_0_keeps_its_history),
        OLD(older_minor_version_is_not_read),
        OLD(upgraded_database_equals_a_new_one),
        FILES(database_of_a_development_build_gets_what_it_lacks),
        OLD(altered_database_of_release_0_1_0_is_damage),
        FILES(newer_minor_version_is_used_and_left_as_it_is),
        FILES(altered_newer_minor_version_is_damage),
        FILES(damaged_record_of_the_minor_version_is_damage),
        OLD(downgraded_database_is_one_of_release_0_1_0),
        FILES(only_a_database_of_this_release_is_downgraded),
        FILES(damaged_database_is_not_downgraded),
        OLD(secrets_are_in_no_byte_after_an_upgrade),
        OLD(ordinary_options_are_kept_byte_for_byte),
        OLD(leftovers_are_wiped_at_the_next_opening),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
