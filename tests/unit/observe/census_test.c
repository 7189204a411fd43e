/* SPDX-License-Identifier: Apache-2.0 */
/* census_test.c - real processes with a sandbox's id among their arguments, or none. */
#include "tests/unit/observe/hanging_reader.h"
#include "tests/unit/observe/node_fixture.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/process.h"
#include "observe/census.h"

#define LONG_ID "feedfacefeedfacefeedfacefeedfacecafecafecafecafecafecafecafecafe"

static struct census *ask(const char *sandbox_id)
{
    struct census *census = NULL;

    assert_int_equal(census_new(&census), 0);
    assert_int_equal(census_ask(census, sandbox_id), 0);
    assert_int_equal(census_ask(census, sandbox_id), 0);
    return census;
}

/* Returns in how many steps. */
static unsigned take_steps(struct census *census)
{
    unsigned steps = 1;
    int r;

    while ((r = census_step(census)) > 0)
        steps++;
    assert_int_equal(r, 0);
    return steps;
}

static struct census *count(const char *sandbox_id)
{
    struct census *census = ask(sandbox_id);

    (void)take_steps(census);
    return census;
}

static bool has_process(const char *sandbox_id)
{
    struct census *census = count(sandbox_id);
    bool has = census_has_process(census, sandbox_id);

    assert_int_equal(census_get_process(census, sandbox_id) > 0, has);
    assert_false(census_has_cgroup(census, sandbox_id));
    census_free(census);
    return has;
}

static void finds_whoever_names_the_sandbox(void **state)
{
    (void)state;
    assert_false(has_process(LONG_ID));
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" LONG_ID ",debug-threads=on",
                        NULL);
    assert_true(has_process(LONG_ID));
    stop_processes();
    assert_false(has_process(LONG_ID));
    (void)start_process("/", "virtiofsd", "--socket-path", "/run/vc/vm/" LONG_ID "/vhost-fs.sock",
                        NULL);
    assert_true(has_process(LONG_ID));
    stop_processes();
    (void)start_process("/", "firecracker", "--id", "feedfacefeedfacefeedfacefeedface", NULL);
    assert_true(has_process(LONG_ID));
}

/* It may be any sandbox's, and a kubelet that was just started. */
static void one_of_root_that_hangs_is_everybodys(void **state)
{
    const uint64_t before = clock_boottime();
    struct census *census;

    (void)state;
    hung = start_process("/", "sleep", "-", "-", NULL);
    census = ask("another");
    assert_int_equal(census_ask(census, LONG_ID), 0);
    (void)take_steps(census);
    assert_true(census_has_process(census, "another"));
    assert_true(census_has_cgroup(census, "another"));
    assert_int_equal(census_get_process(census, "another"), 0);
    assert_true(census_has_process(census, LONG_ID));
    assert_true(census_kubelet_start(census) >= before);
    census_free(census);
    hung = 0;
    census = ask("another");
    (void)take_steps(census);
    assert_false(census_has_process(census, "another"));
    census_free(census);
}

static void a_step_waits_for_one_slow_answer(void **state)
{
    struct census *census = ask("another");
    int r;

    (void)state;
    hung = getpid(); /* the rest of what is asked for together is read one by one */
    slow = -1;
    do {
        slow_answers = 0;
        r = census_step(census);
        assert_true(slow_answers <= 2); /* together, then alone */
    } while (r == PROGRESS_MORE);
    slow = hung = 0;
    assert_int_equal(r, 0);
    census_free(census);
}

static void without_a_reader_there_is_no_census(void **state)
{
    struct census *census = ask("another");
    int r;

    (void)state;
    reader_failure = -EAGAIN;
    do
        r = census_step(census);
    while (r == PROGRESS_MORE);
    reader_failure = 0;
    assert_int_equal(r, -EAGAIN);
    census_free(census);
}

static void knows_nothing_of_whom_it_was_not_asked(void **state)
{
    struct census *census = count(LONG_ID);

    (void)state;
    assert_true(census_has_process(census, "another"));
    assert_true(census_has_cgroup(census, "another"));
    census_free(census);
}

/* A cgroup that is named after the sandbox, in whichever hierarchy can be written to. */
static bool enter_cgroup(pid_t pid, char *ret_path, size_t size)
{
    static const char *const trees[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/pids",
                                        "/sys/fs/cgroup/freezer"};

    for (size_t i = 0; i < array_length(trees); i++) {
        cleanup(fd_closep) int fd = -1;
        char procs[160], number[16];

        (void)snprintf(ret_path, size, "%s/crust-%d-" LONG_ID, trees[i], (int)getpid());
        (void)snprintf(procs, sizeof(procs), "%s/cgroup.procs", ret_path);
        (void)snprintf(number, sizeof(number), "%d", (int)pid);
        if (mkdir(ret_path, 0755) < 0)
            continue;
        fd = open(procs, O_WRONLY | O_CLOEXEC);
        if (fd >= 0 && write(fd, number, strlen(number)) > 0)
            return true;
        (void)rmdir(ret_path);
    }
    return false;
}

static void finds_the_cgroup_of_a_process(void **state)
{
    pid_t pid = start_process("/", "some-vmm", "-x", "y", NULL);
    struct census *census;
    char path[128];

    (void)state;
    if (!enter_cgroup(pid, path, sizeof(path)))
        skip();
    census = count(LONG_ID);
    stop_processes();
    assert_int_equal(rmdir(path), 0);
    assert_true(census_has_cgroup(census, LONG_ID));
    assert_false(census_has_process(census, LONG_ID));
    census_free(census);
}

/* Otherwise any user could prevent every removal, and make the kubelet look new. */
static void one_of_a_user_that_hangs_counts_for_nobody_else(void **state)
{
    struct census *census;
    uint64_t before_kubelets;
    bool is_in_cgroup;
    char path[128];

    (void)state;
    if (geteuid() != 0)
        skip();
    census = count("another");
    before_kubelets = census_kubelet_start(census);
    census_free(census);
    hung = start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "kubelet", "-", LONG_ID,
                            NULL);
    is_in_cgroup = enter_cgroup(hung, path, sizeof(path));
    census = ask("another");
    assert_int_equal(census_ask(census, LONG_ID), 0);
    (void)take_steps(census);
    hung = 0;
    stop_processes();
    if (is_in_cgroup)
        assert_int_equal(rmdir(path), 0);
    assert_false(census_has_process(census, "another"));
    assert_false(census_has_cgroup(census, "another"));
    assert_int_equal(census_kubelet_start(census), before_kubelets);
    /* A rootless VMM is in the cgroup that its shim made. */
    assert_int_equal(census_has_process(census, LONG_ID), is_in_cgroup);
    assert_int_equal(census_has_cgroup(census, LONG_ID), is_in_cgroup);
    census_free(census);
}

static void step_until_it_has_hung(struct census *census, pid_t pid, unsigned times)
{
    hung = pid;
    hangs = 0;
    while (hangs < times)
        assert_int_equal(census_step(census), PROGRESS_MORE);
    hung = 0;
}

/* A user who keeps memory locked uses up the attempts for users' processes alone. */
static void users_that_hang_leave_root_its_attempts(void **state)
{
    enum { ATTEMPTS = 20 };
    pid_t users, roots;
    struct census *census;

    (void)state;
    if (geteuid() != 0)
        skip();
    users = start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "sleep", "-", "-", NULL);
    roots = start_process("/", "sleep", "-", "-", NULL);
    if (roots < users)
        skip(); /* the numbers have begun anew, and root's comes first */
    census = ask("another");
    step_until_it_has_hung(census, users, ATTEMPTS + 1);
    step_until_it_has_hung(census, roots, 1);
    (void)take_steps(census);
    assert_false(census_has_process(census, "another"));
    census_free(census);
}

/* Of 200 characters each, which is more than PATH_MAX. */
enum { LEVELS = 24 };

static int enter_level(int parent, const char *name)
{
    int fd = -1;

    if (parent >= 0 && mkdirat(parent, name, 0755) == 0)
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd;
}

static unsigned make_deep_cgroup(const char *name, int *levels)
{
    static const char *const trees[] = {"/sys/fs/cgroup/cgroup.procs",
                                        "/sys/fs/cgroup/unified/cgroup.procs",
                                        "/sys/fs/cgroup/pids/cgroup.procs"};
    unsigned count = 0;

    for (size_t i = 0; i < array_length(trees) && !count; i++) {
        char tree[64];

        if (access(trees[i], W_OK) < 0)
            continue;
        (void)snprintf(tree, sizeof(tree), "%.*s", (int)(strrchr(trees[i], '/') - trees[i]),
                       trees[i]);
        levels[0] = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        while (count < LEVELS && (levels[count + 1] = enter_level(levels[count], name)) >= 0)
            count++;
    }
    return count;
}

static void remove_deep_cgroup(const char *name, int *levels, unsigned count)
{
    while (count) {
        fd_close(levels[count--]);
        assert_int_equal(unlinkat(levels[count], name, AT_REMOVEDIR), 0);
    }
    fd_close(levels[0]);
}

static bool enter_deepest(const int *levels, unsigned count, pid_t pid)
{
    cleanup(fd_closep) int fd = openat(levels[count], "cgroup.procs", O_WRONLY | O_CLOEXEC);

    return fd >= 0 && dprintf(fd, "%d", (int)pid) > 0;
}

static bool is_readable(pid_t pid)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

    return process_read_file(pid, "cgroup", &text) == 0;
}

/* Since Linux 6.8 it is cut instead. The walk goes on, and it is nobody's; root's could be
 * anybody's. */
static void unreadable_cgroup_counts_only_for_roots_processes(void **state)
{
    int levels[LEVELS + 1];
    char name[256];
    bool readable, users, roots;
    struct census *census;
    unsigned depth;
    pid_t pid;

    (void)state;
    (void)snprintf(name, sizeof(name), "crust-%d-%0200d", (int)getpid(), 0);
    depth = geteuid() == 0 ? make_deep_cgroup(name, levels) : 0;
    if (!depth)
        skip();
    pid =
        start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "some-vmm", "-x", "y", NULL);
    readable = !enter_deepest(levels, depth, pid) || is_readable(pid);
    census = count(LONG_ID);
    users = census_has_cgroup(census, LONG_ID);
    census_free(census);
    (void)enter_deepest(levels, depth, start_process("/", "some-vmm", "-x", "y", NULL));
    census = count(LONG_ID);
    roots = census_has_cgroup(census, LONG_ID);
    census_free(census);
    stop_processes();
    remove_deep_cgroup(name, levels, depth);
    assert_false(users);
    assert_int_equal(roots, !readable);
}

static void sees_when_the_kubelet_was_started(void **state)
{
    struct census *census;
    uint64_t before = clock_boottime();

    (void)state;
    (void)start_process("/", "/usr/bin/kubelet", "--config", "/x", NULL);
    census = count(LONG_ID);
    /* The kernel counts its start in ticks. */
    assert_true(census_kubelet_start(census) + NSEC_PER_SEC > before);
    assert_true(census_kubelet_start(census) <= clock_boottime());
    census_free(census);
}

/* A kubelet is root's. */
static void another_users_kubelet_is_ignored(void **state)
{
    struct census *census;
    uint64_t before_kubelets;

    (void)state;
    if (geteuid() != 0)
        skip();
    census = count(LONG_ID);
    before_kubelets = census_kubelet_start(census);
    census_free(census);
    (void)start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "/usr/bin/kubelet",
                           "--config", "/x", NULL);
    census = count(LONG_ID);
    assert_int_equal(census_kubelet_start(census), before_kubelets);
    census_free(census);
}

/* Arguments of 3 MiB, in which the id may be anywhere. */
static void start_with_long_arguments(uid_t user, const char *first)
{
    static char word[96 * 1024];
    static char *arguments[40];
    const struct rlimit stack = {64 << 20, 64 << 20};
    siginfo_t info;
    pid_t pid;

    memset(word, 'x', sizeof(word) - 1);
    arguments[0] = (char *)(uintptr_t)first;
    arguments[1] = (char *)(uintptr_t) "-c";
    arguments[2] = (char *)(uintptr_t) "kill -STOP $$";
    for (size_t i = 3; i < array_length(arguments) - 1; i++)
        arguments[i] = word;
    pid = fork();
    if (pid == 0) {
        if (setrlimit(RLIMIT_STACK, &stack) == 0 && setresuid(user, user, user) == 0)
            execv("/bin/sh", arguments);
        _exit(127);
    }
    process[processes++] = pid;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    assert_int_equal(info.si_code, CLD_STOPPED);
}

/* Root's could be any sandbox's; another user's is nobody's but those that it names first. */
static void long_arguments_of_a_user_count_for_nobody_else(void **state)
{
    struct census *census;

    (void)state;
    if (geteuid() != 0)
        skip();
    start_with_long_arguments(NOBODY, "sh");
    assert_false(has_process(LONG_ID));
    start_with_long_arguments(NOBODY, "sh-" LONG_ID);
    assert_true(has_process(LONG_ID));
    stop_processes();
    start_with_long_arguments(0, "sh");
    census = count(LONG_ID);
    assert_true(census_has_process(census, LONG_ID));
    assert_int_equal(census_get_process(census, LONG_ID), 0);
    census_free(census);
}

/* One that names all of 4,000 sandboxes would be searched for 500 MiB at once. */
static void one_process_is_searched_for_many_sandboxes_in_many_steps(void **state)
{
    enum { SANDBOXES = 4000, LEAST_STEPS = 100 };
    struct census *census;
    char id[40];

    (void)state;
    if (geteuid() != 0)
        skip();
    start_with_long_arguments(NOBODY, "sh-" LONG_ID);
    census = ask("first");
    for (unsigned i = 0; i < SANDBOXES; i++) {
        (void)snprintf(id, sizeof(id), "%032u", i);
        assert_int_equal(census_ask(census, id), 0);
    }
    assert_int_equal(census_ask(census, LONG_ID), 0);
    assert_true(take_steps(census) > LEAST_STEPS);
    assert_true(census_has_process(census, LONG_ID));
    assert_false(census_has_process(census, id));
    census_free(census);
}

/* In a namespace of its own a process sees another /proc, or a /proc that has no entry for it. */
static void another_pid_namespace_is_not_the_host(void **state)
{
    pid_t pid;
    int status = -1;

    (void)state;
    if (!census_sees_host() || geteuid() != 0)
        skip();
    pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWPID) < 0)
            _exit(77);
        pid = fork();
        if (pid == 0)
            _exit(census_sees_host());
        _exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 78);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_whoever_names_the_sandbox, start, stop),
        cmocka_unit_test_setup_teardown(one_of_root_that_hangs_is_everybodys, start, stop),
        cmocka_unit_test_setup_teardown(one_of_a_user_that_hangs_counts_for_nobody_else, start,
                                        stop),
        cmocka_unit_test_setup_teardown(users_that_hang_leave_root_its_attempts, start, stop),
        cmocka_unit_test_setup_teardown(a_step_waits_for_one_slow_answer, start, stop),
        cmocka_unit_test_setup_teardown(without_a_reader_there_is_no_census, start, stop),
        cmocka_unit_test_setup_teardown(knows_nothing_of_whom_it_was_not_asked, start, stop),
        cmocka_unit_test_setup_teardown(finds_the_cgroup_of_a_process, start, stop),
        cmocka_unit_test_setup_teardown(unreadable_cgroup_counts_only_for_roots_processes, start,
                                        stop),
        cmocka_unit_test_setup_teardown(sees_when_the_kubelet_was_started, start, stop),
        cmocka_unit_test_setup_teardown(another_users_kubelet_is_ignored, start, stop),
        cmocka_unit_test_setup_teardown(long_arguments_of_a_user_count_for_nobody_else, start,
                                        stop),
        cmocka_unit_test_setup_teardown(one_process_is_searched_for_many_sandboxes_in_many_steps,
                                        start, stop),
        cmocka_unit_test_setup_teardown(another_pid_namespace_is_not_the_host, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
