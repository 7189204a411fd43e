/* SPDX-License-Identifier: Apache-2.0 */
/* process_table_test.c - a process that hangs, and one that becomes another program while it is
 * judged. The judge is the test's. */
#include "observe/process_table.c"

#include "tests/unit/observe/hanging_reader.h"
#include "tests/unit/observe/node_fixture.h"

#define ID "1dea5eed0123456789abcdef0123456789abcdef0123456789abcdef01234567"

enum { LONG_BYTES = 96 * 1024 };

static struct process_table *table;
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
    return start(state) == 0 && process_table_new(&table) == 0 ? 0 : -1;
}

static int end(void **state)
{
    table = process_table_free(table);
    woken = hung = 0;
    reader_failure = 0;
    readings_before = 0;
    return stop(state);
}

static pid_t start_shim(void)
{
    return start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
}

static void read_all(void)
{
    unsigned calls = 0;
    int r;

    do {
        r = read_on(table);
        assert_true(++calls < 10000);
    } while (r == PROGRESS_MORE);
    assert_int_equal(r, PROGRESS_DONE);
}

static void expect_none(enum process_role role)
{
    assert_int_equal(find_range(&table->known, role, ID).count, 0);
}

static void expect_shim(pid_t pid)
{
    const struct range found = find_range(&table->known, PROCESS_SHIM, ID);

    assert_int_equal(found.count, 1);
    assert_int_equal(found.entry->pid, pid);
}

/* A shim that a reading has found. */
static pid_t start_known_shim(void)
{
    pid_t pid = start_shim();

    read_all();
    expect_shim(pid);
    return pid;
}

/* It may be the one that is looked for, unless it has ended. */
static void an_absence_is_unsure_if_a_process_cannot_be_judged(void **state)
{
    static const int failures[] = {PROCESS_GONE, -EINTR};

    (void)start_shim();
    for (unsigned i = 0; i < array_length(failures); i++) {
        judged = failures[i];
        read_all();
        expect_none(PROCESS_SHIM);
        assert_int_equal(table->known.sure_since_ns == 0, judged != PROCESS_GONE);
    }
}

static void a_process_that_hangs_keeps_its_entry(void **state)
{
    pid_t pid = start_known_shim();

    hung = pid;
    read_all();
    expect_shim(pid);
}

/* Its arguments were read, but whether they are still its own is unknown. */
static void a_process_that_hangs_while_it_is_judged_keeps_its_entry(void **state)
{
    pid_t pid = start_known_shim();

    hung = pid;
    readings_before = 1;
    read_all();
    assert_int_equal(readings_before, 0);
    expect_shim(pid);
}

/* That nothing can be read does not mean that nothing runs. */
static void without_a_reader_the_table_keeps_its_entries(void **state)
{
    pid_t pid = start_known_shim();

    reader_failure = -EAGAIN;
    assert_int_equal(read_on(table), -EAGAIN);
    assert_null(table->processes);
    expect_shim(pid);
}

static void an_unread_process_of_root_leaves_an_absence_unsure(void **state)
{
    hung = start_shim();
    read_all();
    expect_none(PROCESS_SHIM);
    assert_true(table->known.is_doubtful);
    assert_true(table->known.has_unread);
    assert_int_equal(table->known.sure_since_ns, 0);
    hung = 0;
    read_all();
    assert_int_equal(find_range(&table->known, PROCESS_SHIM, ID).count, 1);
}

static void an_unread_process_of_a_user_leaves_an_absence_sure(void **state)
{
    judged = PROCESS_USERS;
    hung = start_shim();
    read_all();
    expect_none(PROCESS_SHIM);
    assert_true(table->known.sure_since_ns > 0);
    assert_true(table->known.has_unread); /* it may be a VMM not run as root */
}

/* The judged program need not be the one whose arguments were read. */
static void a_process_that_becomes_another_program_is_not_believed(void **state)
{
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/sh", "containerd-shim-kata-v2", "-c", "kill -STOP $$; exec sleep 3600", "-id",
              ID, (char *)NULL);
        _exit(127);
    }
    process[processes++] = pid;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    woken = pid;
    read_all();
    expect_none(PROCESS_SHIM);
    assert_int_equal(woken, 0);
    assert_true(table->known.is_doubtful);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_absence_is_unsure_if_a_process_cannot_be_judged),
        TEST(a_process_that_hangs_keeps_its_entry),
        TEST(a_process_that_hangs_while_it_is_judged_keeps_its_entry),
        TEST(without_a_reader_the_table_keeps_its_entries),
        TEST(an_unread_process_of_root_leaves_an_absence_unsure),
        TEST(an_unread_process_of_a_user_leaves_an_absence_sure),
        TEST(a_process_that_becomes_another_program_is_not_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
