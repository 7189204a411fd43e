/* SPDX-License-Identifier: Apache-2.0 */
/* process_index_test.c - processes in the table that a search does not take. The table is the
 * test's; sandbox_test.c and kata_rs_trust_test.c find real processes. */
#include "observe/process_table.c"

#include "tests/unit/test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct observe_cache cache;
static struct process_table table;
static struct entry entries[2];

/* A reading fails. */
int process_list_new(struct process_list **ret_list)
{
    return -EAGAIN;
}

/* ---- tests --------------------------------------------------------------------------------- */

static int begin(void **state)
{
    memset(&table, 0, sizeof(table));
    table.known.entry = entries;
    cache.processes = &table;
    return 0;
}

/* It was read a moment ago, and took so long that it is not read again soon. */
static void make_young(void)
{
    table.read_ns = clock_boottime();
    table.cost_ns = NSEC_PER_SEC;
}

static int find(struct process_search *ret_search)
{
    return process_index_find(&cache, PROCESS_SHIM, "1d", ret_search);
}

static void add_shim(pid_t pid)
{
    struct entry *entry = &entries[table.known.count++];
    struct process process;

    assert_int_equal(process_read(pid, &process), 0);
    *entry = (struct entry){
        .named = {.id = "1d", .role = PROCESS_SHIM}, .pid = pid, .start_ns = process.start_ns};
}

static void a_failure_to_read_is_no_absence(void **state)
{
    struct process_search search;

    assert_int_equal(find(&search), -EAGAIN);
    assert_int_equal(observe_cache_refresh(&cache), -EAGAIN);
    make_young();
    add_shim(getpid());
    assert_int_equal(find(&search), PROCESS_INDEX_FOUND);
}

static void a_process_that_has_ended_is_not_found(void **state)
{
    struct process_search search;

    make_young();
    add_shim(getpid());
    entries[0].start_ns--; /* its pid was used again */
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_string_equal(search.doubt, "");
}

static pid_t start_child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

static void stop_child(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A child has its parent's arguments until it calls execve(2). */
static void of_two_processes_neither_is_trusted_unless_one_is_the_others_child(void **state)
{
    const pid_t child[] = {start_child(), start_child()};
    struct process_search search;

    make_young();
    add_shim(child[0]);
    add_shim(getpid());
    assert_int_equal(find(&search), PROCESS_INDEX_FOUND);
    assert_int_equal(search.process.pid, getpid());
    table.known.count = 0;
    add_shim(child[0]);
    add_shim(child[1]);
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_non_null(strstr(search.doubt, "so neither is trusted"));
    stop_child(child[0]);
    stop_child(child[1]);
}

#define TEST(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failure_to_read_is_no_absence),
        TEST(a_process_that_has_ended_is_not_found),
        TEST(of_two_processes_neither_is_trusted_unless_one_is_the_others_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
