/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/process.h"

#include "tests/unit/own_processes.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* How a child differs from this process. */
struct kind {
    uint64_t namespaces;
    uid_t real, effective, saved;
    const char *root;
    bool has_most_groups; /* so that they fill its status */
};

static int take_most_groups(void)
{
    enum { MOST_GROUPS = 65536 };
    static gid_t groups[MOST_GROUPS];

    for (unsigned i = 0; i < MOST_GROUPS; i++)
        groups[i] = 4000000000U + i;
    return setgroups(MOST_GROUPS, groups);
}

static void stop_as(const struct kind *kind)
{
    if ((kind->has_most_groups && take_most_groups() < 0) ||
        (kind->root && (chroot(kind->root) < 0 || chdir("/") < 0)) ||
        setresuid(kind->real, kind->effective, kind->saved) < 0)
        _exit(127);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        (void)pause();
}

static pid_t start_child(const struct kind *kind)
{
    struct clone_args arguments = {.flags = kind->namespaces, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));

    if (pid == 0)
        stop_as(kind);
    if (pid < 0) {
        assert_true(errno == EPERM || errno == ENOSYS);
        skip();
    }
    return pid;
}

/* Once the child has become what it is to be, which is soon. */
static bool is_judged(pid_t pid, int (*judge)(pid_t pid, uid_t *ret_user), int trust)
{
    for (unsigned attempt = 0; attempt < 500; attempt++) {
        if (judge(pid, NULL) == trust)
            return true;
        (void)usleep(10 * 1000);
    }
    return false;
}

static void end_child(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void expect(const struct kind *kind, int trust, int unjailed_trust)
{
    pid_t pid;

    if (geteuid() != 0)
        skip();
    pid = start_child(kind);
    assert_true(is_judged(pid, process_judge_unjailed, unjailed_trust));
    assert_int_equal(process_judge(pid, NULL), trust);
    end_child(pid);
}

static void a_process_of_roots_is_trusted(void **state)
{
    assert_int_equal(process_judge(getpid(), NULL), PROCESS_ROOTS);
    expect(&(struct kind){0}, PROCESS_ROOTS, PROCESS_ROOTS);
}

/* Any of its ids may be that of the user who has chosen the arguments. */
static void a_process_with_a_users_id_is_not(void **state)
{
    expect(&(struct kind){.real = NOBODY, .effective = NOBODY, .saved = NOBODY}, PROCESS_USERS,
           PROCESS_USERS);
    expect(&(struct kind){.real = NOBODY}, PROCESS_USERS, PROCESS_USERS);
    expect(&(struct kind){.effective = NOBODY}, PROCESS_USERS, PROCESS_USERS);
    expect(&(struct kind){.saved = NOBODY}, PROCESS_USERS, PROCESS_USERS);
}

/* Without a user namespace, root in a container has uid 0 on the node, too. */
static void root_in_a_container_is_not(void **state)
{
    expect(&(struct kind){.namespaces = CLONE_NEWPID}, PROCESS_CONTAINED, PROCESS_CONTAINED);
}

/* A process that cannot be judged may be root's, so nobody may be able to prevent the judgement. */
static void groups_hide_nothing(void **state)
{
    expect(
        &(struct kind){
            .real = NOBODY, .effective = NOBODY, .saved = NOBODY, .has_most_groups = true},
        PROCESS_USERS, PROCESS_USERS);
    expect(&(struct kind){.namespaces = CLONE_NEWPID, .has_most_groups = true}, PROCESS_CONTAINED,
           PROCESS_CONTAINED);
}

/* A jailed VMM has a root directory of its own, a shim never has. */
static void a_shim_with_another_root_directory_is_not(void **state)
{
    if (!first_process_can_be_examined())
        skip();
    expect(&(struct kind){.root = "/proc"}, PROCESS_ROOTS, PROCESS_ROOTED_APART);
}

static void a_process_that_has_ended_is_gone(void **state)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(process_judge(pid, NULL), PROCESS_GONE);
    assert_int_equal(process_judge_unjailed(pid, NULL), PROCESS_GONE);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_of_roots_is_trusted),
        cmocka_unit_test(a_process_with_a_users_id_is_not),
        cmocka_unit_test(root_in_a_container_is_not),
        cmocka_unit_test(groups_hide_nothing),
        cmocka_unit_test(a_shim_with_another_root_directory_is_not),
        cmocka_unit_test(a_process_that_has_ended_is_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return own_processes_run(all_tests);
}
