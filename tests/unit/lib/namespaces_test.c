/* SPDX-License-Identifier: Apache-2.0 */
/* namespaces_test.c - in a namespace of its own a process is told so. */
#include "tests/unit/test.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/process.h"

enum { REFUSED = 77 };

/* What `is_first` says in a child within new namespaces; -1 if those can't be had. */
static int ask_within(int flags, bool (*is_first)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        if (unshare(flags) < 0)
            _exit(REFUSED);
        pid = fork();
        if (pid == 0)
            _exit(is_first());
        _exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == REFUSED ? -1 : WEXITSTATUS(status);
}

static void another_pid_namespace_shows_not_all(void **state)
{
    int answer = ask_within(CLONE_NEWPID, namespaces_show_all_processes);

    if (answer < 0)
        skip();
    assert_int_equal(answer, false);
}

static void another_user_namespace_is_not_the_first(void **state)
{
    int answer = ask_within(CLONE_NEWUSER, namespaces_user_is_first);

    if (answer < 0)
        skip();
    assert_int_equal(answer, false);
}

static bool first_has_usr(void)
{
    struct stat usr;

    return stat("/usr", &usr) == 0 && namespaces_first_has("/usr", &usr);
}

static bool first_has_our_run(void)
{
    struct stat run;

    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
           mount("none", "/run", "tmpfs", 0, NULL) < 0 || stat("/run", &run) < 0 ||
           namespaces_first_has("/run", &run);
}

static void another_mount_namespace_has_the_same_files_or_others(void **state)
{
    int same = ask_within(CLONE_NEWNS, first_has_usr);

    if (same < 0)
        skip();
    assert_int_equal(same, first_has_usr());
    assert_int_equal(ask_within(CLONE_NEWNS, first_has_our_run), false);
}

/* What one child says, others in the same namespaces say too. */
static void same_namespaces_give_the_same_result(void **state)
{
    assert_int_equal(ask_within(0, namespaces_user_is_first), namespaces_user_is_first());
    assert_int_equal(ask_within(0, first_has_usr), first_has_usr());
    assert_int_equal(ask_within(0, namespaces_show_all_processes), namespaces_show_all_processes());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_pid_namespace_shows_not_all),
        cmocka_unit_test(another_user_namespace_is_not_the_first),
        cmocka_unit_test(another_mount_namespace_has_the_same_files_or_others),
        cmocka_unit_test(same_namespaces_give_the_same_result),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
