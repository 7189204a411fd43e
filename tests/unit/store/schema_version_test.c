/* SPDX-License-Identifier: Apache-2.0 */
/* schema_version_test.c - databases of older and newer minor versions.
 *
 * data/0.1.0.sql is what release 0.1.0 wrote, so it has minor version 0.
 */
#include "tests/unit/store/fixture.h"

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

    assert_int_equal(schema_read_minor(&store->connection, &minor), 0);
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

/* Its check of layouts names two. */
static void database_of_release_0_1_0_takes_raw_block_claims(void **state)
{
    struct fixture *fixture = *state;
    struct store_entry claim = claim_of("block:1", CLAIM_PATH);

    (void)open_fixture(fixture, false);
    assert_int_equal(
        number_of(fixture->store, "SELECT count(*) FROM entries WHERE grows_file_system = 0"), 0);
    assert_int_equal(store_begin(fixture->store), 0);
    (void)put_entry(fixture->store, &claim, true);
    assert_int_equal(store_commit(fixture->store), 0);
    assert_text_of(fixture->store, "SELECT group_concat(DISTINCT kind) FROM audit_volumes",
                   "direct_volume,block_claim");
    assert_int_equal(sqlite3_exec(fixture->store->connection.db,
                                  "UPDATE entries SET layout = 'other'", NULL, NULL, NULL),
                     SQLITE_CONSTRAINT_CHECK);
    close_fixture(fixture);
    (void)open_fixture(fixture, false);
    assert_int_equal(
        number_of(fixture->store, "SELECT count(*) FROM entries WHERE layout = 'none'"), 1);
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
                                             "DROP INDEX entries_without_directory;"
                                             "DROP INDEX sandboxes_hiding;"
                                             "ALTER TABLE sandboxes DROP COLUMN problem;"
                                             "DROP INDEX sandboxes_orphaned;"
                                             "ALTER TABLE sandboxes DROP COLUMN orphaned;"
                                             "ALTER TABLE mappings DROP COLUMN undone;"
                                             "ALTER TABLE entries DROP COLUMN grows_file_system;"
                                             "ALTER TABLE sandbox_claims DROP COLUMN major;"
                                             "ALTER TABLE sandbox_claims DROP COLUMN minor"),
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

/* ---- secrets ------------------------------------------------------------------------------- */

static void secrets_are_in_no_row_after_an_upgrade(void **state)
{
    struct fixture *fixture = *state;
    struct schema_upgrade upgrade;

    run_sql(fixture, "UPDATE entries SET options = '[\"password=hunter2\"]' WHERE entry_id = 1;"
                     "UPDATE entries SET options = '[\"key=hunter2\"]' WHERE entry_id = 2");
    upgrade = open_fixture(fixture, false);
    assert_true(upgrade.upgraded);
    assert_int_equal(upgrade.redacted, 4);
    assert_text_of(fixture->store, "SELECT options FROM entries WHERE entry_id = 1",
                   "[\"password=[redacted]\"]");
    assert_text_of(fixture->store, "SELECT options FROM entries WHERE entry_id = 2",
                   "[\"key=[redacted]\"]");
    assert_text_of(fixture->store, "SELECT mount_info ->> '$.options' FROM audit_cleanups",
                   "[\"ro\",\"pass=[redacted]\"]");
    assert_text_of(fixture->store, "SELECT metadata FROM entries WHERE entry_id = 1",
                   "{\"S3-Password\":\"[redacted]\",\"size\":\"1\"}");
    assert_int_equal(lines_of(fixture->store, "store_upgraded"), 1);
    close_fixture(fixture);
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

#define OLD(test) cmocka_unit_test_setup_teardown(test, make_0_1_0, fixture_done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(new_database_has_the_newest_minor_version),
        OLD(database_of_release_0_1_0_keeps_its_history),
        OLD(database_of_release_0_1_0_takes_raw_block_claims),
        OLD(older_minor_version_is_not_read),
        OLD(upgraded_database_equals_a_new_one),
        FILES(database_of_a_development_build_gets_what_it_lacks),
        OLD(altered_database_of_release_0_1_0_is_damage),
        FILES(newer_minor_version_is_used_and_left_as_it_is),
        FILES(altered_newer_minor_version_is_damage),
        FILES(damaged_record_of_the_minor_version_is_damage),
        OLD(secrets_are_in_no_row_after_an_upgrade),
        OLD(ordinary_options_are_kept_byte_for_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
