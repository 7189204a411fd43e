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

static void open_fixture(struct fixture *fixture, bool expected_rebuilt)
{
    bool rebuilt = false;
    struct error error = {0};
    struct store_options options = {.path = fixture->path,
                                    .boot_id = "boot-1",
                                    .keep_days = 9000,
                                    .max_rows = 100000,
                                    .ret_rebuilt = &rebuilt};
    int r = store_open(&options, &fixture->store, &error);

    if (r != STORE_OPENED)
        fail_msg("%d %s", r, error.text);
    assert_int_equal(rebuilt, expected_rebuilt);
}

static void close_fixture(struct fixture *fixture)
{
    store_close(fixture->store);
    fixture->store = NULL;
}

static void assert_minor(struct store *store, int64_t expected)
{
    int64_t minor = -1;

    assert_int_equal(schema_minor_of(&store->connection, &minor), 0);
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

    open_fixture(fixture, false);
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

    open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION);
    assert_int_equal(number_of(fixture->store, "PRAGMA user_version"), 1);
}

static void database_of_release_0_1_0_keeps_its_history(void **state)
{
    struct fixture *fixture = *state;

    open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 3);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_resizes"), 1);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_cleanups"), 1);
    assert_int_equal(lines_of(fixture->store, "volume_added"), 2);
    close_fixture(fixture);
    open_fixture(fixture, false);
    assert_int_equal(lines_of(fixture->store, "volume_added"), 2);
}

/* An upgraded database and a new one keep the same statements. */
static void upgraded_database_equals_a_new_one(void **state)
{
    struct fixture *fixture = *state;
    struct store *fresh = fixture_open(NULL, "boot-1");
    char upgraded[SHA256_HEX_BYTES], made[SHA256_HEX_BYTES];

    open_fixture(fixture, false);
    assert_int_equal(schema_digest(&fixture->store->connection, upgraded), 0);
    assert_int_equal(schema_digest(&fresh->connection, made), 0);
    store_close(fresh);
    assert_string_equal(upgraded, made);
}

static void altered_database_of_release_0_1_0_is_damage(void **state)
{
    struct fixture *fixture = *state;

    run_sql(fixture, "DROP INDEX mappings_open");
    open_fixture(fixture, true);
}

static void newer_minor_version_is_used_and_left_as_it_is(void **state)
{
    struct fixture *fixture = *state;

    make_next_minor(fixture);
    open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION + 1);
    assert_int_equal(store_begin(fixture->store), 0);
    (void)put_bound(fixture->store);
    assert_int_equal(store_commit(fixture->store), 0);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
    assert_int_equal(number_of(fixture->store, "SELECT x FROM later_table"), 7);
    assert_int_equal(number_of(fixture->store, "SELECT later FROM audit_devices"), 1);
    close_fixture(fixture);
    open_fixture(fixture, false);
    assert_minor(fixture->store, SCHEMA_MINOR_VERSION + 1);
    assert_int_equal(number_of(fixture->store, "SELECT count(*) FROM audit_volumes"), 1);
}

static void altered_newer_minor_version_is_damage(void **state)
{
    struct fixture *fixture = *state;

    make_next_minor(fixture);
    run_sql(fixture, "DROP VIEW audit_volumes; CREATE VIEW audit_volumes AS SELECT 1");
    open_fixture(fixture, true);
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

    open_fixture(fixture, false);
    close_fixture(fixture);
    for (size_t i = 0; i < array_length(damages); i++) {
        run_sql(fixture, damages[i]);
        open_fixture(fixture, true);
        close_fixture(fixture);
    }
}

#define OLD(test) cmocka_unit_test_setup_teardown(test, make_0_1_0, fixture_done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES(new_database_has_the_newest_minor_version),
        OLD(database_of_release_0_1_0_keeps_its_history),
        OLD(upgraded_database_equals_a_new_one),
        OLD(altered_database_of_release_0_1_0_is_damage),
        FILES(newer_minor_version_is_used_and_left_as_it_is),
        FILES(altered_newer_minor_version_is_damage),
        FILES(damaged_record_of_the_minor_version_is_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
