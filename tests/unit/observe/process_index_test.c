/* SPDX-License-Identifier: Apache-2.0 */
/* process_index_test.c - more processes than one call reads, one that hangs, and one that becomes
 * another program while it is judged. The judge is the test's. */
#include "tests/unit/observe/hanging_reader.h"
#include "tests/unit/observe/node_fixture.h"

#include <poll.h>

#include "lib/process.h"
#include "lib/process_trust.h"
#include "observe/process_index.h"

#define OTHER_ID "0ther1d50123456789abcdef0123456789abcdef0123456789abcdef01234567"
#define ID       "1dea5eed0123456789abcdef0123456789abcdef0123456789abcdef01234567"

enum { CROWD = 70, LONG_BYTES = 96 * 1024, TRIES = 20 };

static struct process_index *processes_index;
static pid_t woken; /* continued when it is judged; 0: none */
static int judged;  /* the verdict on every process: an enum process_trust, or -errno */

/* ---- the judge ----------------------------------------------------------------------------- */

static void wait_for_exec(pid_t pid)
{
    struct buffer arguments = BUFFER_INIT(LONG_BYTES);

    assert_int_equal(kill(pid, SIGCONT), 0);
    do {
        buffer_clear(&arguments);
        assert_int_equal(process_read_arguments(pid, &arguments), 0);
    } while (strcmp(buffer_text(&arguments), "sleep") != 0);
    buffer_done(&arguments);
}

int process_judge(pid_t pid, uid_t *ret_user)
{
    assert_null(ret_user);
    if (pid == woken) {
        woken = 0;
        wait_for_exec(pid);
    }
    return judged;
}

int process_judge_unjailed(pid_t pid, uid_t *ret_user)
{
    return process_judge(pid, ret_user);
}

int process_read_counted_arguments(const struct process_list *list, pid_t pid,
                                   struct buffer *ret_arguments)
{
    (void)list;
    return process_read_arguments(pid, ret_arguments);
}

const char *process_trust_text(enum process_trust trust)
{
    assert_int_not_equal(trust, PROCESS_ROOTS);
    return "it is not root's";
}

/* ---- tests --------------------------------------------------------------------------------- */

static int begin(void **state)
{
    judged = PROCESS_ROOTS;
    return start(state) == 0 && process_index_new(&processes_index) == 0 ? 0 : -1;
}

static int end(void **state)
{
    processes_index = process_index_free(processes_index);
    woken = hung = 0;
    reader_failure = 0;
    readings_before = 0;
    slow = 0;
    return stop(state);
}

static void start_crowd(const char *option, const char *value)
{
    static char word[LONG_BYTES];

    memset(word, 'x', sizeof(word) - 1);
    for (unsigned i = 0; i < CROWD; i++)
        (void)start_process("/", "a-users", option, value, word);
}

/* An enum process_index_outcome. ret_calls: how many it took; at least one. */
static int find(const char *id, struct process_search *ret_search, unsigned *ret_calls)
{
    int r;

    *ret_calls = 0;
    do {
        r = process_index_find(processes_index, PROCESS_SHIM, id, ret_search);
        assert_true(++*ret_calls < 10000);
    } while (r == PROCESS_INDEX_UNFINISHED);
    return r;
}

static void expect_shim(pid_t pid)
{
    struct process_search search;
    unsigned calls;

    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_FOUND);
    assert_int_equal(search.process.pid, pid);
}

/* A shim that a reading has found. */
static pid_t start_known_shim(void)
{
    pid_t pid = start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);

    expect_shim(pid);
    return pid;
}

/* It may be the one that is looked for, unless it has ended. */
static void an_absence_is_unsure_if_a_process_cannot_be_judged(void **state)
{
    static const int failures[] = {PROCESS_GONE, -EINTR};

    (void)state;
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    for (unsigned i = 0; i < array_length(failures); i++) {
        struct process_search search;
        unsigned calls;

        judged = failures[i];
        assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_NONE);
        assert_int_equal(search.sure_since_ns == 0, judged != PROCESS_GONE);
        processes_index = process_index_free(processes_index);
        assert_int_equal(process_index_new(&processes_index), 0);
    }
}

static void many_processes_are_read_over_several_calls(void **state)
{
    struct process_search search;
    unsigned calls;
    pid_t pid;

    (void)state;
    start_crowd("-a", "b");
    pid = start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_FOUND);
    assert_int_equal(search.process.pid, pid);
    assert_true(calls > 1);
    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_FOUND);
    assert_int_equal(calls, 1);
}

/* Their parents are read too, and have few arguments. */
static void vmms_of_users_are_read_a_part_per_call(void **state)
{
    struct process_search search;
    unsigned calls;

    (void)state;
    judged = PROCESS_USERS;
    start_crowd("-name", "sandbox-x");
    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_NONE);
    assert_true(calls > 1);
}

/* A shim may have started behind the walk, but no later reading would show more. */
static void an_absence_after_a_reading_of_many_calls_is_stale(void **state)
{
    struct process_search search;
    unsigned calls;

    (void)state;
    start_crowd("-a", "b");
    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_NONE);
    assert_true(calls > 1);
    assert_true(search.stale);
    assert_true(search.sure_since_ns > 0);
}

/* A call waits for one process that hangs, and no longer; the next one goes on. */
static void read_with_one_that_hangs(void)
{
    int r;

    while (process_index_refresh(processes_index) == 0)
        (void)poll(NULL, 0, 10); /* the last reading is young */
    do
        r = process_index_read_on(processes_index);
    while (r == PROGRESS_MORE);
    assert_int_equal(r, 0);
}

static void a_process_that_hangs_keeps_its_entry(void **state)
{
    pid_t pid = start_known_shim();

    (void)state;
    hung = pid;
    read_with_one_that_hangs();
    expect_shim(pid);
}

/* A call waits for two slow answers about one process at most: its arguments, and whether they are
 * still the same. */
static int find_slowly(const char *id, enum process_role role, struct process_search *ret_search)
{
    int r;

    do {
        slow_answers = 0;
        r = process_index_find(processes_index, role, id, ret_search);
        assert_true(slow_answers <= 2);
    } while (r == PROCESS_INDEX_UNFINISHED);
    return r;
}

static void slow_answers_are_taken_over_several_calls(void **state)
{
    struct process_search search;
    pid_t pid;

    (void)state;
    start_crowd("-a", "b");
    pid = start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    hung = process[0]; /* the rest of what was asked for together is read one by one */
    slow = -1;
    assert_int_equal(find_slowly(ID, PROCESS_SHIM, &search), PROCESS_INDEX_FOUND);
    assert_int_equal(search.process.pid, pid);
    assert_int_equal(find_slowly("another", PROCESS_SHIM, &search), PROCESS_INDEX_NONE);
    assert_true(search.stale && search.has_unread);
}

/* Up to the call that has read a user's VMM, slowly, and not its parent. */
static void begin_with_slow_vmm(void)
{
    struct process_search search;

    judged = PROCESS_USERS;
    slow = start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    do {
        slow_answers = 0;
        assert_int_equal(process_index_find(processes_index, PROCESS_VMM, ID, &search),
                         PROCESS_INDEX_UNFINISHED);
    } while (!slow_answers);
}

/* Its parent is read in the next call, and if it is too slow for that as well, in none. */
static void a_slow_vmm_of_a_user_is_put_off_once(void **state)
{
    struct process_search search;

    (void)state;
    begin_with_slow_vmm();
    assert_int_equal(slow_answers, 1);
    assert_int_equal(find_slowly(ID, PROCESS_VMM, &search), PROCESS_INDEX_NONE);
    assert_true(search.has_unread);
    assert_string_equal(search.doubt, "");
}

static void a_vmm_of_a_user_that_was_put_off_is_judged_by_its_parent(void **state)
{
    struct process_search search;

    search.doubt[0] = '\0';
    for (unsigned i = 0; i < TRIES && !search.doubt[0]; i++) { /* on a busy machine all is slow */
        if (i > 0)
            assert_true(end(state) == 0 && begin(state) == 0);
        begin_with_slow_vmm();
        slow = 0;
        assert_int_equal(find_slowly(ID, PROCESS_VMM, &search), PROCESS_INDEX_NONE);
    }
    assert_false(search.has_unread);
    assert_string_not_equal(search.doubt, "");
}

/* Its arguments were read, but whether they are still its own is unknown. */
static void a_process_that_hangs_while_it_is_judged_keeps_its_entry(void **state)
{
    pid_t pid = start_known_shim();

    (void)state;
    hung = pid;
    readings_before = 1;
    read_with_one_that_hangs();
    assert_int_equal(readings_before, 0);
    expect_shim(pid);
}

/* That nothing can be read does not mean that nothing runs. */
static void without_a_reader_the_index_keeps_its_entries(void **state)
{
    struct process_search search;
    unsigned calls;
    pid_t pid = start_known_shim();
    int r;

    (void)state;
    reader_failure = -EAGAIN;
    while ((r = process_index_refresh(processes_index)) == 0)
        (void)poll(NULL, 0, 10); /* the last reading is young */
    assert_int_equal(r, -EAGAIN);
    expect_shim(pid);
    assert_int_equal(find("another", &search, &calls), -EAGAIN);
}

static void an_unread_process_of_root_leaves_an_absence_unsure(void **state)
{
    struct process_search search;
    unsigned calls;

    (void)state;
    hung = start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    read_with_one_that_hangs();
    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_NONE);
    assert_true(search.stale && search.has_unread);
    assert_int_equal(search.sure_since_ns, 0);
    hung = 0;
    while (find(ID, &search, &calls) != PROCESS_INDEX_FOUND)
        (void)poll(NULL, 0, 10);
}

static void an_unread_process_of_a_user_leaves_an_absence_sure(void **state)
{
    struct process_search search;
    unsigned calls;

    (void)state;
    judged = PROCESS_USERS;
    hung = start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    read_with_one_that_hangs();
    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_NONE);
    assert_true(search.sure_since_ns > 0);
    assert_true(search.has_unread); /* it may be a VMM that does not run as root */
}

/* The judged program need not be the one whose arguments were read. */
static void a_process_that_becomes_another_program_is_not_believed(void **state)
{
    struct process_search search;
    unsigned calls;
    siginfo_t info;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        execl("/bin/sh", "containerd-shim-kata-v2", "-c", "kill -STOP $$; exec sleep 3600", "-id",
              ID, (char *)NULL);
        _exit(127);
    }
    process[processes++] = pid;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    woken = pid;
    assert_int_equal(find(ID, &search, &calls), PROCESS_INDEX_NONE);
    assert_int_equal(woken, 0);
    assert_true(search.stale);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_processes_are_read_over_several_calls, begin, end),
        cmocka_unit_test_setup_teardown(an_absence_is_unsure_if_a_process_cannot_be_judged, begin,
                                        end),
        cmocka_unit_test_setup_teardown(vmms_of_users_are_read_a_part_per_call, begin, end),
        cmocka_unit_test_setup_teardown(an_absence_after_a_reading_of_many_calls_is_stale, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_process_that_hangs_keeps_its_entry, begin, end),
        cmocka_unit_test_setup_teardown(slow_answers_are_taken_over_several_calls, begin, end),
        cmocka_unit_test_setup_teardown(a_slow_vmm_of_a_user_is_put_off_once, begin, end),
        cmocka_unit_test_setup_teardown(a_vmm_of_a_user_that_was_put_off_is_judged_by_its_parent,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_process_that_hangs_while_it_is_judged_keeps_its_entry,
                                        begin, end),
        cmocka_unit_test_setup_teardown(without_a_reader_the_index_keeps_its_entries, begin, end),
        cmocka_unit_test_setup_teardown(an_unread_process_of_root_leaves_an_absence_unsure, begin,
                                        end),
        cmocka_unit_test_setup_teardown(an_unread_process_of_a_user_leaves_an_absence_sure, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_process_that_becomes_another_program_is_not_believed,
                                        begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
