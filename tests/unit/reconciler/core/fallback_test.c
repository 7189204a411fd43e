/* SPDX-License-Identifier: Apache-2.0 */
/* fallback_test.c - a database whose file fails: when it is opened anew, when crustd goes on in
 * memory, and how it comes back. */
#include "tests/unit/tree.h"

#include <sys/wait.h>
#include <time.h>

#include "config/config.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/core/fallback.h"
#include "reconciler/core/instance.h"
#include "store/store.h"

#define DATABASE "/var/lib/crustd/crustd.db"

static struct {
    struct loop loop;
    struct config config;
    struct context context;
    struct instance instance;
    struct fallback fallback;
    unsigned anew; /* how often all was begun anew */
} test;

static void begin_anew(void *userdata)
{
    assert_ptr_equal(userdata, &test);
    test.anew++;
}

static void open_store(enum instance_store where)
{
    struct store_opening opening;
    struct error error = {0};

    if (instance_open_store(&test.instance, &test.config, where, &test.context.store, &opening,
                            &error) != STORE_OPENED)
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
    test.fallback = (struct fallback){.context = &test.context,
                                      .instance = &test.instance,
                                      .begin_anew = begin_anew,
                                      .userdata = &test};
    return 0;
}

static int stop(void **state)
{
    fallback_done(&test.fallback);
    store_close(test.context.store);
    instance_done(&test.instance);
    loop_done(&test.loop);
    return tree_stop(state);
}

static void fail_with(int failure)
{
    fallback_on_failure(&test.fallback, failure, "disk I/O error");
}

static bool is_in_memory(void)
{
    return store_is_in_memory(test.context.store);
}

/* Somebody says that the file is good again. */
static void try_file(void)
{
    fallback_hurry(&test.fallback);
    loop_run_once(&test.loop);
}

static void assert_problem(const char *text)
{
    const char *problem = fallback_problem(&test.fallback);

    if (!text)
        assert_null(problem);
    else if (!problem || !strstr(problem, text))
        fail_msg("\"%s\" does not say \"%s\"", problem ? problem : "", text);
}

/* What has its name is no regular file. */
static void obstruct(void)
{
    tree_remove(DATABASE);
    tree_make(DATABASE);
}

static void clear_away(void)
{
    tree_remove(DATABASE);
}

/* ---- leaving the file ---- */

static void a_file_that_fails_once_is_opened_anew(void **state)
{
    (void)state;
    fail_with(STORE_UNREADABLE);
    assert_false(is_in_memory());
    assert_int_equal(test.anew, 0); /* its ids hold */
    assert_problem(NULL);
    assert_true(fallback_database_fails(&test.fallback));
    fallback_on_success(&test.fallback);
    assert_false(fallback_database_fails(&test.fallback));
}

static void a_file_that_fails_twice_is_left_for_memory(void **state)
{
    (void)state;
    fail_with(STORE_UNREADABLE);
    fail_with(STORE_UNREADABLE);
    assert_true(is_in_memory());
    assert_int_equal(test.anew, 1);
    assert_problem("the database fails: disk I/O error");
    assert_problem("removes nothing");
    assert_false(fallback_is_waiting(&test.fallback));
    fallback_on_success(&test.fallback); /* a pass in memory */
    assert_true(fallback_database_fails(&test.fallback));
    try_file();
    assert_false(is_in_memory());
    assert_int_equal(test.anew, 2);
    assert_problem(NULL);
    assert_false(fallback_database_fails(&test.fallback));
}

static void a_file_that_cannot_be_opened_anew_is_left_at_once(void **state)
{
    (void)state;
    obstruct();
    fail_with(STORE_UNREADABLE);
    assert_true(is_in_memory());
    assert_int_equal(test.anew, 1);
    try_file();
    assert_true(is_in_memory());
    assert_int_equal(test.anew, 1);
    assert_problem(DATABASE);
    clear_away();
    try_file();
    assert_false(is_in_memory());
    assert_int_equal(test.anew, 2);
    assert_true(tree_has(DATABASE));
}

/* By itself, at growing intervals. */
static void the_file_is_tried_again_unasked(void **state)
{
    (void)state;
    fail_with(STORE_NO_SPACE);
    fail_with(STORE_NO_SPACE);
    assert_true(is_in_memory());
    while (is_in_memory())
        loop_run_once(&test.loop);
    assert_int_equal(test.anew, 2);
}

/* ---- waiting ---- */

static void a_lock_of_another_program_is_waited_for(void **state)
{
    (void)state;
    for (unsigned pass = 1; pass < 5; pass++) {
        fail_with(STORE_LOCKED);
        assert_false(is_in_memory());
        assert_true(fallback_is_waiting(&test.fallback));
        assert_problem("the database fails: disk I/O error (Device or resource busy)");
    }
    assert_int_equal(test.anew, 0);
    fail_with(STORE_LOCKED);
    assert_true(is_in_memory());
    assert_false(fallback_is_waiting(&test.fallback));
}

static void a_lock_that_goes_is_forgotten(void **state)
{
    (void)state;
    fail_with(STORE_LOCKED);
    fallback_on_success(&test.fallback);
    assert_false(fallback_is_waiting(&test.fallback));
    assert_problem(NULL);
    for (unsigned pass = 1; pass < 5; pass++)
        fail_with(STORE_LOCKED);
    assert_false(is_in_memory()); /* counted from anew */
}

/* It would fail in memory as well. */
static void a_fault_that_is_not_the_files_only_waits(void **state)
{
    static const int faults[] = {STORE_NO_MEMORY, STORE_FAULT, STORE_TOO_BIG, STORE_RUNNING};

    (void)state;
    for (unsigned pass = 0; pass < 8; pass++) {
        assert_int_equal(fallback_is_lasting(&test.fallback), pass >= 5);
        fail_with(faults[pass % 4]);
        assert_false(is_in_memory());
        assert_true(fallback_is_waiting(&test.fallback));
    }
    assert_int_equal(test.anew, 0);
}

static void a_failure_in_memory_waits(void **state)
{
    (void)state;
    fail_with(STORE_UNREADABLE);
    fail_with(STORE_UNREADABLE);
    fail_with(STORE_UNREADABLE);
    assert_true(is_in_memory());
    assert_true(fallback_is_waiting(&test.fallback));
    assert_int_equal(test.anew, 1);
    assert_problem("removes nothing"); /* what matters more */
}

static void a_daemon_that_stops_changes_nothing_more(void **state)
{
    (void)state;
    fail_with(STORE_UNREADABLE);
    fail_with(STORE_UNREADABLE);
    test.context.stopping = true;
    try_file();
    assert_true(is_in_memory());
    assert_int_equal(test.anew, 1);
}

static void a_daemon_that_stops_does_not_leave_the_file(void **state)
{
    (void)state;
    test.context.stopping = true;
    fail_with(STORE_UNREADABLE);
    fail_with(STORE_UNREADABLE);
    tree_remove(DATABASE);
    fallback_check_file(&test.fallback);
    assert_false(is_in_memory());
    assert_int_equal(test.anew, 0);
}

/* ---- a file that does not fail by itself ---- */

static void a_good_file_is_left_alone(void **state)
{
    (void)state;
    fallback_check_file(&test.fallback);
    fallback_hurry(&test.fallback);
    assert_false(fallback_database_fails(&test.fallback));
    assert_int_equal(test.anew, 0);
}

static void a_file_that_was_removed_is_made_anew(void **state)
{
    (void)state;
    tree_remove(DATABASE);
    fallback_check_file(&test.fallback);
    assert_false(is_in_memory());
    assert_true(tree_has(DATABASE));
    assert_int_equal(test.anew, 1); /* nothing that was known is in it */
}

static void a_file_that_was_overwritten_is_set_aside(void **state)
{
    (void)state;
    tree_write(DATABASE,
               "this is no database, and was none for a long time, to be sure of it ....");
    fallback_check_file(&test.fallback);
    assert_int_equal(test.anew, 1);
    assert_int_equal(store_check_file(test.context.store), 0);
}

/* ---- a start in memory ---- */

static void a_start_in_memory_comes_back_to_the_file(void **state)
{
    struct error error;

    (void)state;
    store_close(test.context.store);
    open_store(INSTANCE_STORE_MEMORY);
    (void)error_set(&error, STORE_NO_SPACE, "no space is left");
    fallback_begin(&test.fallback, &error);
    assert_problem("no space is left");
    assert_true(fallback_database_fails(&test.fallback));
    assert_false(fallback_is_waiting(&test.fallback));
    try_file();
    assert_false(is_in_memory());
    assert_int_equal(test.anew, 1);
    assert_problem(NULL);
}

/* ---- the place ---- */

static void only_one_crustd_has_the_database(void **state)
{
    struct instance other = INSTANCE_INIT;
    struct error error = {0};

    (void)state;
    instance_init(&other, root, scratch, &test.config);
    assert_int_equal(instance_take_place(&other, &error), INSTANCE_LOCKED);
    assert_non_null(strstr(error.text, "another crustd holds"));
    assert_int_equal(instance_take_place(&test.instance, &error), INSTANCE_ALONE); /* still */
    instance_done(&test.instance);
    assert_int_equal(instance_take_place(&other, &error), INSTANCE_ALONE);
    instance_done(&other);
}

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

static void a_start_waits_for_a_child_of_the_killed_crustd(void **state)
{
    struct instance other = INSTANCE_INIT;
    struct error error = {0};
    pid_t child;

    (void)state;
    instance_init(&other, root, scratch, &test.config);
    assert_int_equal(instance_await_place(&other, &error), INSTANCE_LOCKED);
    child = start_late_child();
    instance_done(&test.instance);
    assert_int_equal(instance_take_place(&other, &error), INSTANCE_LOCKED);
    assert_int_equal(instance_await_place(&other, &error), INSTANCE_ALONE);
    assert_int_equal(waitpid(child, NULL, 0), child);
    instance_done(&other);
}

static void failure_to_create_the_directory_is_reported(void **state)
{
    struct instance other = INSTANCE_INIT;
    struct error error = {0};

    (void)state;
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_that_fails_once_is_opened_anew),
        TEST(a_file_that_fails_twice_is_left_for_memory),
        TEST(a_file_that_cannot_be_opened_anew_is_left_at_once),
        TEST(the_file_is_tried_again_unasked),
        TEST(a_lock_of_another_program_is_waited_for),
        TEST(a_lock_that_goes_is_forgotten),
        TEST(a_fault_that_is_not_the_files_only_waits),
        TEST(a_failure_in_memory_waits),
        TEST(a_daemon_that_stops_changes_nothing_more),
        TEST(a_daemon_that_stops_does_not_leave_the_file),
        TEST(a_good_file_is_left_alone),
        TEST(a_file_that_was_removed_is_made_anew),
        TEST(a_file_that_was_overwritten_is_set_aside),
        TEST(a_start_in_memory_comes_back_to_the_file),
        TEST(only_one_crustd_has_the_database),
        TEST(a_start_waits_for_a_child_of_the_killed_crustd),
        TEST(failure_to_create_the_directory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
