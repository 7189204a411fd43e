/* SPDX-License-Identifier: Apache-2.0 */
/* processes_test.c - children that end when they are told to. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch/watch.h"

static struct loop loop;
static struct watch_processes *watch;
static char exited[4][32];
static pid_t exited_pid;
static unsigned exits;

static void note_exit(void *userdata, const char *sandbox_id, pid_t pid)
{
    exited_pid = pid;
    assert_true(exits < 4);
    (void)snprintf(exited[exits++], sizeof(exited[0]), "%s", sandbox_id);
}

static pid_t start_child(void)
{
    pid_t child = fork();

    if (child == 0)
        for (;;)
            pause();
    assert_true(child > 0);
    return child;
}

static void end_child(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static int start(void **state)
{
    exits = 0;
    if (loop_init(&loop) < 0)
        return -1;
    return watch_processes_new(&loop, note_exit, NULL, &watch);
}

static int stop(void **state)
{
    watch = watch_processes_free(watch);
    loop_done(&loop);
    return 0;
}

static void reports_an_exit_once(void **state)
{
    pid_t child = start_child();

    assert_int_equal(watch_processes_add(watch, "sandbox", child), 0);
    assert_int_equal(watch_processes_add(watch, "sandbox", child), 0);
    end_child(child);
    loop_run_once(&loop);
    assert_int_equal(exits, 1);
    assert_string_equal(exited[0], "sandbox");
    assert_int_equal(watch_processes_counters(watch)->events, 1);
    assert_int_equal(watch_processes_add(watch, "sandbox", child), 1);
}

static void reports_a_zombie(void **state)
{
    pid_t child = start_child();

    assert_int_equal(watch_processes_add(watch, "sandbox", child), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    loop_run_once(&loop);
    assert_int_equal(exits, 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void forgets_what_was_removed_or_replaced(void **state)
{
    pid_t first = start_child(), second = start_child(), third = start_child();

    assert_int_equal(watch_processes_add(watch, "replaced", first), 0);
    assert_int_equal(watch_processes_add(watch, "replaced", second), 0);
    assert_int_equal(watch_processes_add(watch, "removed", third), 0);
    assert_int_equal(watch_processes_remove(watch, "removed"), 0);
    assert_int_equal(watch_processes_remove(watch, "never added"), 0);
    end_child(first);
    end_child(third);
    end_child(second);
    loop_run_once(&loop);
    assert_int_equal(exits, 1);
    assert_string_equal(exited[0], "replaced");
    assert_int_equal(exited_pid, second);
}

/* A look at the sandbox may be faster than the event. */
static void exit_before_removal_is_reported(void **state)
{
    pid_t child = start_child();

    assert_int_equal(watch_processes_add(watch, "sandbox", child), 0);
    end_child(child);
    assert_int_equal(watch_processes_remove(watch, "sandbox"), child);
    assert_int_equal(exits, 0);
}

static void refuses_pids_without_a_process(void **state)
{
    pid_t child = start_child();

    end_child(child);
    assert_int_equal(watch_processes_add(watch, "sandbox", child), 1);
    assert_int_equal(watch_processes_add(watch, "sandbox", 0), 1);
    assert_int_equal(watch_processes_add(watch, "sandbox", -1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reports_an_exit_once, start, stop),
        cmocka_unit_test_setup_teardown(reports_a_zombie, start, stop),
        cmocka_unit_test_setup_teardown(forgets_what_was_removed_or_replaced, start, stop),
        cmocka_unit_test_setup_teardown(exit_before_removal_is_reported, start, stop),
        cmocka_unit_test_setup_teardown(refuses_pids_without_a_process, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
