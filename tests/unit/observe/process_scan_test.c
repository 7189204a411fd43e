/* SPDX-License-Identifier: Apache-2.0 */
/* process_scan_test.c - real processes with a sandbox's id among their arguments, or none. */
#include "tests/unit/observe/hanging_reader.h"
#include "tests/unit/observe/node_fixture.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "lib/clock.h"
#include "lib/process.h"
#include "observe/process_scan.h"

#define LONG_ID "feedfacefeedfacefeedfacefeedfacecafecafecafecafecafecafecafecafe"

static struct process_scan *ask(const char *sandbox_id)
{
    struct process_scan *process_scan = NULL;

    assert_int_equal(process_scan_new(&process_scan), 0);
    assert_int_equal(process_scan_ask(process_scan, sandbox_id), 0);
    assert_int_equal(process_scan_ask(process_scan, sandbox_id), 0);
    return process_scan;
}

/* Returns in how many steps. */
static unsigned take_steps(struct process_scan *process_scan)
{
    unsigned steps = 1;
    int r;

    while ((r = process_scan_step(process_scan)) > 0)
        steps++;
    assert_int_equal(r, 0);
    return steps;
}

static struct process_scan *count(const char *sandbox_id)
{
    struct process_scan *process_scan = ask(sandbox_id);

    (void)take_steps(process_scan);
    return process_scan;
}

static bool has_process(const char *sandbox_id)
{
    struct process_scan *process_scan = count(sandbox_id);
    bool has = process_scan_has_process(process_scan, sandbox_id);

    assert_int_equal(process_scan_get_process(process_scan, sandbox_id) > 0, has);
    assert_false(process_scan_has_cgroup(process_scan, sandbox_id));
    process_scan_free(process_scan);
    return has;
}

static void finds_whoever_names_the_sandbox(void **state)
{
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
    struct process_scan *process_scan;

    hung = start_process("/", "sleep", "-", "-", NULL);
    process_scan = ask("another");
    assert_int_equal(process_scan_ask(process_scan, LONG_ID), 0);
    (void)take_steps(process_scan);
    assert_true(process_scan_has_process(process_scan, "another"));
    assert_true(process_scan_has_cgroup(process_scan, "another"));
    assert_int_equal(process_scan_get_process(process_scan, "another"), 0);
    assert_true(process_scan_has_process(process_scan, LONG_ID));
    assert_true(process_scan_kubelet_start(process_scan) >= before);
    process_scan_free(process_scan);
    hung = 0;
    process_scan = ask("another");
    (void)take_steps(process_scan);
    assert_false(process_scan_has_process(process_scan, "another"));
    process_scan_free(process_scan);
}

static void without_a_reader_there_is_no_census(void **state)
{
    struct process_scan *process_scan = ask("another");
    int r;

    reader_failure = -EAGAIN;
    do
        r = process_scan_step(process_scan);
    while (r == PROGRESS_MORE);
    reader_failure = 0;
    assert_int_equal(r, -EAGAIN);
    process_scan_free(process_scan);
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
    struct process_scan *process_scan;
    char path[128];

    if (!enter_cgroup(pid, path, sizeof(path)))
        skip();
    process_scan = count(LONG_ID);
    stop_processes();
    assert_int_equal(rmdir(path), 0);
    assert_true(process_scan_has_cgroup(process_scan, LONG_ID));
    assert_false(process_scan_has_process(process_scan, LONG_ID));
    process_scan_free(process_scan);
}

/* Otherwise any user could prevent every removal, and make the kubelet look new. */
static void one_of_a_user_that_hangs_counts_for_nobody_else(void **state)
{
    struct process_scan *process_scan;
    uint64_t before_kubelets;
    bool is_in_cgroup;
    char path[128];

    if (geteuid() != 0)
        skip();
    process_scan = count("another");
    before_kubelets = process_scan_kubelet_start(process_scan);
    process_scan_free(process_scan);
    hung = start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "kubelet", "-", LONG_ID,
                            NULL);
    is_in_cgroup = enter_cgroup(hung, path, sizeof(path));
    process_scan = ask("another");
    assert_int_equal(process_scan_ask(process_scan, LONG_ID), 0);
    (void)take_steps(process_scan);
    hung = 0;
    stop_processes();
    if (is_in_cgroup)
        assert_int_equal(rmdir(path), 0);
    assert_false(process_scan_has_process(process_scan, "another"));
    assert_false(process_scan_has_cgroup(process_scan, "another"));
    assert_int_equal(process_scan_kubelet_start(process_scan), before_kubelets);
    /* A rootless VMM is in the cgroup that its shim made. */
    assert_int_equal(process_scan_has_process(process_scan, LONG_ID), is_in_cgroup);
    assert_int_equal(process_scan_has_cgroup(process_scan, LONG_ID), is_in_cgroup);
    process_scan_free(process_scan);
}

static void step_until_it_has_hung(struct process_scan *process_scan, pid_t pid, unsigned times)
{
    hung = pid;
    hangs = 0;
    while (hangs < times)
        assert_int_equal(process_scan_step(process_scan), PROGRESS_MORE);
    hung = 0;
}

/* A user who keeps memory locked uses up the attempts for users' processes alone. */
static void users_that_hang_leave_root_its_attempts(void **state)
{
    enum { ATTEMPTS = 20 };
    pid_t users, roots;
    struct process_scan *process_scan;

    if (geteuid() != 0)
        skip();
    users = start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "sleep", "-", "-", NULL);
    roots = start_process("/", "sleep", "-", "-", NULL);
    if (roots < users)
        skip(); /* the numbers have begun anew, and root's comes first */
    process_scan = ask("another");
    step_until_it_has_hung(process_scan, users, ATTEMPTS + 1);
    step_until_it_has_hung(process_scan, roots, 1);
    (void)take_steps(process_scan);
    assert_false(process_scan_has_process(process_scan, "another"));
    process_scan_free(process_scan);
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
    struct process_scan *process_scan;
    unsigned depth;
    pid_t pid;

    (void)snprintf(name, sizeof(name), "crust-%d-%0200d", (int)getpid(), 0);
    depth = geteuid() == 0 ? make_deep_cgroup(name, levels) : 0;
    if (!depth)
        skip();
    pid =
        start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "some-vmm", "-x", "y", NULL);
    readable = !enter_deepest(levels, depth, pid) || is_readable(pid);
    process_scan = count(LONG_ID);
    users = process_scan_has_cgroup(process_scan, LONG_ID);
    process_scan_free(process_scan);
    (void)enter_deepest(levels, depth, start_process("/", "some-vmm", "-x", "y", NULL));
    process_scan = count(LONG_ID);
    roots = process_scan_has_cgroup(process_scan, LONG_ID);
    process_scan_free(process_scan);
    stop_processes();
    remove_deep_cgroup(name, levels, depth);
    assert_false(users);
    assert_int_equal(roots, !readable);
}

static void sees_when_the_kubelet_was_started(void **state)
{
    struct process_scan *process_scan;
    uint64_t before = clock_boottime();

    (void)start_process("/", "/usr/bin/kubelet", "--config", "/x", NULL);
    process_scan = count(LONG_ID);
    /* The kernel counts its start in ticks. */
    assert_true(process_scan_kubelet_start(process_scan) + NSEC_PER_SEC > before);
    assert_true(process_scan_kubelet_start(process_scan) <= clock_boottime());
    process_scan_free(process_scan);
}

/* A kubelet is root's. */
static void another_users_kubelet_is_ignored(void **state)
{
    struct process_scan *process_scan;
    uint64_t before_kubelets;

    if (geteuid() != 0)
        skip();
    process_scan = count(LONG_ID);
    before_kubelets = process_scan_kubelet_start(process_scan);
    process_scan_free(process_scan);
    (void)start_process_as((struct started_as){NOBODY, "/bin/sh"}, "/", "/usr/bin/kubelet",
                           "--config", "/x", NULL);
    process_scan = count(LONG_ID);
    assert_int_equal(process_scan_kubelet_start(process_scan), before_kubelets);
    process_scan_free(process_scan);
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
    struct process_scan *process_scan;

    if (geteuid() != 0)
        skip();
    start_with_long_arguments(NOBODY, "sh");
    assert_false(has_process(LONG_ID));
    start_with_long_arguments(NOBODY, "sh-" LONG_ID);
    assert_true(has_process(LONG_ID));
    stop_processes();
    start_with_long_arguments(0, "sh");
    process_scan = count(LONG_ID);
    assert_true(process_scan_has_process(process_scan, LONG_ID));
    assert_int_equal(process_scan_get_process(process_scan, LONG_ID), 0);
    process_scan_free(process_scan);
}

/* One that names all of 4,000 sandboxes would be searched for 500 MiB at once. */
static void one_process_is_searched_for_many_sandboxes_in_many_steps(void **state)
{
    enum { SANDBOXES = 4000, LEAST_STEPS = 100 };
    struct process_scan *process_scan;
    char id[40];

    if (geteuid() != 0)
        skip();
    start_with_long_arguments(NOBODY, "sh-" LONG_ID);
    process_scan = ask("first");
    for (unsigned i = 0; i < SANDBOXES; i++) {
        (void)snprintf(id, sizeof(id), "%032u", i);
        assert_int_equal(process_scan_ask(process_scan, id), 0);
    }
    assert_int_equal(process_scan_ask(process_scan, LONG_ID), 0);
    assert_true(take_steps(process_scan) > LEAST_STEPS);
    assert_true(process_scan_has_process(process_scan, LONG_ID));
    assert_false(process_scan_has_process(process_scan, id));
    process_scan_free(process_scan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_whoever_names_the_sandbox, start, stop),
        cmocka_unit_test_setup_teardown(one_of_root_that_hangs_is_everybodys, start, stop),
        cmocka_unit_test_setup_teardown(one_of_a_user_that_hangs_counts_for_nobody_else, start,
                                        stop),
        cmocka_unit_test_setup_teardown(users_that_hang_leave_root_its_attempts, start, stop),
        cmocka_unit_test_setup_teardown(without_a_reader_there_is_no_census, start, stop),
        cmocka_unit_test_setup_teardown(finds_the_cgroup_of_a_process, start, stop),
        cmocka_unit_test_setup_teardown(unreadable_cgroup_counts_only_for_roots_processes, start,
                                        stop),
        cmocka_unit_test_setup_teardown(sees_when_the_kubelet_was_started, start, stop),
        cmocka_unit_test_setup_teardown(another_users_kubelet_is_ignored, start, stop),
        cmocka_unit_test_setup_teardown(long_arguments_of_a_user_count_for_nobody_else, start,
                                        stop),
        cmocka_unit_test_setup_teardown(one_process_is_searched_for_many_sandboxes_in_many_steps,
                                        start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
