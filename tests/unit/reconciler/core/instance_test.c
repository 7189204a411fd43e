/* SPDX-License-Identifier: Apache-2.0 */
/* instance_test.c - the database's place, its lock, when a file that fails is worth a restart, and
 * what a start that failed says. */
#include "tests/unit/tree.h"

#include <sys/wait.h>
#include <time.h>

#include "config/config.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/core/database.h"
#include "reconciler/core/reconciler_internal.h"
#include "store/store.h"

#define DATABASE "/var/lib/crustd/crustd.db"

static struct {
    struct loop loop;
    struct config config;
    struct context context;
    struct instance instance;
    struct reconciler_options options;
    struct database database;
    unsigned restarts;
    int failure; /* the reason for the last one */
} test;

static void on_restart(void *userdata, int failure, const char *why)
{
    assert_ptr_equal(userdata, &test);
    assert_non_null(why);
    test.failure = failure;
    test.restarts++;
}

static void open_store(enum instance_store where)
{
    struct store_opening opening;
    struct error error = {0};

    if (instance_open_store(&test.instance, &test.config, where, NULL, &test.context.store,
                            &opening, &error) != STORE_OPENED)
        fail_msg("no store: %s", error.text);
}

static int start(void **state)
{
    struct error error = {0};

    memset(&test, 0, sizeof(test));
    if (tree_start(state) < 0 || loop_init(&test.loop) < 0)
        return -1;
    config_defaults(&test.config);
    (void)snprintf(test.config.paths.database, sizeof(test.config.paths.database), DATABASE);
    test.instance = (struct instance)INSTANCE_INIT;
    instance_init(&test.instance, root, scratch, &test.config);
    assert_int_equal(instance_take_place(&test.instance, &error), INSTANCE_ALONE);
    open_store(INSTANCE_STORE_FILE);
    test.context.loop = &test.loop;
    test.context.config = &test.config;
    test.options = (struct reconciler_options){
        .instance = &test.instance, .restart = on_restart, .userdata = &test};
    test.database = (struct database){.context = &test.context, .options = &test.options};
    return 0;
}

static int stop(void **state)
{
    database_done(&test.database);
    store_close(test.context.store);
    instance_done(&test.instance);
    loop_done(&test.loop);
    return tree_stop(state);
}

static void fail_with(int failure)
{
    database_on_failure(&test.database, failure, "disk I/O error");
}

static void begin_in_memory(void)
{
    struct error error;

    store_close(test.context.store);
    open_store(INSTANCE_STORE_MEMORY);
    (void)error_set(&error, STORE_NO_SPACE, "no space is left");
    database_begin_in_memory(&test.database, &error);
}

/* Somebody says that the file is good again. */
static void try_file(void)
{
    database_try_soon(&test.database);
    loop_run_once(&test.loop);
}

static void assert_problem(const char *text)
{
    const char *problem = database_problem(&test.database);

    if (!text)
        assert_null(problem);
    else if (!problem || !strstr(problem, text))
        fail_msg("\"%s\" does not say \"%s\"", problem ? problem : "", text);
}

/* ---- the file ---- */

static void a_file_that_fails_is_worth_a_restart(void **state)
{
    static const int failures[] = {STORE_NO_SPACE, STORE_READ_ONLY, STORE_FORBIDDEN,
                                   STORE_DAMAGED,  STORE_MISSING,   STORE_UNREADABLE};

    for (unsigned i = 0; i < 6; i++) {
        fail_with(failures[i]);
        assert_int_equal(test.restarts, i + 1);
        assert_int_equal(test.failure, failures[i]);
        assert_true(database_is_waiting(&test.database)); /* until then */
        assert_true(database_fails(&test.database));
    }
    assert_problem("the database fails: disk I/O error");
}

static void a_lock_of_another_program_is_waited_for(void **state)
{
    for (unsigned pass = 1; pass < 5; pass++) {
        fail_with(STORE_LOCKED);
        assert_true(database_is_waiting(&test.database));
        assert_problem("the database fails: disk I/O error (Device or resource busy)");
    }
    database_on_success(&test.database);
    assert_false(database_is_waiting(&test.database));
    assert_problem(NULL);
    for (unsigned pass = 1; pass < 5; pass++)
        fail_with(STORE_LOCKED);
    assert_int_equal(test.restarts, 0); /* counted from anew */
    fail_with(STORE_LOCKED);
    assert_int_equal(test.restarts, 1);
}

/* It would fail after a restart as well. */
static void a_fault_that_is_not_the_files_only_waits(void **state)
{
    static const int faults[] = {STORE_NO_MEMORY, STORE_FAULT, STORE_TOO_BIG, STORE_RUNNING};

    for (unsigned pass = 0; pass < 8; pass++) {
        assert_int_equal(database_is_lasting(&test.database), pass >= 5);
        fail_with(faults[pass % 4]);
        assert_true(database_is_waiting(&test.database));
    }
    assert_int_equal(test.restarts, 0);
}

static void a_failure_in_memory_waits(void **state)
{
    begin_in_memory();
    fail_with(STORE_UNREADABLE);
    assert_true(database_is_waiting(&test.database));
    assert_int_equal(test.restarts, 0);
    assert_problem("removes nothing"); /* what matters more */
}

static void a_daemon_that_stops_does_not_restart(void **state)
{
    test.context.stopping = true;
    fail_with(STORE_UNREADABLE);
    tree_remove(DATABASE);
    database_check_file(&test.database);
    assert_int_equal(test.restarts, 0);
}

/* ---- in memory ---- */

static void a_daemon_that_stops_stays_in_memory(void **state)
{
    begin_in_memory();
    test.context.stopping = true;
    try_file();
    assert_int_equal(test.restarts, 0);
}

/* ---- the place ---- */

/* Holds the lock a little longer than the crustd that it is a copy of. */
static pid_t start_late_child(void)
{
    const struct timespec while_it_begins = {.tv_nsec = 100 * NSEC_PER_MSEC};
    pid_t child = fork();

    assert_true(child >= 0);
    if (child > 0)
        return child;
    (void)nanosleep(&while_it_begins, NULL);
    _exit(0);
}

static void the_place_is_taken_until_the_last_child_of_a_killed_crustd_runs(void **state)
{
    struct instance other = INSTANCE_INIT;
    struct error error = {0};
    pid_t child;

    instance_init(&other, root, scratch, &test.config);
    assert_int_equal(instance_take_place(&other, &error), INSTANCE_LOCKED);
    child = start_late_child();
    instance_done(&test.instance);
    assert_int_equal(instance_take_place(&other, &error), INSTANCE_LOCKED);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(instance_take_place(&other, &error), INSTANCE_ALONE);
    instance_done(&other);
}

static void failure_to_create_the_directory_is_reported(void **state)
{
    struct instance other = INSTANCE_INIT;
    struct error error = {0};

    tree_write("/file", "");
    (void)snprintf(test.config.paths.database, sizeof(test.config.paths.database),
                   "/file/crustd.db");
    instance_init(&other, root, scratch, &test.config);
    assert_true(instance_take_place(&other, &error) < 0);
    assert_non_null(strstr(error.text, "/file"));
    (void)snprintf(test.config.paths.database, sizeof(test.config.paths.database), "/crustd.db");
    instance_init(&other, root, scratch, &test.config);
    assert_int_equal(instance_take_place(&other, &error), INSTANCE_ALONE);
    assert_string_equal(other.database, tree_path("/crustd.db"));
    instance_done(&other);
}

/* ---- a start that failed ---- */

static void exit_codes(void **state)
{
    static const struct {
        enum start_step step;
        int result;
        int exit_code;
    } cases[] = {
        {START_CONFIG, -EINVAL, EXIT_USAGE},
        {START_CONFIG, -EACCES, EXIT_USAGE},
        {START_CONFIG, -ENOSYS, EXIT_USAGE},
        {START_DATABASE, STORE_NEWER, EXIT_REFUSED},
        {START_DATABASE, STORE_FOREIGN, EXIT_REFUSED},
        {START_DATABASE, STORE_IN_THE_WAY, EXIT_REFUSED},
        {START_DATABASE, STORE_FAULT, EXIT_REFUSED},
        {START_DATABASE, INSTANCE_LOCKED, EXIT_LOCKED},
        {START_DATABASE, STORE_NO_MEMORY, EXIT_FAILED},
        {START_DATABASE, STORE_UNREADABLE, EXIT_FAILED},
        {START_SERVING, -EINVAL, EXIT_USAGE},
        {START_SERVING, -EPERM, EXIT_USAGE},
        {START_SERVING, -EADDRINUSE, EXIT_FAILED},
        {START_OTHER, -EPERM, EXIT_FAILED},
    };

    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(start_failure_exit_code(cases[i].step, cases[i].result),
                         cases[i].exit_code);
}

static void each_failure_has_a_remedy(void **state)
{
    for (int step = START_CONFIG; step <= START_OTHER; step++)
        for (int result = -200; result <= INSTANCE_LOCKED; result++)
            assert_true(strlen(start_failure_remedy((enum start_step)step, result)) > 10);
    assert_non_null(strstr(start_failure_remedy(START_CONFIG, -ENOSYS), "RestrictSUIDSGID"));
    assert_non_null(strstr(start_failure_remedy(START_DATABASE, STORE_NEWER), "upgrade crustd"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_that_fails_is_worth_a_restart),
        TEST(a_lock_of_another_program_is_waited_for),
        TEST(a_fault_that_is_not_the_files_only_waits),
        TEST(a_failure_in_memory_waits),
        TEST(a_daemon_that_stops_does_not_restart),
        TEST(a_daemon_that_stops_stays_in_memory),
        TEST(the_place_is_taken_until_the_last_child_of_a_killed_crustd_runs),
        TEST(failure_to_create_the_directory_is_reported),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(each_failure_has_a_remedy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
