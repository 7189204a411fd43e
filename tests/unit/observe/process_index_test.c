/* SPDX-License-Identifier: Apache-2.0 */
/* process_index_test.c - processes in the table that a search does not take. The table is the
 * test's; sandbox_test.c and kata_rs_trust_test.c find real processes. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/process.h"
#include "lib/result.h"
#include "observe/process_table.h"

/* ---- in place of observe/process_table.c ---------------------------------------------------- */

static struct observe_cache cache;
static struct {
    bool is_young;
    int failure; /* -errno of a reading */
    struct process_table_gaps gaps;
    struct process_table_entry entry[2];
    size_t count;
} table;

int process_table_new(struct process_table **ret_table)
{
    *ret_table = (struct process_table *)&table;
    return 0;
}

struct process_table *process_table_free(struct process_table *freed)
{
    assert_ptr_equal(freed, &table);
    return NULL;
}

int process_table_read_on(struct process_table *read)
{
    assert_ptr_equal(read, &table);
    table.is_young = table.failure == 0;
    return table.failure < 0 ? table.failure : PROGRESS_DONE;
}

bool process_table_is_reading(const struct process_table *read)
{
    return false;
}

bool process_table_is_young(const struct process_table *read)
{
    return table.is_young;
}

void process_table_expire(struct process_table *read)
{
    table.is_young = false;
}

struct process_table_range process_table_find(struct process_table *read, enum process_role role,
                                              const char *sandbox_id)
{
    assert_int_equal(role, PROCESS_SHIM);
    assert_string_equal(sandbox_id, "1d");
    return (struct process_table_range){table.entry, table.count};
}

struct process_table_range process_table_all(struct process_table *read)
{
    return (struct process_table_range){table.entry, table.count};
}

const struct process_table_entry *process_table_find_refused(const struct process_table *read,
                                                             enum process_role role,
                                                             const char *sandbox_id)
{
    assert_int_equal(role, PROCESS_SHIM);
    assert_string_equal(sandbox_id, "1d");
    return NULL;
}

const struct process_table_gaps *process_table_gaps(const struct process_table *read)
{
    return &table.gaps;
}

/* ---- tests --------------------------------------------------------------------------------- */

static int begin(void **state)
{
    memset(&table, 0, sizeof(table));
    return process_index_new(&cache.processes);
}

static int end(void **state)
{
    cache.processes = process_index_free(cache.processes);
    return 0;
}

static int find(struct process_search *ret_search)
{
    return process_index_find(cache.processes, PROCESS_SHIM, "1d", ret_search);
}

static void add_shim(pid_t pid)
{
    struct process_table_entry *entry = &table.entry[table.count++];
    struct process process;

    assert_int_equal(process_read(pid, &process), 0);
    *entry = (struct process_table_entry){.pid = pid, .start_ns = process.start_ns};
    entry->named.role = PROCESS_SHIM;
}

static void a_failure_to_read_is_no_absence(void **state)
{
    struct process_search search;

    table.failure = -EAGAIN;
    assert_int_equal(find(&search), -EAGAIN);
    assert_int_equal(observe_cache_refresh(&cache), -EAGAIN);
    table.failure = 0;
    table.is_young = true;
    add_shim(getpid());
    assert_int_equal(find(&search), PROCESS_INDEX_FOUND);
}

static void a_process_that_has_ended_is_not_found(void **state)
{
    struct process_search search;

    table.is_young = true;
    add_shim(getpid());
    table.entry[0].start_ns--; /* its pid was used again */
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

    table.is_young = true;
    add_shim(child[0]);
    add_shim(getpid());
    assert_int_equal(find(&search), PROCESS_INDEX_FOUND);
    assert_int_equal(search.process.pid, getpid());
    table.count = 0;
    add_shim(child[0]);
    add_shim(child[1]);
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_non_null(strstr(search.doubt, "so neither is trusted"));
    stop_child(child[0]);
    stop_child(child[1]);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failure_to_read_is_no_absence),
        TEST(a_process_that_has_ended_is_not_found),
        TEST(of_two_processes_neither_is_trusted_unless_one_is_the_others_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
