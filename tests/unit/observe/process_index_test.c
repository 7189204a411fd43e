/* SPDX-License-Identifier: Apache-2.0 */
/* process_index_test.c - when a search reads the table again, and what it says of one that found
 * nothing. The table is the test's; sandbox_test.c and kata_rs_trust_test.c find real processes. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/process.h"
#include "lib/result.h"
#include "observe/process_index.h"
#include "observe/process_table.h"

/* ---- in place of observe/process_table.c ---------------------------------------------------- */

static struct process_index *processes;
static struct {
    bool is_young, is_reading;
    unsigned parts; /* that are left to read */
    int failure;    /* -errno of the next part */
    unsigned reads;
    struct process_table_gaps gaps; /* after the last part */
    struct process_table_entry entry[2], refused;
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
    table.reads++;
    if (table.failure < 0)
        return table.failure;
    table.parts -= table.parts > 0;
    table.is_reading = table.parts > 0;
    table.is_young = !table.is_reading;
    return table.is_reading ? PROGRESS_MORE : PROGRESS_DONE;
}

bool process_table_is_reading(const struct process_table *read)
{
    (void)read;
    return table.is_reading;
}

bool process_table_is_young(const struct process_table *read)
{
    (void)read;
    return table.is_young;
}

void process_table_expire(struct process_table *read)
{
    (void)read;
    table.is_young = false;
}

struct process_table_range process_table_find(struct process_table *read, enum process_role role,
                                              const char *sandbox_id)
{
    (void)read;
    assert_string_equal(sandbox_id, "1d");
    return role == PROCESS_SHIM && !table.parts
               ? (struct process_table_range){table.entry, table.count}
               : (struct process_table_range){0};
}

struct process_table_range process_table_all(struct process_table *read)
{
    (void)read;
    return (struct process_table_range){table.entry, table.count};
}

const struct process_table_entry *process_table_find_refused(const struct process_table *read,
                                                             enum process_role role,
                                                             const char *sandbox_id)
{
    (void)read;
    assert_int_equal(role, PROCESS_SHIM);
    assert_string_equal(sandbox_id, "1d");
    return table.refused.pid ? &table.refused : NULL;
}

const struct process_table_gaps *process_table_gaps(const struct process_table *read)
{
    (void)read;
    return &table.gaps;
}

/* ---- tests --------------------------------------------------------------------------------- */

static int begin(void **state)
{
    (void)state;
    memset(&table, 0, sizeof(table));
    return process_index_new(&processes);
}

static int end(void **state)
{
    (void)state;
    processes = process_index_free(processes);
    return 0;
}

static int find(struct process_search *ret_search)
{
    return process_index_find(processes, PROCESS_SHIM, "1d", ret_search);
}

static void add_shim(pid_t pid)
{
    struct process_table_entry *entry = &table.entry[table.count++];
    struct process process;

    assert_int_equal(process_read(pid, &process), 0);
    *entry = (struct process_table_entry){.pid = pid, .start_ns = process.start_ns};
    entry->named.role = PROCESS_SHIM;
}

static void a_search_reads_a_part_per_call(void **state)
{
    struct process_search search;

    (void)state;
    table.parts = 3;
    add_shim(getpid());
    assert_int_equal(find(&search), PROCESS_INDEX_UNFINISHED);
    assert_int_equal(find(&search), PROCESS_INDEX_UNFINISHED);
    assert_int_equal(find(&search), PROCESS_INDEX_FOUND);
    assert_int_equal(search.process.pid, getpid());
    assert_int_equal(table.reads, 3);
    assert_int_equal(find(&search), PROCESS_INDEX_FOUND);
    assert_int_equal(table.reads, 3);
}

static void what_is_missing_in_a_recent_reading_is_not_read_again(void **state)
{
    struct process_search search;

    (void)state;
    table.gaps.sure_since_ns = 5;
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_false(search.stale);
    assert_int_equal(search.sure_since_ns, 5);
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_true(search.stale);
    assert_int_equal(table.reads, 1);
    assert_int_equal(process_index_refresh(processes), 0);
    assert_int_equal(table.reads, 1);
}

/* A reading just now would not show more. */
static void an_absence_in_a_doubtful_reading_is_stale(void **state)
{
    struct process_search search;

    (void)state;
    table.gaps = (struct process_table_gaps){.is_doubtful = true, .has_unread = true};
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_true(search.stale && search.has_unread);
    assert_int_equal(search.sure_since_ns, 0);
}

static void a_held_index_is_not_read(void **state)
{
    struct process_search search;

    (void)state;
    table.is_reading = true;
    table.parts = 2;
    process_index_hold(processes, true);
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_true(search.stale);
    assert_int_equal(process_index_read_on(processes), 0);
    assert_int_equal(table.reads, 0);
    process_index_hold(processes, false);
    assert_int_equal(process_index_read_on(processes), PROGRESS_MORE);
    assert_int_equal(process_index_read_on(processes), PROGRESS_DONE);
    assert_int_equal(process_index_read_on(processes), PROGRESS_DONE);
    assert_int_equal(table.reads, 2);
}

static void a_failure_to_read_is_no_absence(void **state)
{
    struct process_search search;

    (void)state;
    table.failure = -EAGAIN;
    assert_int_equal(find(&search), -EAGAIN);
    assert_int_equal(process_index_refresh(processes), -EAGAIN);
    table.failure = 0;
    table.is_young = true;
    add_shim(getpid());
    assert_int_equal(find(&search), PROCESS_INDEX_FOUND);
}

static void a_process_that_has_ended_is_not_found(void **state)
{
    struct process_search search;

    (void)state;
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

    (void)state;
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

static void one_that_is_not_trusted_is_named(void **state)
{
    struct process_search search;

    (void)state;
    table.refused = (struct process_table_entry){.pid = 7, .trust = PROCESS_USERS};
    assert_int_equal(find(&search), PROCESS_INDEX_NONE);
    assert_non_null(strstr(search.doubt, "process 7 names the sandbox but is not trusted: "));
}

static void what_cannot_be_an_id_is_not_looked_for(void **state)
{
    struct process_search search;
    char longest[SANDBOX_ARGUMENTS_ID_BYTES + 1];

    (void)state;
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(process_index_find(processes, PROCESS_SHIM, "", &search), PROCESS_INDEX_NONE);
    assert_int_equal(process_index_find(processes, PROCESS_SHIM, longest, &search),
                     PROCESS_INDEX_NONE);
    assert_int_equal(table.reads, 0);
}

static int count_vmm(void *count, const char *sandbox_id, pid_t pid, uint64_t start_ns)
{
    assert_string_equal(sandbox_id, "1d");
    assert_true(pid == 7 && start_ns == 70);
    ++*(unsigned *)count;
    return 0;
}

/* And a process that starts next does not wait because they were read. */
static void vmms_are_those_of_a_whole_reading(void **state)
{
    unsigned vmms = 0;

    (void)state;
    table.entry[0] = (struct process_table_entry){
        .named = {.role = PROCESS_VMM, .id = "1d"}, .pid = 7, .start_ns = 70};
    table.count = 1;
    table.parts = 2;
    assert_int_equal(process_index_each_vmm(processes, count_vmm, &vmms), PROGRESS_MORE);
    assert_int_equal(vmms, 0);
    assert_int_equal(process_index_each_vmm(processes, count_vmm, &vmms), 0);
    assert_int_equal(vmms, 1);
    assert_false(table.is_young);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_search_reads_a_part_per_call),
        TEST(what_is_missing_in_a_recent_reading_is_not_read_again),
        TEST(an_absence_in_a_doubtful_reading_is_stale),
        TEST(a_held_index_is_not_read),
        TEST(a_failure_to_read_is_no_absence),
        TEST(a_process_that_has_ended_is_not_found),
        TEST(of_two_processes_neither_is_trusted_unless_one_is_the_others_child),
        TEST(one_that_is_not_trusted_is_named),
        TEST(what_cannot_be_an_id_is_not_looked_for),
        TEST(vmms_are_those_of_a_whole_reading),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
