/* SPDX-License-Identifier: Apache-2.0 */
/* kata_rs_trust_test.c - processes and bundles that claim to belong to a sandbox of runtime-rs, and
 * are not believed. */
#define ID "5ca1ab2e0123456789abcdef0123456789abcdef0123456789abcdef01234567"

#include "tests/unit/observe/kata_rs_fixture.h"

#include <sys/prctl.h>
#include <sys/stat.h>

static const struct started_as nobody = {NOBODY, "/bin/sh"};

static pid_t start_impostor(struct started_as as, const char *directory)
{
    (void)start_process_as(as, directory, "containerd-shim-kata-v2", "-id", ID, NULL);
    return start_process_as(as, directory, "qemu-system-x86_64", "-name", "sandbox-" ID,
                            "vhost-vsock-pci,guest-cid=99");
}

static void expect_real_qemu(pid_t pid)
{
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, pid);
    assert_string_equal(sandbox.agent_address, "vsock://77:1024");
    assert_string_equal(sandbox.bundles, TASKS);
}

/* Whichever comes first. */
static void another_user_is_not_believed(void **state)
{
    if (geteuid() != 0)
        skip();
    write_bundle("/home/" ID, ID, MOUNT("/v/of-a-user", "/data"));
    make_directory(STATE);
    (void)start_impostor(nobody, "/home/" ID);
    observe();
    assert_false(sandbox.alive);
    assert_non_null(strstr(sandbox.problem, "belongs to another user than root"));
    start_qemu(TASKS);
    expect_real_qemu(process[3]);
    stop_processes();
    start_qemu(TASKS);
    (void)start_impostor(nobody, "/home/" ID);
    expect_real_qemu(process[1]);
}

/* A program of which root is the owner, for all users to run. */
static void a_set_user_id_program_is_not_believed(void **state)
{
    char program[1024], command[1100];

    make_directory(STATE);
    (void)snprintf(program, sizeof(program), "%s", in_scratch("/sudo"));
    (void)snprintf(command, sizeof(command), "cp /bin/sh %s", program);
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(program, 04755), 0);
    (void)start_impostor((struct started_as){geteuid(), program}, "/");
    observe();
    assert_false(sandbox.alive);
    assert_non_null(strstr(sandbox.problem, "set-user-id"));
}

static void a_vmm_without_a_tie_is_not_believed(void **state)
{
    make_directory(STATE);
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    observe();
    assert_false(sandbox.alive);
    assert_true(sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "neither its parent nor its cgroup"));
}

static void of_two_candidates_neither_is_believed(void **state)
{
    pid_t second;

    start_qemu(TASKS);
    second = start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    observe();
    assert_false(sandbox.alive);
    assert_true(sandbox.try_again);
    assert_non_null(strstr(sandbox.problem, "both name the sandbox"));
    assert_int_equal(process[--processes], second);
    (void)kill(second, SIGKILL);
    (void)waitpid(second, NULL, 0);
    expect_real_qemu(process[1]);
    assert_null(sandbox.problem);
}

/* What the engine runs for a moment, with the shim's own options. */
static void a_command_of_the_engine_is_not_a_shim(void **state)
{
    start_qemu(TASKS);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, "delete");
    expect_real_qemu(process[1]);
}

/* A VMM of another user, which ends with the shim. */
static void start_rootless_vmm(void)
{
    siginfo_t info;
    pid_t vmm = fork();

    if (vmm > 0) {
        (void)waitid(P_PID, (id_t)vmm, &info, WSTOPPED | WEXITED | WNOWAIT);
        return;
    }
    if (setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
        execl("/bin/sh", "qemu-system-x86_64", "-c", "kill -STOP $$", "-name", "sandbox-" ID,
              (char *)NULL);
    _exit(127);
}

static pid_t start_shim_of_rootless_vmm(uid_t user, const char *sandbox_id)
{
    pid_t shim = fork();

    if (shim == 0) {
        start_rootless_vmm();
        if (setresuid(user, user, user) == 0)
            execl("/bin/sh", "containerd-shim-kata-v2", "-c", "kill -STOP $$", "-id", sandbox_id,
                  (char *)NULL);
        _exit(127);
    }
    process[processes++] = shim;
    assert_int_equal(waitid(P_PID, (id_t)shim, &(siginfo_t){0}, WSTOPPED | WEXITED | WNOWAIT), 0);
    return shim;
}

static void expect_no_rootless_vmm(uid_t user, const char *sandbox_id)
{
    (void)start_shim_of_rootless_vmm(user, sandbox_id);
    observe();
    assert_false(sandbox.alive);
    assert_non_null(strstr(sandbox.problem, "belongs to another user than root"));
    stop_processes();
}

/* The shim has started it, and is root's. */
static void a_rootless_vmm_is_its_shims_child(void **state)
{
    pid_t shim;

    if (geteuid() != 0)
        skip();
    make_directory(STATE);
    expect_no_rootless_vmm(NOBODY, ID);
    expect_no_rootless_vmm(0, CONTAINER);
    shim = start_shim_of_rootless_vmm(0, ID);
    observe();
    assert_true(sandbox.alive);
    assert_int_not_equal(sandbox.vmm_pid, shim);
    stop_processes();
    observe();
    assert_false(sandbox.alive);
}

static void a_bundle_that_others_can_write_is_not_read(void **state)
{
    start_qemu(TASKS);
    assert_int_equal(chmod(in_scratch(TASKS), 0777), 0);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
    assert_null(sandbox.bundles);
    assert_non_null(strstr(sandbox.problem, TASKS ": is writable by others than its owner"));
    assert_int_equal(chmod(in_scratch(TASKS), 0700), 0);
    observe();
    assert_int_equal(sandbox.claims, 2);
    assert_null(sandbox.problem);
    assert_false(sandbox.hides_volumes);
}

/* An engine with the umask 0 makes config.json 0666. Nobody but root gets to it in a directory of
 * 0700. */
static void a_bundle_that_others_cannot_enter_is_read(void **state)
{
    start_qemu(TASKS);
    assert_int_equal(chmod(in_scratch(TASKS "/" CONTAINER "/config.json"), 0666), 0);
    observe();
    assert_int_equal(sandbox.claims, 2);
    assert_null(sandbox.problem);
    assert_int_equal(chmod(in_scratch(TASKS "/" CONTAINER), 0711), 0);
    observe();
    assert_int_equal(sandbox.claims, 0);
    assert_true(sandbox.hides_volumes);
    assert_string_equal(sandbox.problem, "which volumes it has is not known: " TASKS "/" CONTAINER
                                         "/config.json: is writable by others than its owner");
}

/* Who owns a directory can write to it, and put another one in the bundle's place. */
static void a_bundle_below_a_users_directory_is_not_read(void **state)
{
    if (geteuid() != 0)
        skip();
    start_qemu(TASKS);
    assert_int_equal(chown(in_scratch(TASKS), NOBODY, NOBODY), 0);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
    assert_null(sandbox.bundles);
    assert_non_null(strstr(sandbox.problem, TASKS ": belongs to uid 65534"));
    assert_int_equal(chown(in_scratch(TASKS), 0, 0), 0);
    observe();
    assert_int_equal(sandbox.claims, 2);
}

/* Where the administrator says that bundles are. */
static void a_configured_bundle_that_others_can_write_is_named(void **state)
{
    static const char *const bundles[] = {"/configured"};

    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    write_bundle("/configured/" ID, ID, MOUNT("/v/1", "/a"));
    assert_int_equal(chmod(in_scratch("/configured"), 0775), 0);
    paths.bundles = bundles;
    paths.bundle_directories = 1;
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
    assert_non_null(strstr(sandbox.problem, "/configured: is writable by others"));
}

/* The Go runtime's VMM is known by its number, so that only the bundle is missing. */
static void a_shim_that_is_not_believed_is_named(void **state)
{
    pid_t vmm;

    if (geteuid() != 0)
        skip();
    make_directory("/run/vc/vm/" ID);
    write_bundle(TASKS "/" ID, ID, MOUNT("/v/1", "/a"));
    vmm = start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID, NULL);
    write_pid("/run/vc/vm/" ID "/pid", vmm);
    observe();
    assert_null(sandbox.problem);
    (void)start_process_as(nobody, "/", "containerd-shim-kata-v2", "-id", ID, NULL);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.claims, 0);
    assert_non_null(strstr(sandbox.problem, "shim: process"));
    assert_non_null(strstr(sandbox.problem, "belongs to another user than root"));
}

/* As many arguments as it likes, of one character each, and then the sandbox's. */
static pid_t start_wordy_process(unsigned words)
{
    static char program[] = "qemu-system-x86_64", command[] = "-c", script[] = "kill -STOP $$";
    static char word[] = "x", option[] = "-name", value[] = "sandbox-" ID;
    static char *arguments[8192] = {program, command, script};
    unsigned count = 3;
    pid_t pid;

    assert_true(words + 6 < array_length(arguments));
    while (words--)
        arguments[count++] = word;
    arguments[count++] = option;
    arguments[count++] = value;
    arguments[count] = NULL;
    pid = fork();
    if (pid == 0) {
        (void)execv("/bin/sh", arguments);
        _exit(127);
    }
    process[processes++] = pid;
    assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WSTOPPED | WEXITED | WNOWAIT), 0);
    return pid;
}

/* A user who starts thousands of such processes must not keep the loop busy. */
static void more_arguments_than_a_vmm_has_are_not_read(void **state)
{
    pid_t vmm;

    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_wordy_process(4096);
    observe();
    assert_false(sandbox.alive);
    vmm = start_wordy_process(1024);
    observe();
    assert_true(sandbox.alive);
    assert_int_equal(sandbox.vmm_pid, vmm);
}

static void a_cid_of_this_machine_is_refused(void **state)
{
    make_directory(STATE);
    (void)start_process("/", "containerd-shim-kata-v2", "-id", ID, NULL);
    (void)start_process("/", "qemu-system-x86_64", "-name", "sandbox-" ID,
                        "vhost-vsock-pci,guest-cid=1");
    observe();
    assert_true(sandbox.alive);
    assert_null(sandbox.agent_address);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_user_is_not_believed),
        TEST(a_set_user_id_program_is_not_believed),
        TEST(a_vmm_without_a_tie_is_not_believed),
        TEST(of_two_candidates_neither_is_believed),
        TEST(a_command_of_the_engine_is_not_a_shim),
        TEST(a_rootless_vmm_is_its_shims_child),
        TEST(a_bundle_that_others_can_write_is_not_read),
        TEST(a_bundle_that_others_cannot_enter_is_read),
        TEST(a_bundle_below_a_users_directory_is_not_read),
        TEST(a_configured_bundle_that_others_can_write_is_named),
        TEST(a_shim_that_is_not_believed_is_named),
        TEST(more_arguments_than_a_vmm_has_are_not_read),
        TEST(a_cid_of_this_machine_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
