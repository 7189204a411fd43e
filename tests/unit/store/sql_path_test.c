/* SPDX-License-Identifier: Apache-2.0 */
/* sql_path_test.c - which name SQLite gives to a database that is reached through links. */
#include "tests/unit/test.h"

#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/sql.h"
#include "tests/unit/scratch.h"

static char scratch[SCRATCH_BYTES], file[96], link_name[96];

static int set_up(void **state)
{
    if (scratch_directory_make(scratch) < 0)
        return -1;
    (void)snprintf(file, sizeof(file), "%s/file.db", scratch);
    (void)snprintf(link_name, sizeof(link_name), "%s/link.db", scratch);
    return symlink(file, link_name);
}

static int tear_down(void **state)
{
    return scratch_directory_remove(scratch);
}

static void assert_opened_as(const char *path, const char *name)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open_v2(path, &db, flags, sql_path_vfs()), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS t(c)", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_string_equal(sqlite3_db_filename(db, "main"), name);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_int_equal(access(file, F_OK), 0);
}

static void follows_links_of_files(void **state)
{
    assert_opened_as(link_name, file);
}

static void leaves_links_of_proc_to_the_kernel(void **state)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "/proc/self/root%s", file);
    assert_opened_as(path, path);
}

static void refuses_what_is_too_long(void **state)
{
    static char path[PATH_MAX * 2];
    sqlite3 *db = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%0*d", PATH_MAX + 100, 0);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, sql_path_vfs()),
                     SQLITE_CANTOPEN);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

#define in_scratch(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_scratch(follows_links_of_files),
        in_scratch(leaves_links_of_proc_to_the_kernel),
        in_scratch(refuses_what_is_too_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
